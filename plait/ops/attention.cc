// attention: causal attention inside each sequence, grouped heads (Ainslie et al. 2023), o and the logarithm of the
// softmax's denominator (lse). Keys of a token's own sequence up to itself; tokens of a sequence are neighbours in T,
// in order of position. Attributes scale, and window (optional: only the last positions). Softmax in blocks of 128
// positions whose parts are added as exact sums. attention_dropout: the same with dropout of its probabilities
// (dropout.cc), as GPT-2 trains; the softmax is of all.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kAttention{Op{
    .name = "attention",
    .doc = "q, k, v, position, sequence -> o, lse: causal attention inside each sequence",
    .rule = "t (k g) h, s k h, s k h, s, s -> t (k g) h, t (k g)",
    .whole = "h",
    .follows = {{'s', 't'}},
    .out = {Type::num, Type::num},
    .elem = {Elem::compute, Elem::real},
    .flops_per_point = 4,
    .roles = {{3, Role::position}, {4, Role::sequence}},
    .attributes = {{"scale", 0.6}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      PLAIT_CHECK(d[1] == kNone, "attention ({}): lse has no gradient of its own", n.attrs.label);
      if (d[0] == kNone) return {kNone, kNone, kNone, kNone, kNone};
      auto r =
          g.apply("attention_vjp", {n.in[0], n.in[1], n.in[2], n.out[0], n.out[1], g.operand(d[0]), n.in[3], n.in[4]},
                  {.cls = Class::dgrad, .x = n.attrs.x, .label = n.attrs.label + ".vjp"});
      return {r[0], r[1], r[2], kNone, kNone};
    },
}};

const Registry kAttentionVjp{Op{
    .name = "attention_vjp",
    .doc = "q, k, v, o, lse, do, position, sequence -> dq, dk, dv; leaves of dk, dv: tokens x heads",
    .rule = "t (k g) h, s k h, s k h, t (k g) h, t (k g), t (k g) h, s, s -> t (k g) h, s k h, s k h",
    .whole = "h",
    .follows = {{'s', 't'}},
    .out = {Type::num, Type::sum, Type::sum},
    .flops_per_point = 10,
    .roles = {{6, Role::position}, {7, Role::sequence}},
    .attributes = {{"scale", 0.6}},
}};

const Registry kAttentionDropout{Op{
    .name = "attention_dropout",
    .doc = "q, k, v, position, sequence, token numbers, step -> o, lse: attention, its probabilities dropped out",
    .rule = "t (k g) h, s k h, s k h, s, s, t, o -> t (k g) h, t (k g)",
    .whole = "h",
    .follows = {{'s', 't'}},
    .out = {Type::num, Type::num},
    .elem = {Elem::compute, Elem::real},
    .flops_per_point = 14,
    .roles = {{3, Role::position}, {4, Role::sequence}, {5, Role::position}, {6, Role::position}},
    .attributes = {{"scale", 0.6}, {"seed", 3}, {"site", 7}, {"p", 0.25}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      PLAIT_CHECK(d[1] == kNone, "attention_dropout ({}): lse has no gradient of its own", n.attrs.label);
      if (d[0] == kNone) return {kNone, kNone, kNone, kNone, kNone, kNone, kNone};
      auto r =
          g.apply("attention_dropout_vjp",
                  {n.in[0], n.in[1], n.in[2], n.out[0], n.out[1], g.operand(d[0]), n.in[3], n.in[4], n.in[5], n.in[6]},
                  {.cls = Class::dgrad, .x = n.attrs.x, .label = n.attrs.label + ".vjp"});
      return {r[0], r[1], r[2], kNone, kNone, kNone, kNone};
    },
}};

const Registry kAttentionDropoutVjp{Op{
    .name = "attention_dropout_vjp",
    .doc = "q, k, v, o, lse, do, position, sequence, token numbers, step -> dq, dk, dv",
    .rule = "t (k g) h, s k h, s k h, t (k g) h, t (k g), t (k g) h, s, s, t, o -> t (k g) h, s k h, s k h",
    .whole = "h",
    .follows = {{'s', 't'}},
    .out = {Type::num, Type::sum, Type::sum},
    .flops_per_point = 20,
    .roles = {{6, Role::position}, {7, Role::sequence}, {8, Role::position}, {9, Role::position}},
    .attributes = {{"scale", 0.6}, {"seed", 3}, {"site", 7}, {"p", 0.25}},
}};

}  // namespace

}  // namespace plait
