// head_rms_norm: rms_norm of each head of q or k by itself, with one gain for all heads (Henry et al. 2020).
// Attribute eps.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kHeadRmsNorm{Op{
    .name = "head_rms_norm",
    .doc = "heads divided by their root mean square, times a gain",
    .rule = "t n h, h -> t n h",
    .whole = "h",
    .flops_per_point = 4,
    .attributes = {{"eps", 1e-5}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const std::string& l = n.attrs.label;
      return {
          g.one("head_rms_norm_dx", {n.in[0], n.in[1], d[0]}, {.x = n.attrs.x, .label = l + ".dx"}),
          g.one("head_rms_norm_dgain", {n.in[0], d[0]}, {.cls = Class::wgrad, .x = n.attrs.x, .label = l + ".dgain"})};
    },
}};

const Registry kHeadRmsNormDx{Op{
    .name = "head_rms_norm_dx",
    .doc = "x, gain, dy -> dx of head_rms_norm",
    .rule = "t n h, h, t n h -> t n h",
    .whole = "h",
    .flops_per_point = 9,
    .attributes = {{"eps", 1e-5}},
}};

const Registry kHeadRmsNormDgain{Op{
    .name = "head_rms_norm_dgain",
    .doc = "x, dy -> dgain of head_rms_norm; leaves: tokens x heads",
    .rule = "t n h, t n h -> h",
    .whole = "h",
    .out = {Type::sum},
    .flops_per_point = 5,
    .attributes = {{"eps", 1e-5}},
}};

}  // namespace

}  // namespace plait
