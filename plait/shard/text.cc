// The text form of a ShardedGraph: the plan, the graph, then where each named value lies and the steps.
#include <algorithm>
#include <charconv>

#include "plait/shard/shard.h"

namespace plait {

namespace {
constexpr i64 kMostSteps = 1 << 16;
constexpr i64 kMostWork = 1 << 22;  // steps x ranks that are verified when a text is read
constexpr std::string_view kGraph = "== graph\n", kSteps = "== steps\n";

std::string show_cuts(const std::vector<Cut>& cuts, const Plan& plan) {
  std::string s;
  for (size_t a = 0; a < cuts.size(); a++) {
    if (cuts[a].group.empty() && cuts[a].holders.all()) continue;
    s += fmt::format(" {}={}{}{}", plan.axes[a].name,
                     cuts[a].group.empty() ? "-" : fmt::format("{}({})", cuts[a].name, cuts[a].group),
                     cuts[a].contracted ? "+" : "", cuts[a].holders.all() ? "" : "@" + cuts[a].holders.text());
  }
  return s;
}
}  // namespace

std::string ShardedGraph::text() const {
  Sizes sizes = static_sizes(graph);
  Binding b(plan, sizes);
  std::string s = "sharded\n" + plan.text() + std::string(kGraph) + graph.text() + std::string(kSteps);
  for (auto& [name, v] : graph.named)
    s += fmt::format("place %{} : {} # {}\n", v, to_string(of(v), plan, logical(v).dims), name);
  for (auto& st : steps) {
    if (st.node < 0) {
      s += fmt::format("reshard %{} = %{} : {} # {} because {}\n", st.value, st.source,
                       to_string(of(st.value), plan, logical(st.value).dims),
                       to_string(recognise(of(st.source), of(st.value), logical(st.source).dims, b), plan), st.cause);
      continue;
    }
    const Node& n = graph.nodes[static_cast<size_t>(st.node)];
    std::string in, out;
    for (ValueId v : st.in) in += fmt::format(" %{}", v);
    for (ValueId v : n.out) out += fmt::format(" ; %{} : {}", v, to_string(of(v), plan, graph.at(v).dims));
    s += fmt::format("node {} cut{} of{}{} # {} {}\n", st.node, show_cuts(cuts[static_cast<size_t>(st.node)], plan), in,
                     out, n.op->name, n.attrs.label);
  }
  return s;
}

namespace {

/// One line of the steps section, consumed from the left.
struct Line {
  std::string_view rest;
  i64 number;
  [[noreturn]] void bad(std::string_view want) const {
    fail(Code::bad_file, "sharded line {}: got '{}', want {}", number, rest.substr(0, 40), want);
  }
  bool take(std::string_view word) {
    if (rest.substr(0, word.size()) != word) return false;
    rest.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) bad(fmt::format("'{}'", word));
  }
  i64 integer(i64 below) {
    i64 v = -1;
    auto [q, e] = std::from_chars(rest.data(), rest.data() + rest.size(), v);
    if (e != std::errc{} || v < 0 || v >= below) bad(fmt::format("a number below {}", below));
    rest.remove_prefix(static_cast<size_t>(q - rest.data()));
    return v;
  }
  std::string_view until(std::string_view stop) {
    auto n = std::min(rest.find(stop), rest.size());
    auto word = rest.substr(0, n);
    rest.remove_prefix(n);
    return word;
  }
};

std::vector<Cut> parse_cuts(Line& line, const Plan& plan, const Node& n) {
  std::vector<Cut> cuts(plan.axes.size());
  while (line.take(" ")) {
    if (line.take("of")) return cuts;
    auto name = line.until("=");
    size_t a = 0;
    while (a < plan.axes.size() && plan.axes[a].name != name) a++;
    if (a == plan.axes.size()) fail(Code::bad_file, "sharded line {}: no axis '{}'", line.number, name.substr(0, 40));
    line.expect("=");
    if (!line.take("-")) {
      if (line.rest.empty()) line.bad("a dim");
      cuts[a].name = line.rest[0];
      line.rest.remove_prefix(1);
      line.expect("(");
      cuts[a].group = std::string(line.until(")"));
      line.expect(")");
      auto groups = n.rule.groups();
      if (std::find(groups.begin(), groups.end(), cuts[a].group) == groups.end())
        fail(Code::bad_file, "sharded line {}: no factor group '{}' in \"{}\"", line.number, cuts[a].group,
             to_string(n.rule));
      cuts[a].contracted = line.take("+");
    }
    if (line.take("@")) cuts[a].holders = Holders::parse(line.until(" "));
  }
  line.bad("' of' and the operands");
}

}  // namespace

ShardedGraph ShardedGraph::parse(std::string_view text) {
  constexpr std::string_view kHead = "sharded\n";
  auto g = text.find(kGraph), st = text.find(kSteps);
  if (text.substr(0, kHead.size()) != kHead || g == std::string_view::npos || st == std::string_view::npos || st < g)
    fail(Code::bad_file, "sharded line 1: want 'sharded', the plan, '== graph', the graph, '== steps', the steps");
  ShardedGraph s;
  s.plan = Plan::parse(text.substr(kHead.size(), g - kHead.size()), "sharded: plan");
  s.graph = Graph::parse(text.substr(g + kGraph.size(), st - g - kGraph.size()));
  s.placement.resize(s.graph.values.size(), Placement(s.plan.axes.size()));
  for (size_t v = 0; v < s.graph.values.size(); v++) s.origin.push_back(static_cast<ValueId>(v));
  s.cuts.resize(s.graph.nodes.size(), std::vector<Cut>(s.plan.axes.size()));
  i64 number = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(st), '\n') + 1;
  std::string_view body = text.substr(st + kSteps.size());
  auto id = [&](Line& line) {
    line.expect("%");
    return line.integer(static_cast<i64>(s.placement.size()));
  };
  while (!body.empty()) {
    auto n = std::min(body.find('\n'), body.size());
    const i64 most = std::min(kMostSteps, kMostWork / s.plan.world());
    if (static_cast<i64>(s.steps.size()) == most)
      fail(Code::bad_file, "sharded line {}: got more steps, want at most {} on {} ranks", number + 1, most,
           s.plan.world());
    Line line{body.substr(0, n), ++number};
    body.remove_prefix(std::min(n + 1, body.size()));
    if (line.take("place ")) {
      ValueId v = id(line);
      line.expect(" : ");
      s.placement[static_cast<size_t>(v)] = parse_placement(line.until(" #"), s.plan, s.logical(v).dims);
    } else if (line.take("reshard ")) {
      line.expect("%");
      Step r;
      r.value = line.integer(static_cast<i64>(s.placement.size()) + 1);
      if (r.value != static_cast<ValueId>(s.placement.size()))
        line.bad(fmt::format("%{}, the next value", s.placement.size()));
      line.expect(" = ");
      r.source = id(line);
      line.expect(" : ");
      s.origin.push_back(s.origin[static_cast<size_t>(r.source)]);
      s.placement.push_back(parse_placement(line.until(" #"), s.plan, s.logical(r.source).dims));
      line.until(" because ");
      line.expect(" because ");
      r.cause = std::string(line.rest);
      s.steps.push_back(std::move(r));
    } else {
      line.expect("node ");
      Step step;
      step.node = line.integer(static_cast<i64>(s.graph.nodes.size()));
      const Node& node = s.graph.nodes[static_cast<size_t>(step.node)];
      line.expect(" cut");
      s.cuts[static_cast<size_t>(step.node)] = parse_cuts(line, s.plan, node);
      while (line.take(" %")) step.in.push_back(line.integer(static_cast<i64>(s.placement.size())));
      while (line.take(" ; ")) {
        ValueId v = id(line);
        line.expect(" : ");
        auto stop = std::min(line.rest.find(" ;"), line.rest.find(" #"));
        s.placement[static_cast<size_t>(v)] = parse_placement(line.rest.substr(0, stop), s.plan, s.logical(v).dims);
        line.rest.remove_prefix(std::min(stop, line.rest.size()));
      }
      s.steps.push_back(std::move(step));
    }
  }
  try {
    s.verify();
  } catch (const Error& e) { fail(Code::bad_file, "sharded: {}", e.what()); }
  return s;
}

}  // namespace plait
