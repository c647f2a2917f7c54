#include "plait/exec/cost.h"

#include <algorithm>
#include <set>

namespace plait {

namespace {

bool is_paged(const Node& n) { return n.op->name == "attention_paged"; }

/// The dims of a cache and its table: how much of them is read is for `Attended` to say.
bool is_slot(char dim) { return dim == 'C' || dim == 'B' || dim == 'P'; }

/// Of the tokens' pairs those that a node takes: with a window no more than so many positions a token.
Attended seen_by(const Node& n, const Binding& b, Attended all) {
  const auto window = n.attrs.x.find("window");
  if (!is_paged(n) || window == n.attrs.x.end()) return all;
  const double most = static_cast<double>(b.sizes().size('T')) * window->second;
  return {std::min(all.pairs, most), std::min(all.positions, most)};
}

/// Sizes of the dims of an operand (or, from n.in.size() on, of an output) that the node reads or writes: of an indexed
/// dim as many as there are indices.
double elements_of(const ShardedGraph& s, const Node& n, size_t k, const Box& box, const std::vector<Box>& boxes,
                   const Attended& attended) {
  const bool input = k < n.in.size();
  const Rule::Term& term = input ? n.rule.in[k] : n.rule.out[k - n.in.size()];
  const std::string& dims = s.graph.at(input ? n.in[k] : n.out[k - n.in.size()]).dims;
  double count = 1;
  for (size_t d = 0; d < term.size(); d++) {
    double size = static_cast<double>(box[d].size());
    for (auto& [indices, factor] : n.op->indexes)
      if (term[d].find(factor) != std::string::npos)
        size = std::min(size, static_cast<double>(volume(boxes[static_cast<size_t>(indices)])));
    if (is_paged(n) && dims[d] == 'C') size = std::min(size, attended.positions);
    count *= size;
  }
  return count;
}

}  // namespace

Work& Work::operator+=(const Work& o) {
  f32_flops += o.f32_flops, bf16_flops += o.bf16_flops, int8_flops += o.int8_flops;
  weight_bytes += o.weight_bytes, cache_bytes += o.cache_bytes, other_bytes += o.other_bytes;
  return *this;
}

Work operator*(Work w, double times) {
  for (double* x : {&w.f32_flops, &w.bf16_flops, &w.int8_flops, &w.weight_bytes, &w.cache_bytes, &w.other_bytes})
    *x *= times;
  return w;
}

double flops_of(const ShardedGraph& s, i64 node, const Binding& b, const Coords* at, const Attended& attended) {
  const Node& n = s.graph.nodes[static_cast<size_t>(node)];
  const auto& cuts = s.cuts[static_cast<size_t>(node)];
  double points = n.op->flops_per_point;
  std::string seen;
  auto term = [&](const Rule::Term& t, const std::string& dims) {
    for (size_t d = 0; d < t.size(); d++) {
      if (seen.find_first_of(t[d]) != std::string::npos) continue;
      seen += t[d];
      if (std::ranges::any_of(n.op->indexes, [&](auto& x) { return t[d].find(x.second) != std::string::npos; }))
        continue;                                     // of an indexed dim one place counts
      if (is_paged(n) && is_slot(dims[d])) continue;  // pairs stand for them, and for T
      const auto whole = static_cast<double>(b.sizes().size(dims[d]));
      double size = whole;
      if (at != nullptr)
        size = static_cast<double>(b.range(dims[d], group_uses(n, cuts, t[d], dims[d], s.plan), *at).size());
      points *= is_paged(n) && dims[d] == 'T' ? size / whole : size;
    }
  };
  for (size_t k = 0; k < n.in.size(); k++) term(n.rule.in[k], s.graph.at(n.in[k]).dims);
  for (size_t k = 0; k < n.out.size(); k++) term(n.rule.out[k], s.graph.at(n.out[k]).dims);
  return is_paged(n) ? points * seen_by(n, b, attended).pairs : points;
}

Work work_of(const Program& p, std::span<const Call> calls, const Binding& b, const Attended& attended) {
  const ShardedGraph& s = *p.sharded;
  const Coords at = b.mesh().coords(p.rank);
  Work w;
  std::set<ValueId> counted;
  for (const Call& c : calls) {
    auto box = [&](ValueId v) { return b.box(s.of(v), s.logical(v).dims, p.rank); };
    if (c.kind != Call::Kind::kernel) {
      for (i64 i : c.steps())
        if (c.kind == Call::Kind::start)
          w.other_bytes +=
              static_cast<double>(bytes_of(s.logical(p.step(i).source).dtype, volume(box(p.step(i).source))));
      continue;
    }
    const Step& st = p.step(c);
    const Node& n = p.node(c);
    if (n.op->name == "read") continue;  // the host reads where it lies
    const double flops = flops_of(s, st.node, b, &at, attended);
    const DType weight = n.in.size() > 1 ? s.graph.at(n.in[1]).dtype : DType::f32;
    const bool product = n.op->name == "matmul";
    if (product && is_quantized(weight))
      w.int8_flops += flops;
    else if (product && weight == DType::bf16)
      w.bf16_flops += flops;
    else if (is_paged(n) && weight == DType::bf16)
      w.bf16_flops += flops / 2, w.f32_flops += flops / 2;  // scores; probabilities are f32
    else
      w.f32_flops += flops;

    std::vector<ValueId> values(st.in);
    values.insert(values.end(), n.out.begin(), n.out.end());
    std::vector<Box> boxes;
    for (ValueId v : values) boxes.push_back(box(v));
    for (size_t k = 0; k < values.size(); k++) {
      const ValueId v = values[k];
      const bool overwrites = k >= n.in.size() && !n.attrs.alias.empty();
      if (!counted.insert(v).second) continue;
      if (k < n.in.size() && !n.attrs.alias.empty() &&
          s.graph.named.at(n.attrs.alias) == s.origin[static_cast<size_t>(v)])
        continue;  // a cache is written, not read
      const Value& x = s.logical(v);
      const bool cache = overwrites || (is_paged(n) && x.dims.find('C') != std::string::npos);
      const DTypeInfo& t = info(x.dtype);
      const double bytes = elements_of(s, n, k, boxes[k], boxes, seen_by(n, b, attended)) *
                           static_cast<double>(t.block_bytes) / static_cast<double>(t.block);
      (cache ? w.cache_bytes : x.kind == Kind::state ? w.weight_bytes : w.other_bytes) += bytes;
    }
  }
  return w;
}

}  // namespace plait
