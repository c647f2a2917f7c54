// dropout: an element is kept with probability 1 - p and divided by it (Srivastava et al. 2014). The mask is a pure
// function of (seed, site, step, the token's number in the batch of the step, the element's place in its row), so no
// layout and no cut into micro-batches changes it. Attributes seed, site, p. Of attention's probabilities:
// attention.cc.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kDropout{Op{
    .name = "dropout",
    .doc = "x, token numbers, step -> x / (1 - p) where kept, else 0",
    .rule = "t d, t, o -> t d",
    .elem = {Elem::as_first},
    .flops_per_point = 10,
    .roles = {{1, Role::position}, {2, Role::position}},
    .attributes = {{"seed", 3}, {"site", 7}, {"p", 0.25}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {g.one("dropout", {d[0], n.in[1], n.in[2]}, {.x = n.attrs.x, .label = n.attrs.label + ".dx"}), kNone,
              kNone};
    },
}};

}  // namespace

}  // namespace plait
