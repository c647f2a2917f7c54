// rope: rotary position embedding (Su et al. 2021), pairs (h, h + dims/2). Attributes: base; dims that turn
// (default: all of H); factor alone divides every frequency; with low, high and original (tokens) it is Llama 3's
// scaling by wavelength; inverse = 1 turns backwards, which is the gradient.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kRope{Op{
    .name = "rope",
    .doc = "pairs of a head turned by position * frequency",
    .rule = "t n h, t -> t n h",
    .whole = "h",
    .elem = {Elem::compute},
    .flops_per_point = 3,
    .roles = {{1, Role::position}},
    .attributes = {{"base", 100}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      Attrs a{.x = n.attrs.x, .label = n.attrs.label + ".dx", .elem = Elem::real};
      if (a.x.erase("inverse") == 0) a.x["inverse"] = 1;
      return {g.one("rope", {d[0], n.in[1]}, a), kNone};
    },
}};

}  // namespace

}  // namespace plait
