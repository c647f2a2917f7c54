// gelu_mul: the gate of a GeGLU (Shazeer 2020): out = gelu(gate) * up, gelu in its tanh form (gelu.cc).
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kGeluMul{Op{
    .name = "gelu_mul",
    .doc = "out = gelu(gate) * up, tanh form",
    .rule = "",
    .elem = {Elem::compute},
    .elementwise = true,
    .flops_per_point = 15,
    .examples = {"a b, a b -> a b"},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const std::string& l = n.attrs.label;
      return {g.one("gelu_mul_dgate", {n.in[0], n.in[1], d[0]}, {.label = l + ".dgate"}),
              g.one("gelu_mul_dup", {n.in[0], d[0]}, {.label = l + ".dup"})};
    },
}};

const Registry kGeluMulDgate{Op{
    .name = "gelu_mul_dgate",
    .doc = "gate, up, dy -> dgate of gelu_mul",
    .rule = "",
    .elementwise = true,
    .flops_per_point = 21,
    .examples = {"a b, a b, a b -> a b"},
}};

const Registry kGeluMulDup{Op{
    .name = "gelu_mul_dup",
    .doc = "gate, dy -> dup of gelu_mul",
    .rule = "",
    .elementwise = true,
    .flops_per_point = 15,
    .examples = {"a b, a b -> a b"},
}};

}  // namespace

}  // namespace plait
