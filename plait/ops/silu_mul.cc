// silu_mul: the gate of a SwiGLU (Shazeer 2020): out = gate * sigmoid(gate) * up.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kSiluMul{Op{
    .name = "silu_mul",
    .doc = "out = silu(gate) * up",
    .rule = "",
    .elem = {Elem::compute},
    .elementwise = true,
    .flops_per_point = 10,
    .examples = {"a b, a b -> a b"},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const std::string& l = n.attrs.label;
      return {g.one("silu_mul_dgate", {n.in[0], n.in[1], d[0]}, {.label = l + ".dgate"}),
              g.one("silu_mul_dup", {n.in[0], d[0]}, {.label = l + ".dup"})};
    },
}};

const Registry kSiluMulDgate{Op{
    .name = "silu_mul_dgate",
    .doc = "gate, up, dy -> dgate of silu_mul",
    .rule = "",
    .elementwise = true,
    .flops_per_point = 14,
    .examples = {"a b, a b, a b -> a b"},
}};

const Registry kSiluMulDup{Op{
    .name = "silu_mul_dup",
    .doc = "gate, dy -> dup of silu_mul",
    .rule = "",
    .elementwise = true,
    .flops_per_point = 10,
    .examples = {"a b, a b -> a b"},
}};

}  // namespace

}  // namespace plait
