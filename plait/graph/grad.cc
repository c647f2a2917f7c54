// Reverse mode over the logical graph. Collectives need no gradient rule: they are inserted afterwards, into forward
// and backward alike.
#include "plait/graph/graph.h"

namespace plait {

std::map<std::string, ValueId> grad(Graph& g, ValueId loss) {
  struct Part {
    ValueId value;
    i64 layer;
  };
  std::map<ValueId, std::vector<Part>> cotangents;
  auto total = [&](ValueId v) {
    std::vector<ValueId> parts;
    std::set<i64> layers;
    bool sums = true;
    for (auto& p : cotangents[v]) {
      parts.push_back(p.value);
      layers.insert(p.layer);
      sums &= g.at(p.value).type == Type::sum;
    }
    // Uses of one layer are added there, so that one sum crosses a stage cut; sums of several (a tied weight) stay put.
    return g.add_all(parts, layers.size() == 1 || !sums ? *layers.begin() : -1);
  };
  const i64 forward = static_cast<i64>(g.nodes.size());
  PLAIT_CHECK(forward > 0, "gradient of an empty graph");
  i64 keep = std::exchange(g.layer, g.nodes.back().layer);
  g.backward = true;
  cotangents[loss].push_back({g.one("constant", {}, {.dims = "1", .x = {{"value", 1}}, .label = "dloss"}), g.layer});
  for (i64 i = forward - 1; i >= 0; i--) {
    Node n = g.nodes[static_cast<size_t>(i)];
    g.layer = n.layer;
    std::vector<ValueId> d;
    bool any = false;
    for (ValueId v : n.out) {
      d.push_back(cotangents.count(v) > 0 ? total(v) : kNone);
      any |= d.back() != kNone;
    }
    if (!any || !n.op->vjp) continue;
    auto din = n.op->vjp(g, n, d);
    for (size_t k = 0; k < din.size(); k++)
      if (din[k] != kNone) cotangents[n.in[k]].push_back({din[k], n.layer});
  }
  std::map<std::string, ValueId> out;
  std::vector<std::pair<std::string, ValueId>> named(g.named.begin(), g.named.end());
  for (auto& [name, v] : named)
    if (cotangents.count(v) > 0) out[name] = total(v);
  g.layer = keep;
  g.backward = false;
  return out;
}

}  // namespace plait
