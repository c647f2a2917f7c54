// Additions of numbers and of sums, and what reads a sum.
#include "plait/graph/graph.h"

namespace plait {

namespace {

std::vector<ValueId> both(Graph&, const Node&, const std::vector<ValueId>& d) { return {d[0], d[0]}; }
std::vector<ValueId> through(Graph&, const Node&, const std::vector<ValueId>& d) { return {d[0]}; }

const Registry kAdd{Op{.name = "add",
                       .doc = "out = a + b",
                       .rule = "",
                       .elementwise = true,
                       .examples = {"a b, a b -> a b"},
                       .vjp = both}};

const Registry kAddSums{Op{
    .name = "add_sums",
    .doc = "out = a + b, both sums of one class, unread",
    .rule = "",
    .elem = {Elem::as_first},
    .takes_sums = true,
    .elementwise = true,
    .examples = {"a b, a b -> a b"},
    .vjp = both,
}};

const Registry kFinish{Op{
    .name = "finish",
    .doc = "the number of a sum, rounded once",
    .rule = "",
    .takes_sums = true,
    .elementwise = true,
    .examples = {"a b -> a b"},
    .vjp = through,
}};

// A maximum only shifts an exponent: it is a constant to the gradient.
const Registry kFinishMax{Op{
    .name = "finish_max",
    .doc = "the number of a maximum",
    .rule = "",
    .takes_sums = true,
    .elementwise = true,
    .examples = {"a b -> a b"},
}};

}  // namespace

}  // namespace plait
