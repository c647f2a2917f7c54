// Cross entropy over a vocabulary that may be cut, as small ops: row_max, sum_exp, pick, nll, sum_tokens. The maximum
// is a constant to the gradient. A target of -1 is masked: its token has no loss and no gradient.
#include "plait/graph/graph.h"

namespace plait {

namespace {

using Ids = std::vector<ValueId>;

const Registry kRowMax{Op{
    .name = "row_max",
    .doc = "out[t] = max over v of x[t v]",
    .rule = "t v -> t",
    .out = {Type::max},
}};

const Registry kSumExp{Op{
    .name = "sum_exp",
    .doc = "out[t] = sum over v of exp(x[t v] - max[t])",
    .rule = "t v, t -> t",
    .out = {Type::sum},
    .flops_per_point = 10,
    .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
      return {g.one("sum_exp_dx", {n.in[0], n.in[1], d[0]}, {.label = n.attrs.label + ".dx"}), kNone};
    },
}};

const Registry kSumExpDx{Op{
    .name = "sum_exp_dx",
    .doc = "x, max, dsum -> dx of sum_exp",
    .rule = "t v, t, t -> t v",
    .flops_per_point = 10,
}};

const Registry kPick{Op{
    .name = "pick",
    .doc = "out[t] = x[t targets[t]]; zero where another rank owns it, or the target is masked",
    .rule = "t v, t -> t",
    .one_owner = true,
    .flops_per_point = 0,
    .indexes = {{1, 'v'}},
    .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
      return {
          g.one("pick_dx", {n.in[1], d[0]}, {.dims = g.at(n.in[0]).dims.substr(1, 1), .label = n.attrs.label + ".dx"}),
          kNone};
    },
}};

const Registry kPickDx{Op{
    .name = "pick_dx",
    .doc = "targets, dy -> dx of pick: dy[t] at (t, targets[t]), zero elsewhere",
    .rule = "t, t -> t v",
    .flops_per_point = 0,
    .indexes = {{0, 'v'}},
}};

const Registry kNll{Op{
    .name = "nll",
    .doc = "max, sum_exp, picked, targets -> max + log(sum_exp) - picked; zero where masked",
    .rule = "t, t, t, t -> t",
    .flops_per_point = 10,
    .indexes = {{3, 'v'}},
    .roles = {{1, Role::positive}},
    .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
      const std::string& l = n.attrs.label;
      return {kNone, g.one("nll_dsum", {n.in[1], n.in[3], d[0]}, {.label = l + ".dsum"}),
              g.one("nll_dpick", {n.in[3], d[0]}, {.label = l + ".dpick"}), kNone};
    },
}};

const Registry kNllDsum{Op{
    .name = "nll_dsum",
    .doc = "sum_exp, targets, dy -> dsum_exp of nll",
    .rule = "t, t, t -> t",
    .indexes = {{1, 'v'}},
    .roles = {{0, Role::positive}},
}};

const Registry kNllDpick{Op{
    .name = "nll_dpick",
    .doc = "targets, dy -> dpicked of nll",
    .rule = "t, t -> t",
    .indexes = {{0, 'v'}},
}};

const Registry kSumTokens{Op{
    .name = "sum_tokens",
    .doc = "out = sum over t of x[t]",
    .rule = "t -> o",
    .out = {Type::sum},
    .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
      return {g.one("spread", {d[0], n.in[0]}, {.label = n.attrs.label + ".dx"})};
    },
}};

const Registry kSpread{Op{
    .name = "spread",
    .doc = "scalar, x -> the scalar for every t of x",
    .rule = "o, t -> t",
    .flops_per_point = 0,
}};

}  // namespace

}  // namespace plait
