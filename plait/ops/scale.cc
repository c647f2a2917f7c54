// scale: every number times a constant (the embeddings of a Gemma times sqrt(D)). Attribute by.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kScale{Op{
    .name = "scale",
    .doc = "out = x * by",
    .rule = "",
    .elementwise = true,
    .examples = {"a b -> a b"},
    .attributes = {{"by", 1.625}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {g.one("scale", {d[0]}, {.x = n.attrs.x, .label = n.attrs.label + ".dx"})};
    },
}};

}  // namespace

}  // namespace plait
