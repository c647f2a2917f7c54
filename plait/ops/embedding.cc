// embedding: rows of a table by id, and the gradient of the table.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kEmbedding{Op{
    .name = "embedding",
    .doc = "out[t] = table[ids[t]]; zero where another rank owns the row, or the id is negative",
    .rule = "t, v d -> t d",
    .one_owner = true,
    .flops_per_point = 0,
    .indexes = {{0, 'v'}},
    .vjp = [](Graph& g, const Node& n, const std::vector<ValueId>& d) -> std::vector<ValueId> {
      return {kNone,
              g.one("embedding_dw", {n.in[0], d[0]},
                    {.dims = g.at(n.in[1]).dims.substr(0, 1), .cls = Class::wgrad, .label = n.attrs.label + ".dw"})};
    },
}};

const Registry kEmbeddingDw{Op{
    .name = "embedding_dw",
    .doc = "dtable[v] = sum of dy[t] over the tokens t whose id is v",
    .rule = "t, t d -> v d",
    .out = {Type::sum},
    .indexes = {{0, 'v'}},
}};

}  // namespace

}  // namespace plait
