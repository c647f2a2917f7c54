// gelu, the tanh form (Hendrycks, Gimpel 2016): x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kGelu{Op{
    .name = "gelu",
    .doc = "out = gelu(x), tanh form",
    .rule = "",
    .elem = {Elem::compute},
    .elementwise = true,
    .flops_per_point = 14,
    .examples = {"a b -> a b"},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {g.one("gelu_dx", {n.in[0], d[0]}, {.label = n.attrs.label + ".dx"})};
    },
}};

const Registry kGeluDx{Op{
    .name = "gelu_dx",
    .doc = "x, dy -> dx of gelu",
    .rule = "",
    .elementwise = true,
    .flops_per_point = 20,
    .examples = {"a b, a b -> a b"},
}};

}  // namespace

}  // namespace plait
