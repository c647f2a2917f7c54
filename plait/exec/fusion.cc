#include "plait/exec/fusion.h"

#include <set>

#include "plait/kernels/cpu/fused.h"

namespace plait {

namespace {

using Prepare = Result<kernels::Run> (*)(std::span<const kernels::Args>, kernels::Isa);

/// A preparation for the chosen instruction set.
template <Prepare kPrepare>
Result<kernels::Run> chosen(std::span<const kernels::Args> members) {
  return kPrepare(members, kernels::isa());
}

constexpr auto kProducts = chosen<kernels::prepare_products>;
constexpr auto kActivation = chosen<kernels::prepare_activation>;
constexpr auto kSumNorm = chosen<kernels::prepare_sum_norm>;

// Longer runs stand before their beginnings.
constexpr Fusion kTable[] = {
    {"qkv + rope + kv_write",
     "q = matmul(x, _); qr = rope(q, p); k = matmul(x, _); kr = rope(k, p); v = matmul(x, _); "
     "_ = kv_write(_, kr, s); _ = kv_write(_, v, s)",
     "", kProducts},
    {"qkv + norm + rope + kv_write",
     "q = matmul(x, _); qn = head_rms_norm(q, _); qr = rope(qn, p); k = matmul(x, _); kn = head_rms_norm(k, _); "
     "kr = rope(kn, p); v = matmul(x, _); _ = kv_write(_, kr, s); _ = kv_write(_, v, s)",
     "", kProducts},
    {"qkv + bias + rope + kv_write",
     "q = matmul(x, _); qb = bias(q, _); qr = rope(qb, p); k = matmul(x, _); kb = bias(k, _); kr = rope(kb, p); "
     "v = matmul(x, _); vb = bias(v, _); _ = kv_write(_, kr, s); _ = kv_write(_, vb, s)",
     "", kProducts},
    {"qkv + bias + kv_write",
     "q = matmul(x, _); qb = bias(q, _); k = matmul(x, _); kb = bias(k, _); v = matmul(x, _); vb = bias(v, _); "
     "_ = kv_write(_, kb, s); _ = kv_write(_, vb, s)",
     "", kProducts},
    {"qkv + rope", "q = matmul(x, _); _ = rope(q, p); k = matmul(x, _); _ = rope(k, p); _ = matmul(x, _)", "",
     kProducts},
    {"gate + up + silu_mul", "g = matmul(x, _); u = matmul(x, _); _ = silu_mul(g, u)", "", kActivation},
    {"gate + up + gelu_mul", "g = matmul(x, _); u = matmul(x, _); _ = gelu_mul(g, u)", "", kActivation},
    {"up + bias + gelu", "u = matmul(x, _); b = bias(u, _); _ = gelu(b)", "u b", kActivation},
    {"finish + bias + add + layer_norm", "f = finish(_); b = bias(f, _); x = add(_, b); _ = layer_norm(x, _, _)", "f b",
     kSumNorm},
    {"finish + bias + add", "f = finish(_); b = bias(f, _); _ = add(_, b)", "f b", kSumNorm},
    {"finish + rms_norm + add + rms_norm", "f = finish(_); n = rms_norm(f, _); x = add(_, n); _ = rms_norm(x, _)",
     "f n", kSumNorm},
    {"finish + rms_norm + add", "f = finish(_); n = rms_norm(f, _); _ = add(_, n)", "f n", kSumNorm},
    {"finish + add + rms_norm", "f = finish(_); x = add(_, f); _ = rms_norm(x, _)", "f", kSumNorm},
    {"finish + add", "f = finish(_); _ = add(_, f)", "f", kSumNorm},
    {"add + layer_norm", "x = add(_, _); _ = layer_norm(x, _, _)", "", kSumNorm},
};

/// A call of a pattern: results and operands are names, 0 for any value.
struct Member {
  std::string op;
  std::vector<int> out, in;
};
struct Pattern {
  const Fusion* fusion;
  std::vector<Member> members;
  std::set<int> unwritten;
};

Pattern parse(const Fusion& f) {
  std::map<std::string, int> names{{"_", 0}};
  auto number = [&](const std::string& name) {
    return names.try_emplace(name, static_cast<int>(names.size())).first->second;
  };
  Pattern p{&f, {}, {}};
  Member m;
  std::string word;
  auto take = [&] { return std::exchange(word, ""); };
  for (char c : std::string_view(f.calls)) {
    if (c == '=')
      m.out.push_back(number(take()));
    else if (c == '(')
      m.op = take();
    else if (c == ',' || c == ')')
      m.in.push_back(number(take()));
    else if (c == ';')
      p.members.push_back(std::exchange(m, {}));
    else if (c != ' ')
      word += c;
  }
  p.members.push_back(std::move(m));
  for (char c : std::string(f.unwritten) + " ") {
    if (c != ' ')
      word += c;
    else if (!word.empty())
      p.unwritten.insert(number(take()));
  }
  return p;
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> kPatterns = [] {
    std::vector<Pattern> all;
    for (const Fusion& f : kTable) all.push_back(parse(f));
    return all;
  }();
  return kPatterns;
}

/// How often each value is read by calls of the program.
std::vector<i64> reads_of(const Program& p) {
  std::vector<i64> reads(p.sharded->placement.size());
  for (auto& c : p.calls) {
    if (c.kind == Call::Kind::wait) continue;
    for (i64 i : c.steps())
      if (c.kind == Call::Kind::start) reads[static_cast<size_t>(p.step(i).source)]++;
    if (c.kind == Call::Kind::kernel)
      for (ValueId v : p.step(c).in) reads[static_cast<size_t>(v)]++;
  }
  return reads;
}

bool matches(const Program& p, size_t first, const Pattern& pattern, const std::vector<i64>& reads) {
  if (first + pattern.members.size() > p.calls.size()) return false;
  std::map<int, ValueId> bound;
  std::map<ValueId, i64> inside;  // reads by members
  auto same = [&](int name, ValueId v) { return name == 0 || bound.try_emplace(name, v).first->second == v; };
  for (size_t i = 0; i < pattern.members.size(); i++) {
    const Call& c = p.calls[first + i];
    const Member& m = pattern.members[i];
    if (c.kind != Call::Kind::kernel || p.node(c).op->name != m.op) return false;
    const std::vector<ValueId>&in = p.step(c).in, &out = p.node(c).out;
    if (m.in.size() > in.size() || m.out.size() > out.size()) return false;
    for (size_t k = 0; k < m.in.size(); k++)
      if (!same(m.in[k], in[k])) return false;
    for (size_t k = 0; k < m.out.size(); k++)
      if (!same(m.out[k], out[k])) return false;
    for (ValueId v : in) inside[v]++;
  }
  for (int name : pattern.unwritten)
    if (ValueId v = bound.at(name); reads[static_cast<size_t>(v)] != inside[v]) return false;
  return true;
}

}  // namespace

std::span<const Fusion> fusion_table() { return kTable; }

std::vector<Window> find_fusions(const Program& p) {
  const std::vector<i64> reads = reads_of(p);
  std::vector<Window> found;
  for (size_t i = 0; i < p.calls.size();) {
    size_t count = 0;
    for (auto& pattern : patterns())
      if (count == 0 && matches(p, i, pattern, reads)) {
        count = pattern.members.size();
        found.push_back({pattern.fusion, static_cast<i64>(i), static_cast<i64>(count)});
      }
    i += std::max<size_t>(count, 1);
  }
  return found;
}

}  // namespace plait
