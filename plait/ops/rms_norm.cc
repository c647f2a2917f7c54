// rms_norm: y = x / sqrt(mean(x^2) + eps) * gain over whole rows (Zhang, Sennrich 2019). Attribute eps.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kRmsNorm{Op{
    .name = "rms_norm",
    .doc = "rows divided by their root mean square, times a gain",
    .rule = "t d, d -> t d",
    .whole = "d",
    .elem = {Elem::compute},
    .flops_per_point = 4,
    .attributes = {{"eps", 1e-5}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const std::string& l = n.attrs.label;
      return {g.one("rms_norm_dx", {n.in[0], n.in[1], d[0]}, {.x = n.attrs.x, .label = l + ".dx"}),
              g.one("rms_norm_dgain", {n.in[0], d[0]}, {.cls = Class::wgrad, .x = n.attrs.x, .label = l + ".dgain"})};
    },
}};

const Registry kRmsNormDx{Op{
    .name = "rms_norm_dx",
    .doc = "x, gain, dy -> dx of rms_norm",
    .rule = "t d, d, t d -> t d",
    .whole = "d",
    .flops_per_point = 9,
    .attributes = {{"eps", 1e-5}},
}};

const Registry kRmsNormDgain{Op{
    .name = "rms_norm_dgain",
    .doc = "x, dy -> dgain of rms_norm",
    .rule = "t d, t d -> d",
    .whole = "d",
    .out = {Type::sum},
    .flops_per_point = 5,
    .attributes = {{"eps", 1e-5}},
}};

}  // namespace

}  // namespace plait
