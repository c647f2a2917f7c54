#include <algorithm>
#include <set>

#include "plait/shard/shard.h"

namespace plait {

namespace {

bool has(const std::string& s, char c) { return s.find(c) != std::string::npos; }

/// Does a cut of one group give another a range: by a common factor, or by one that follows it?
bool related(const Op& op, const std::string& cut, const std::string& group) {
  if (cut.empty()) return false;
  for (char c : group) {
    if (has(cut, c)) return true;
    if (auto f = op.follows.find(c); f != op.follows.end() && has(cut, f->second)) return true;
  }
  return false;
}

/// T is cut inside sequences on axes whose unit is the leaf: a follower then needs whole sequences up to its end.
char cut_name(const Op& op, const std::string& group, char dim, const PlanAxis& axis) {
  return dim == 'T' && !axis.data && op.follows.count(group[0]) > 0 ? 'S' : dim;
}

Holders stage_of(const Graph& g, const PlanAxis& axis, i64 layer) {
  for (i64 i = 0; i < axis.size; i++) {
    Range r = split({0, g.layers}, Edges{g.layers, 1, {}}, axis.size, i, axis.weights);
    if (layer >= r.begin && layer < r.end) return Holders({i, i + 1});
  }
  PLAIT_CHECK(false, "layer {} of {} lies on no stage", layer, g.layers);
}

bool cuts_layers(const PlanAxis& a) { return a.dims == "L" && a.size > 1; }

std::vector<Cut> choose(const Graph& g, const Node& n, const Plan& plan) {
  std::vector<Cut> cuts;
  for (auto& axis : plan.axes) {
    Cut c;
    if (cuts_layers(axis) && n.layer >= 0) c.holders = stage_of(g, axis, n.layer);
    if (axis.size == 1 || n.op->all_whole) {
      cuts.push_back(c);
      continue;
    }
    for (char name : axis.dims) {
      auto look = [&](const Rule::Term& t, const std::string& dims) {
        for (size_t d = 0; d < t.size() && c.group.empty(); d++) {
          bool whole = dims[d] != name;
          for (char f : t[d]) whole |= has(n.op->whole, f) || n.op->follows.count(f) > 0;
          if (!whole) {
            c.name = name;
            c.group = t[d];
          }
        }
      };
      for (size_t o = 0; o < n.out.size(); o++) look(n.rule.out[o], g.at(n.out[o]).dims);
      for (size_t i = 0; i < n.in.size(); i++) look(n.rule.in[i], g.at(n.in[i]).dims);
      if (!c.group.empty()) break;
    }
    if (!c.group.empty()) {
      c.contracted = true;
      for (char f : c.group) c.contracted &= !n.rule.in_output(f);
    }
    cuts.push_back(c);
  }
  return cuts;
}

Placement by_names(const Value& v, const Plan& plan, bool input) {
  Placement p(plan.axes.size());
  for (size_t a = 0; a < p.size(); a++) {
    if (plan.axes[a].size == 1 || (input && !plan.axes[a].data)) continue;
    for (char c : plan.axes[a].dims)
      if (auto d = v.dims.find(c); d != std::string::npos) {
        p[a].dim = static_cast<i64>(d);
        p[a].by = c;
        break;
      }
  }
  return p;
}

/// A reshard between these keeps no more memory than its source does: parts are joined, nothing is gathered.
bool as_large(const Placement& have, const Placement& want) {
  for (size_t a = 0; a < have.size(); a++)
    if (have[a].dim != want[a].dim || have[a].by != want[a].by) return false;
  return true;
}

bool sums_stay(const Graph& g, const Node& n) {
  return n.op->takes_sums && !n.in.empty() && g.at(n.out[0]).type == Type::sum && g.at(n.in.back()).type == Type::sum;
}

/// Builds the steps; one object a call of propagate.
struct Propagation {
  ShardedGraph s;
  const PropagateOptions& options;
  Sizes sizes;
  Binding binding;
  std::map<std::pair<ValueId, bool>, std::vector<ValueId>> versions;  // reshards of a value, forward and backward apart
  std::set<ValueId> placed;

  Propagation(Graph g, const Plan& plan, const PropagateOptions& o)
      : s{std::move(g), plan, {}, {}, {}, {}}, options(o), sizes(static_sizes(s.graph)), binding(s.plan, sizes) {
    s.placement.resize(s.graph.values.size());
    for (size_t v = 0; v < s.placement.size(); v++) s.origin.push_back(static_cast<ValueId>(v));
  }

  const std::string& dims(ValueId v) const { return s.logical(v).dims; }
  Placement& at(ValueId v) { return s.placement[static_cast<size_t>(v)]; }
  std::string show(const Placement& p, ValueId v) const { return to_string(p, s.plan, dims(v)); }

  void remember_state(ValueId v) {
    placed.insert(v);
    if (options.states != nullptr) options.states->emplace(s.graph.at(v).name, at(v));
  }

  void place_named() {
    const Graph& g = s.graph;
    std::set<std::string> in_place;  // states whose writer says where they lie (caches)
    for (auto& n : g.nodes)
      if (!n.attrs.alias.empty() && !n.op->elementwise) in_place.insert(n.attrs.alias);
    for (auto& [name, v] : g.named) {
      const Value& x = g.at(v);
      const bool state = x.kind == Kind::state;
      const Plan& plan = state && options.stored != nullptr ? *options.stored : s.plan;
      if (state && options.states != nullptr && options.states->count(name) > 0) {
        at(v) = options.states->at(name);
      } else if (in_place.count(name) > 0 ||
                 (x.type == Type::sum && !(options.stored != nullptr && options.stored->store_sums))) {
        continue;  // placed by the node that writes it
      } else {
        at(v) = by_names(x, plan, !state);
        for (size_t a = 0; state && a < s.plan.axes.size(); a++)
          if (cuts_layers(s.plan.axes[a])) {  // a weight lives on the stages that use it
            Holders h = Holders::none();
            bool used = false;
            for (auto& n : g.nodes)
              if (n.layer >= 0 && std::find(n.in.begin(), n.in.end(), v) != n.in.end()) {
                h = h | stage_of(g, s.plan.axes[a], n.layer);
                used = true;
              }
            if (used) at(v)[a].holders = h;
          }
      }
      if (state)
        remember_state(v);
      else
        placed.insert(v);
    }
  }

  ValueId add_reshard(ValueId from, const Placement& want, std::string cause) {
    Step r;
    r.source = from;
    r.value = static_cast<ValueId>(s.placement.size());
    r.cause = std::move(cause);
    s.placement.push_back(want);
    s.origin.push_back(s.origin[static_cast<size_t>(from)]);
    s.steps.push_back(r);
    return r.value;
  }

  /// The value, or a reshard of it, that covers what a node wants.
  ValueId version(ValueId v, const Placement& want, const Node& n) {
    if (covers(at(v), want, dims(v), binding)) return v;
    auto& made = versions[{v, n.backward}];
    for (ValueId r : made)
      if (covers(at(r), want, dims(v), binding)) return r;
    if (n.backward)
      for (ValueId r : versions[{v, false}])
        if (as_large(at(v), at(r)) && covers(at(r), want, dims(v), binding)) return r;
    const Value& x = s.graph.at(v);
    std::string cause = fmt::format(
        "{} ({}) wants {}; {} {}", n.op->name, n.attrs.label, show(want, v),
        x.node >= 0 ? s.graph.nodes[static_cast<size_t>(x.node)].op->name + " made" : "given", show(at(v), v));
    if (options.strict) {
      auto c = recognise(at(v), want, dims(v), binding);
      for (auto& k : c)
        if (k.op == "shift" || k.op == "all_to_all" || k.op == "sum_gather")
          fail(Code::usage, "--strict: {} of {} [{}], which the plan does not ask for: {}", to_string(c, s.plan),
               x.name, x.dims, cause);
    }
    made.push_back(add_reshard(v, want, std::move(cause)));
    return made.back();
  }

  /// Sums that are added stay sums; a complete value joins a sum as its owner's. An accumulator decides for what comes.
  void add_sums_step(const Node& n, Step& step) {
    Placement to = at(n.in[0]);
    const bool first_decides = !n.attrs.alias.empty();
    for (ValueId v : n.in)
      for (size_t a = 0; a < to.size() && !first_decides; a++) {
        const AxisPlace y = at(v)[a];
        if (to[a] == y) continue;
        if (to[a].dim != y.dim && to[a].dim >= 0 && y.dim >= 0)
          fail(Code::usage, "{} ({}): sums cut differently meet", n.op->name, n.attrs.label);
        AxisPlace sum;
        sum.join = Joined::sum;
        sum.holders = to[a].holders | y.holders;
        to[a] = sum;
      }
    for (ValueId v : n.in) {
      if (at(v) == to)
        step.in.push_back(v);
      else
        step.in.push_back(add_reshard(
            v, to, fmt::format("{} ({}) adds {} to {}", n.op->name, n.attrs.label, show(at(v), v), show(to, v))));
    }
    for (ValueId v : n.out) at(v) = to;
  }

  void visit(i64 index) {
    const Node& n = s.graph.nodes[static_cast<size_t>(index)];
    auto cuts = choose(s.graph, n, s.plan);
    Step step;
    step.node = index;
    for (ValueId v : n.in)
      if (s.graph.at(v).kind == Kind::state &&
          placed.count(v) == 0) {  // placed by its writer, or as what is added to it
        at(v) = n.attrs.alias == s.graph.at(v).name && !n.op->elementwise
                    ? place(s.graph, n, s.plan, cuts, n.rule.out[0], n.out[0], true)
                    : at(n.in.back());
        at(v) = simplified(at(v), dims(v), binding);
        remember_state(v);
      }
    if (sums_stay(s.graph, n)) {
      cuts.assign(s.plan.axes.size(), {});
      add_sums_step(n, step);
    } else {
      for (size_t x = 0; x < cuts.size(); x++)  // of no layer: where the first operand lives
        if (n.layer < 0 && cuts_layers(s.plan.axes[x]) && !n.in.empty()) cuts[x].holders = at(n.in[0])[x].holders;
      for (size_t k = 0; k < n.in.size(); k++)
        step.in.push_back(version(n.in[k], place(s.graph, n, s.plan, cuts, n.rule.in[k], n.in[k], false), n));
      for (size_t o = 0; o < n.out.size(); o++)
        at(n.out[o]) =
            simplified(place(s.graph, n, s.plan, cuts, n.rule.out[o], n.out[o], true), dims(n.out[o]), binding);
    }
    if (!n.attrs.alias.empty()) {
      ValueId state = s.graph.named.at(n.attrs.alias);
      if (!(at(n.out[0]) == at(state)))
        fail(Code::usage, "{} ({}): makes {} as {}, but the state lies as {}", n.op->name, n.attrs.label, n.attrs.alias,
             show(at(n.out[0]), n.out[0]), show(at(state), state));
    }
    s.cuts.push_back(std::move(cuts));
    s.steps.push_back(std::move(step));
  }
};

}  // namespace

Sizes static_sizes(const Graph& g) {
  Sizes s;
  for (auto& [dim, leaf] : g.dims)
    if (leaf.size > 0) s.dims[dim] = Edges{leaf.size, std::max<i64>(leaf.leaf, 1), {}};
  return s;
}

Placement place(const Graph& g, const Node& n, const Plan& plan, const std::vector<Cut>& cuts, const Rule::Term& term,
                ValueId value, bool output) {
  Placement p(cuts.size());
  const Value& v = g.at(value);
  for (size_t a = 0; a < cuts.size(); a++) {
    const Cut& c = cuts[a];
    p[a].holders = c.holders;
    if (c.group.empty()) continue;
    bool complete = true;  // every factor of the cut is in the value
    for (size_t d = 0; d < term.size(); d++) {
      if (!related(*n.op, c.group, term[d])) continue;
      if (p[a].dim >= 0)
        fail(Code::bad_file, "{} ({}): the cut of {} along axis {} reaches two dims of {}", n.op->name, n.attrs.label,
             c.group, plan.axes[a].name, v.name);
      p[a].dim = static_cast<i64>(d);
      p[a].by = cut_name(*n.op, term[d], v.dims[d], plan.axes[a]);
      p[a].owned = c.contracted && !output && (p[a].by == 'K' || p[a].by == 'S');  // the cuts that may overlap
      for (char f : c.group) {
        bool in = false;
        for (char x : term[d]) in |= x == f || (n.op->follows.count(x) > 0 && n.op->follows.at(x) == f);
        complete &= in;
      }
      complete &= p[a].by != 'S';
    }
    if (!output || (p[a].dim >= 0 && complete)) continue;
    // Part of the cut factor is summed away: the type says how, and that there are leaves to cut between.
    if (v.type == Type::max) {
      p[a].join = Joined::max;
    } else if (v.type == Type::num && n.op->one_owner) {
      p[a].join = Joined::one;
    } else if (v.type == Type::sum && (n.op->element_leaves || g.has_leaves(c.name))) {
      p[a].join = Joined::sum;
    } else {
      fail(Code::usage,
           "plan: axis {} cuts {}, which {} ({}) sums inside one leaf, so the sum would not be exact; take {} off the "
           "axis or give it leaves",
           plan.axes[a].name, c.name, n.op->name, n.attrs.label, c.name);
    }
  }
  return p;
}

std::vector<Binding::Use> group_uses(const Node& n, const std::vector<Cut>& cuts, const std::string& group, char dim,
                                     const Plan& plan) {
  std::vector<Binding::Use> u;
  for (size_t a = 0; a < cuts.size(); a++)
    if (related(*n.op, cuts[a].group, group))
      u.push_back({static_cast<i64>(a), cut_name(*n.op, group, dim, plan.axes[a]), cuts[a].contracted});
  return u;
}

namespace {

/// The ranges of query heads follow those of KV heads or the other way round: both must be there, and fit.
void check_heads(const Graph& g, const Plan& plan) {
  for (auto& axis : plan.axes) {
    const size_t n = axis.dims.find('N'), k = axis.dims.find('K');
    if (axis.size == 1 || n == k) continue;  // neither
    const bool heads_lead = n < k;
    if (g.dims.count(heads_lead ? 'K' : 'N') == 0) continue;
    const i64 N = g.dims.count('N') > 0 ? g.size('N') : 0, K = g.dims.count('K') > 0 ? g.size('K') : 0;
    if (N < 1 || K < 1 || N % K != 0)
      fail(Code::bad_file, "graph {}: axis {} cuts heads, of which there are N {} and K {}; want a multiple", g.name,
           axis.name, N, K);
  }
}

}  // namespace

ShardedGraph propagate(Graph graph, const Plan& plan, const PropagateOptions& options) {
  plan.verify();
  check_heads(graph, plan);
  Propagation p(std::move(graph), plan, options);
  p.place_named();
  for (size_t i = 0; i < p.s.graph.nodes.size(); i++) p.visit(static_cast<i64>(i));
  return std::move(p.s);
}

void ShardedGraph::verify() const {
  check_heads(graph, plan);
  if (auto t = graph.dims.find('T'); t != graph.dims.end() && t->second.size > 0)
    for (auto& axis : plan.axes)
      if (axis.data) fail(Code::bad_file, "axis {} cuts T between sequences, but T has a fixed size", axis.name);
  std::vector<bool> ran(graph.nodes.size());
  Sizes sizes = static_sizes(graph);
  Binding binding(plan, sizes);
  std::set<ValueId> ready;
  for (auto& [name, v] : graph.named) ready.insert(v);
  for (auto& st : steps) {
    if (st.node < 0) {
      if (ready.count(st.source) == 0) fail(Code::bad_file, "reshard of %{}: it is not made yet", st.source);
      ready.insert(st.value);
      continue;
    }
    const Node& n = graph.nodes[static_cast<size_t>(st.node)];
    auto& c = cuts[static_cast<size_t>(st.node)];
    const std::string where = fmt::format("step of {} ({})", n.op->name, n.attrs.label);
    if (ran[static_cast<size_t>(st.node)]) fail(Code::bad_file, "{}: is there twice", where);
    ran[static_cast<size_t>(st.node)] = true;
    if (st.in.size() != n.in.size() || c.size() != plan.axes.size())
      fail(Code::bad_file, "{}: {} operands and {} cuts, want {} and {}", where, st.in.size(), c.size(), n.in.size(),
           plan.axes.size());
    for (auto& cut : c)
      for (char f : cut.group)
        if (has(n.op->whole, f) || n.op->all_whole)
          fail(Code::bad_file, "{}: cuts factor {}, which stays whole", where, f);
    for (size_t k = 0; k < st.in.size(); k++) {
      ValueId v = st.in[k];
      if (ready.count(v) == 0 || origin[static_cast<size_t>(v)] != n.in[k])
        fail(Code::bad_file, "{}: operand {} is %{}, which is not made yet or another value", where, k, v);
      if (sums_stay(graph, n)) {
        if (!(of(v) == of(n.out[0]))) fail(Code::bad_file, "{}: adds sums that lie differently", where);
      } else if (!covers(of(v), place(graph, n, plan, c, n.rule.in[k], n.in[k], false), logical(v).dims, binding)) {
        fail(Code::bad_file, "{}: operand {} lies as {}, which does not hold what the node reads", where,
             graph.at(n.in[k]).name, to_string(of(v), plan, logical(v).dims));
      }
    }
    for (size_t o = 0; o < n.out.size(); o++) {
      ready.insert(n.out[o]);
      if (sums_stay(graph, n)) continue;
      Placement made =
          simplified(place(graph, n, plan, c, n.rule.out[o], n.out[o], true), graph.at(n.out[o]).dims, binding);
      if (!(made == of(n.out[o])))
        fail(Code::bad_file, "{}: output {} lies as {}, but the node makes {}", where, o,
             to_string(of(n.out[o]), plan, graph.at(n.out[o]).dims), to_string(made, plan, graph.at(n.out[o]).dims));
    }
    if (!n.attrs.alias.empty() && !(of(n.out[0]) == of(graph.named.at(n.attrs.alias))))
      fail(Code::bad_file, "{}: in-place output does not lie as state {}", where, n.attrs.alias);
  }
}

}  // namespace plait
