// layer_norm: y = (x - mean) / sqrt(variance + eps) * gain + bias over whole rows (Ba, Kiros, Hinton 2016).
// Attribute eps. The gradient of the bias is a sum_rows.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kLayerNorm{Op{
    .name = "layer_norm",
    .doc = "rows of mean 0 and variance 1, times a gain, plus a bias",
    .rule = "t d, d, d -> t d",
    .whole = "d",
    .elem = {Elem::compute},
    .flops_per_point = 8,
    .attributes = {{"eps", 1e-5}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const std::string& l = n.attrs.label;
      return {g.one("layer_norm_dx", {n.in[0], n.in[1], d[0]}, {.x = n.attrs.x, .label = l + ".dx"}),
              g.one("layer_norm_dgain", {n.in[0], d[0]}, {.cls = Class::wgrad, .x = n.attrs.x, .label = l + ".dgain"}),
              g.one("sum_rows", {d[0]}, {.rule = "t d -> d", .cls = Class::wgrad, .label = l + ".dbias"})};
    },
}};

const Registry kLayerNormDx{Op{
    .name = "layer_norm_dx",
    .doc = "x, gain, dy -> dx of layer_norm",
    .rule = "t d, d, t d -> t d",
    .whole = "d",
    .flops_per_point = 14,
    .attributes = {{"eps", 1e-5}},
}};

const Registry kLayerNormDgain{Op{
    .name = "layer_norm_dgain",
    .doc = "x, dy -> dgain of layer_norm",
    .rule = "t d, t d -> d",
    .whole = "d",
    .out = {Type::sum},
    .flops_per_point = 8,
    .attributes = {{"eps", 1e-5}},
}};

}  // namespace

}  // namespace plait
