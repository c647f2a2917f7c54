// bias: adds a vector over some dims to every row, by a rule that the node gives ("t n h, n h -> t n h"), and the sum
// over rows that is its gradient (of a norm's bias too).
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kBias{Op{
    .name = "bias",
    .doc = "out = x + b, b the same for every row",
    .rule = "",
    .examples = {"t n h, n h -> t n h", "t d, d -> t d"},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      const Rule r{{n.rule.out[0]}, {n.rule.in[1]}};
      return {d[0],
              g.one("sum_rows", {d[0]}, {.rule = to_string(r), .cls = Class::wgrad, .label = n.attrs.label + ".db"})};
    },
}};

const Registry kSumRows{Op{
    .name = "sum_rows",
    .doc = "out = sum of x over the factors that the rule drops",
    .rule = "",
    .out = {Type::sum},
    .examples = {"t n h -> n h", "t d -> d"},
}};

}  // namespace

}  // namespace plait
