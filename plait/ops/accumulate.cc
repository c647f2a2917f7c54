// Gradient accumulators: sums that stay sums over micro-batches, cleared after the step.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kAccumulate{Op{
    .name = "accumulate",
    .doc = "state + sum, in place",
    .rule = "",
    .elem = {Elem::as_first},
    .takes_sums = true,
    .elementwise = true,
    .examples = {"a b, a b -> a b"},
}};

const Registry kZero{Op{
    .name = "zero",
    .doc = "a state of zeros, in place",
    .rule = "",
    .elem = {Elem::as_first},
    .takes_sums = true,
    .elementwise = true,
    .flops_per_point = 0,
    .examples = {"a b -> a b"},
}};

}  // namespace

}  // namespace plait
