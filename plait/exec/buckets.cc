#include "plait/exec/buckets.h"

#include <algorithm>

namespace plait {

namespace {

/// Reshards of accumulators that may be joined in place: all_reduces of what nobody else reads, which end before the
/// accumulator is zeroed.
std::vector<i64> in_place(const ShardedGraph& s, const Sizes& sizes, const Binding& b) {
  std::vector<i64> reads(s.placement.size(), 0), last_read(s.placement.size(), -1), zeroed(s.placement.size(), -1);
  for (size_t i = 0; i < s.steps.size(); i++) {
    const Step& st = s.steps[i];
    const Node* n = st.node < 0 ? nullptr : &s.graph.nodes[static_cast<size_t>(st.node)];
    for (ValueId v : n == nullptr ? std::vector<ValueId>{st.source} : st.in) {
      if (n != nullptr && n->op->name == "zero") {
        zeroed[static_cast<size_t>(v)] = static_cast<i64>(i);
      } else {
        reads[static_cast<size_t>(v)]++;
        last_read[static_cast<size_t>(v)] = static_cast<i64>(i);
      }
    }
  }
  std::vector<i64> found;
  for (size_t i = 0; i < s.steps.size(); i++) {
    const Step& st = s.steps[i];
    if (st.node >= 0) continue;
    const Value& x = s.logical(st.source);
    const auto v = static_cast<size_t>(st.source);
    bool fits = x.kind == Kind::state && x.type == Type::sum && s.origin[v] == st.source && reads[v] == 1 &&
                last_read[static_cast<size_t>(st.value)] < zeroed[v];
    for (char d : x.dims) fits &= sizes.knows(d);
    if (!fits) continue;
    auto c = recognise(s.of(st.source), s.of(st.value), x.dims, b);
    if (c.size() == 1 && c[0].op == "all_reduce") found.push_back(static_cast<i64>(i));
  }
  return found;
}

/// Whether the same ranks take part in two reshards, with the same type.
bool together(const ShardedGraph& s, const Step& x, const Step& y) {
  if (s.logical(x.source).dtype != s.logical(y.source).dtype) return false;
  if (axes_moved(s.of(x.source), s.of(x.value)) != axes_moved(s.of(y.source), s.of(y.value))) return false;
  for (size_t a = 0; a < s.plan.axes.size(); a++)
    if (!(s.of(x.source)[a].holders == s.of(y.source)[a].holders) ||
        !(s.of(x.value)[a].holders == s.of(y.value)[a].holders))
      return false;
  return true;
}

}  // namespace

std::vector<std::vector<i64>> find_buckets(const ShardedGraph& s, i64 limit_bytes) {
  Sizes sizes = static_sizes(s.graph);
  const Binding b(s.plan, sizes);
  struct Open {
    size_t bucket;
    i64 bytes;
  };
  std::vector<Open> open;  // one of each kind
  std::vector<std::vector<i64>> buckets;
  for (i64 i : in_place(s, sizes, b)) {
    const Step& st = s.steps[static_cast<size_t>(i)];
    const Value& x = s.logical(st.source);
    i64 bytes = 0;
    for (i64 r = 0; r < s.plan.world(); r++)
      bytes = std::max(bytes, bytes_of(x.dtype, volume(b.box(s.of(st.source), x.dims, r))));
    auto same = std::find_if(open.begin(), open.end(), [&](const Open& o) {
      return together(s, s.steps[static_cast<size_t>(buckets[o.bucket][0])], st);
    });
    if (same != open.end() && same->bytes + bytes <= limit_bytes) {
      buckets[same->bucket].push_back(i);
      same->bytes += bytes;
      continue;
    }
    if (same == open.end()) same = open.insert(same, Open{});
    *same = {buckets.size(), bytes};
    buckets.push_back({i});
  }
  return buckets;
}

}  // namespace plait
