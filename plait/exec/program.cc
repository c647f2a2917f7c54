#include "plait/exec/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "plait/exec/buckets.h"

namespace plait {

namespace {

bool holds(const Placement& p, const Coords& at) {
  bool h = true;
  for (size_t a = 0; a < p.size(); a++) h &= p[a].holders.has(at[a]);
  return h;
}

/// Is this rank a holder before or after, or in the group of one that is?
bool takes_part(const ShardedGraph& s, const Step& st, const Coords& at) {
  const Placement &have = s.of(st.source), &want = s.of(st.value);
  auto moved = axes_moved(have, want);
  for (size_t a = 0; a < at.size(); a++)
    if (!moved[a] && !(have[a].holders.has(at[a]) || want[a].holders.has(at[a]))) return false;
  return true;
}

bool runs(const ShardedGraph& s, const Step& st, const Coords& at) {
  if (st.node < 0) return takes_part(s, st, at);
  const Node& n = s.graph.nodes[static_cast<size_t>(st.node)];
  return holds(s.of(n.out[0]), at);
}

std::vector<ValueId> reads(const Step& st) { return st.node < 0 ? std::vector<ValueId>{st.source} : st.in; }

std::vector<ValueId> writes(const ShardedGraph& s, const Step& st) {
  if (st.node < 0) return {st.value};
  return s.graph.nodes[static_cast<size_t>(st.node)].out;
}

/// By step: its bucket; none for steps that go alone.
std::map<i64, const std::vector<i64>*> by_step(const std::vector<std::vector<i64>>& buckets) {
  std::map<i64, const std::vector<i64>*> all;
  for (auto& bucket : buckets)
    for (i64 i : bucket) all[i] = &bucket;
  return all;
}

}  // namespace

std::vector<ValueId> Program::makes(const Call& c) const {
  if (c.kind == Call::Kind::kernel) return node(c).out;
  std::vector<ValueId> values;
  for (i64 i : c.steps())
    if (c.kind == Call::Kind::wait) values.push_back(step(i).value);
  return values;
}

std::string Program::label(const Call& c) const {
  const Step& st = step(c);
  if (st.node < 0) return sharded->logical(st.source).name;
  const Node& n = node(c);
  return n.attrs.label.empty() ? n.op->name : n.attrs.label;
}

Program partition(std::shared_ptr<const ShardedGraph> sharded, i64 rank) {
  const ShardedGraph& s = *sharded;
  Program p{sharded, rank, {}};
  const Coords at = s.plan.mesh().coords(rank);
  // Waits stand where the steps are. Starts stand in the same order, each as early as its operand is made, the start
  // before it stands, and no more than kInFlight operations are under way.
  constexpr i64 kInFlight = 3;
  const auto buckets = find_buckets(s);
  const auto bucket_of = by_step(buckets);
  auto call = [&](Call::Kind kind, i64 i) {
    auto it = bucket_of.find(i);
    return Call{kind, i, it == bucket_of.end() ? std::vector<i64>{} : *it->second};
  };
  auto follows = [&](i64 i) {  // another step of its bucket stands for it
    auto it = bucket_of.find(i);
    return it != bucket_of.end() && it->second->front() != i;
  };
  std::map<ValueId, i64> made_at;  // step
  std::vector<i64> reshards;
  for (size_t i = 0; i < s.steps.size(); i++) {
    for (ValueId v : writes(s, s.steps[i])) made_at[v] = static_cast<i64>(i);
    if (s.steps[i].node < 0 && runs(s, s.steps[i], at) && !follows(static_cast<i64>(i)))
      reshards.push_back(static_cast<i64>(i));
  }
  std::map<i64, std::vector<i64>> starts_after;  // step (-1: at once) -> reshards
  i64 earliest = -1;
  for (size_t k = 0; k < reshards.size(); k++) {
    const Call c = call(Call::Kind::start, reshards[k]);
    for (i64 i : c.steps()) {
      auto made = made_at.find(p.step(i).source);
      if (made != made_at.end()) earliest = std::max(earliest, made->second);
    }
    if (k >= kInFlight) earliest = std::max(earliest, reshards[k - kInFlight]);
    starts_after[earliest].push_back(reshards[k]);
  }
  auto start = [&](i64 after) {
    for (i64 i : starts_after[after]) p.calls.push_back(call(Call::Kind::start, i));
  };
  start(-1);
  for (size_t i = 0; i < s.steps.size(); i++) {
    const Step& st = s.steps[i];
    const auto index = static_cast<i64>(i);
    if (runs(s, st, at) && !follows(index))
      p.calls.push_back(call(st.node < 0 ? Call::Kind::wait : Call::Kind::kernel, index));
    start(index);
  }
  p.verify();
  return p;
}

void Program::verify() const {
  const ShardedGraph& s = *sharded;
  const Coords at = s.plan.mesh().coords(rank);
  std::set<ValueId> ready;
  for (auto& [name, v] : s.graph.named) ready.insert(v);
  const auto buckets = find_buckets(s);
  const auto bucket_of = by_step(buckets);
  std::set<i64> started, done;
  for (auto& c : calls) {
    if (c.step < 0 || c.step >= static_cast<i64>(s.steps.size()))
      fail(Code::bad_file, "program: call of step {}, which is not there", c.step);
    const std::string where = "program: " + label(c);
    if ((c.kind == Call::Kind::kernel) != (step(c).node >= 0))
      fail(Code::bad_file, "{}: a call of another kind than its step", where);
    auto b = bucket_of.find(c.step);
    if (c.bucket != (b == bucket_of.end() ? std::vector<i64>{} : *b->second) || c.steps()[0] != c.step)
      fail(Code::bad_file, "{}: another bucket than the sharded graph gives", where);
    for (i64 i : c.steps()) {
      const Step& st = step(i);
      if (c.kind != Call::Kind::wait)
        for (ValueId v : reads(st))
          if (ready.count(v) == 0 && holds(s.of(v), at))
            fail(Code::bad_file, "{}: reads %{} before it is made", where, v);
      if (c.kind == Call::Kind::start && !started.insert(i).second) fail(Code::bad_file, "{}: started twice", where);
      if (c.kind == Call::Kind::start) continue;
      if (c.kind == Call::Kind::wait && started.count(i) == 0)
        fail(Code::bad_file, "{}: waits for what was not started", where);
      if (!done.insert(i).second) fail(Code::bad_file, "{}: runs twice", where);
      for (ValueId v : writes(s, st)) ready.insert(v);
    }
  }
  for (i64 i : started)
    if (done.count(i) == 0) fail(Code::bad_file, "program: step {} is started and never waited for", i);
}

std::string Program::text() const {
  const ShardedGraph& s = *sharded;
  std::string out = fmt::format("program rank {} # {}\n", rank, s.plan.mesh().describe(rank));
  Sizes sizes = static_sizes(s.graph);
  Binding b(s.plan, sizes);
  auto show = [&](ValueId v) {
    std::string t = fmt::format("%{}[", v);
    Coords at = b.mesh().coords(rank);
    const std::string& dims = s.logical(v).dims;
    for (size_t d = 0; d < dims.size(); d++) {
      auto uses = Binding::uses(s.of(v), static_cast<i64>(d));
      bool known = sizes.knows(dims[d]);
      for (auto& u : uses) known &= sizes.knows(u.by == 'S' ? 'T' : u.by);
      t += (d > 0 ? " " : "") + std::string(1, dims[d]);
      if (known && !uses.empty()) t += "=" + to_string(b.range(dims[d], uses, at));
      if (!known && !uses.empty()) t += "/";
    }
    return t + "]";
  };
  for (auto& c : calls) {
    const Step& st = step(c);
    if (c.kind == Call::Kind::kernel) {
      const Node& n = node(c);
      std::string outs, ins;
      for (ValueId v : n.out) outs += (outs.empty() ? "" : ", ") + show(v);
      for (ValueId v : st.in) ins += (ins.empty() ? "" : ", ") + show(v);
      out += fmt::format("{:>5} kernel {} = {}({}) # {}\n", c.step, outs, n.op->name, ins, label(c));
      continue;
    }
    std::string moved, made, causes;
    for (i64 i : c.steps()) {
      const std::string comma = moved.empty() ? "" : ", ";
      moved += comma + show(step(i).source);
      made += comma + show(step(i).value);
      causes += comma + s.logical(step(i).source).name;
    }
    const std::string bucket = c.bucket.empty() ? "" : fmt::format("{{{}}} ", fmt::join(c.bucket, " "));
    if (c.kind == Call::Kind::wait)
      out += fmt::format("{:>5} wait   {}{} # {}\n", c.step, bucket, made, causes);
    else
      out += fmt::format("{:>5} start  {}{} -> {} {}{} # {}\n", c.step, bucket, moved, made,
                         to_string(recognise(s.of(st.source), s.of(st.value), s.logical(st.source).dims, b), s.plan),
                         c.bucket.empty() ? "" : " in place", c.bucket.empty() ? st.cause : causes);
  }
  return out + "of\n" + s.text();
}

Program Program::parse(std::string_view text) {
  constexpr size_t kMostCalls = 1 << 17;
  Program p;
  i64 line_number = 0;
  auto next = [&]() -> std::string_view {
    auto n = text.find('\n');
    if (n == std::string_view::npos)
      fail(Code::bad_file, "program line {}: the text ends before 'of' and the sharded graph", line_number + 1);
    std::string_view line = text.substr(0, n);
    text.remove_prefix(n + 1);
    line_number++;
    return line;
  };
  auto number = [&](std::string_view& s) {
    while (!s.empty() && s[0] == ' ') s.remove_prefix(1);
    i64 v = -1;
    auto [q, e] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (e != std::errc{} || v < 0)
      fail(Code::bad_file, "program line {}: got '{}', want a number", line_number, s.substr(0, 20));
    s.remove_prefix(static_cast<size_t>(q - s.data()));
    return v;
  };
  std::string_view head = next();
  constexpr std::string_view kHead = "program rank";
  if (head.substr(0, kHead.size()) != kHead)
    fail(Code::bad_file, "program line 1: got '{}', want 'program rank N'", head.substr(0, 40));
  head.remove_prefix(kHead.size());
  p.rank = number(head);
  for (std::string_view line = next(); line != "of"; line = next()) {
    if (p.calls.size() == kMostCalls)
      fail(Code::bad_file, "program line {}: got more calls, want at most {}", line_number, kMostCalls);
    Call c;
    c.step = number(line);
    std::string_view kind = line.substr(0, std::min<size_t>(line.size(), 7));
    if (kind == " kernel")
      c.kind = Call::Kind::kernel;
    else if (kind == " start ")
      c.kind = Call::Kind::start;
    else if (kind == " wait  ")
      c.kind = Call::Kind::wait;
    else
      fail(Code::bad_file, "program line {}: got '{}', want kernel, start or wait", line_number, kind);
    line.remove_prefix(7);
    if (c.kind != Call::Kind::kernel && line.substr(0, 2) == " {")
      for (line.remove_prefix(2); !line.empty() && line[0] != '}';) c.bucket.push_back(number(line));
    p.calls.push_back(std::move(c));
  }
  p.sharded = std::make_shared<ShardedGraph>(ShardedGraph::parse(text));
  if (p.rank >= p.sharded->plan.world())
    fail(Code::bad_file, "program: rank {} of a plan for {} ranks", p.rank, p.sharded->plan.world());
  p.verify();
  return p;
}

}  // namespace plait
