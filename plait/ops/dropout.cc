// dropout: an element is kept with probability 1 - p and divided by it (Srivastava et al. 2014). The mask is a pure
// function of (seed, stream, the token's global number, the element's global index), so no layout changes it.
// Attributes seed, stream, p; the second operand holds each token's global number in the run of the data.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kDropout{Op{
    .name = "dropout",
    .doc = "x, token numbers -> x / (1 - p) where kept, else 0",
    .rule = "t d, t -> t d",
    .elem = {Elem::as_first},
    .flops_per_point = 10,
    .roles = {{1, Role::position}},
    .attributes = {{"seed", 3}, {"stream", 7}, {"p", 0.25}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {g.one("dropout", {d[0], n.in[1]}, {.x = n.attrs.x, .label = n.attrs.label + ".dx"}), kNone};
    },
}};

}  // namespace

}  // namespace plait
