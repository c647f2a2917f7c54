// constant: a scalar known when the graph is built.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kConstant{Op{
    .name = "constant",
    .doc = "the attribute value [1]",
    .rule = "-> o",
    .attributes = {{"value", 1.5}},
}};

}  // namespace

}  // namespace plait
