// take_rows: the rows whose logits are wanted.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kTakeRows{Op{
    .name = "take_rows",
    .doc = "out[r] = x[rows[r]]; zero where another rank owns the row",
    .rule = "t d, r -> r d",
    .elem = {Elem::as_first},
    .one_owner = true,
    .flops_per_point = 0,
    .indexes = {{1, 't'}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {g.one("take_rows_dx", {n.in[1], d[0]},
                    {.dims = g.at(n.in[0]).dims.substr(0, 1), .cls = Class::dgrad, .label = n.attrs.label + ".dx"}),
              kNone};
    },
}};

// One row may be taken more than once: a sum, of single elements.
const Registry kTakeRowsDx{Op{
    .name = "take_rows_dx",
    .doc = "dx[t] = sum of dy[r] over the rows r that took t",
    .rule = "r, r d -> t d",
    .out = {Type::sum},
    .element_leaves = true,
    .indexes = {{0, 't'}},
}};

}  // namespace

}  // namespace plait
