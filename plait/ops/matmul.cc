// matmul: the product of two operands by a rule that the node gives. Weights lie as in files: [out dims..., in
// dims...].
#include "plait/graph/graph.h"

namespace plait {

namespace {

/// A sum over tokens is a weight's gradient, any other an input's.
Class gradient_class(const Graph& g, const Node& n, const Rule& r) {
  const std::string contracted = r.contracted();
  for (size_t i = 0; i < n.rule.in.size(); i++)
    for (size_t d = 0; d < n.rule.in[i].size(); d++)
      if (char dim = g.at(n.in[i]).dims[d]; dim == 'T' || dim == 'R')
        if (contracted.find(n.rule.in[i][d][0]) != std::string::npos) return Class::wgrad;
  return Class::dgrad;
}

std::vector<ValueId> vjp(Graph& g, const Node& n, const std::vector<ValueId>& d) {
  const Rule dx{{n.rule.out[0], n.rule.in[1]}, {n.rule.in[0]}}, dw{{n.rule.in[0], n.rule.out[0]}, {n.rule.in[1]}};
  const ValueId dy = g.operand(d[0]);
  return {g.one("matmul", {dy, n.in[1]},
                {.rule = to_string(dx), .cls = gradient_class(g, n, dx), .label = n.attrs.label + ".dx"}),
          g.one("matmul", {n.in[0], dy},
                {.rule = to_string(dw), .cls = gradient_class(g, n, dw), .label = n.attrs.label + ".dw"})};
}

const Registry kMatmul{Op{
    .name = "matmul",
    .doc = "out = sum over the contracted factors of x * y; a sum where the model cuts the summed dim into leaves",
    .rule = "",
    .flops_per_point = 2,
    .examples = {"t d, n h d -> t n h", "t n h, d n h -> t d", "t d, f d -> t f", "t f, d f -> t d", "t d, v d -> t v",
                 "t v, v d -> t d", "t d, t f -> f d", "t n h, t d -> d n h", "t h n, d n h -> t d"},
    .vjp = vjp,
}};

}  // namespace

}  // namespace plait
