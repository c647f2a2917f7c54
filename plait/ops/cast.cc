// cast: rounds once to the dtype of operands of products. read: marks what the host reads.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kCast{Op{
    .name = "cast",
    .doc = "x in the compute dtype",
    .rule = "",
    .elem = {Elem::compute},
    .elementwise = true,
    .examples = {"a b -> a b"},
    .vjp = [](Graph&, const Node&, const std::vector<ValueId>& d) -> std::vector<ValueId> { return {d[0]}; },
}};

const Registry kRead{Op{
    .name = "read",
    .doc = "what the host reads: whole on every holder",
    .rule = "",
    .elem = {Elem::as_first},
    .elementwise = true,
    .all_whole = true,
    .flops_per_point = 0,
    .examples = {"a b -> a b"},
}};

}  // namespace

}  // namespace plait
