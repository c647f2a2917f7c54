#include "plait/exec/executor.h"

#include <x86intrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "plait/exec/fusion.h"
#include "plait/kernels/panels.h"
#include "plait/kernels/reference/reference.h"

namespace plait {

namespace {

/// Seconds a tick of the time stamp counter, measured once.
double tick_s() {
  static const double kTick = [] {
    auto t0 = std::chrono::steady_clock::now();
    u64 c0 = __rdtsc();
    while (std::chrono::steady_clock::now() - t0 < std::chrono::milliseconds(5)) {}
    double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    return s / static_cast<double>(__rdtsc() - c0);
  }();
  return kTick;
}

double steady_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr i64 kAlign = 64;  // of states that lie together, and of temporaries in the arena

i64 element_bytes(const Box& b, DType t) { return bytes_of(t, volume(b)); }

/// The value whose memory a node's output takes: its in-place state, or what the host reads.
ValueId shares_memory_with(const ShardedGraph& s, const Step& st) {
  if (st.node < 0) return kNone;
  const Node& n = s.graph.nodes[static_cast<size_t>(st.node)];
  if (!n.attrs.alias.empty()) return s.graph.named.at(n.attrs.alias);
  if (n.op->name == "read") return st.in[0];
  return kNone;
}

void fill(const View& v, Type t) {
  if (t == Type::max) {
    PLAIT_CHECK(v.dtype == DType::f32 || v.dtype == DType::f64, "a max of {}", name_of(v.dtype));
    for (i64 i = 0; i < v.elements(); i++)
      v.dtype == DType::f32 ? void(v.as<float>()[i] = -INFINITY) : void(v.as<double>()[i] = -INFINITY);
  } else if (v.elements() > 0) {
    std::memset(v.data, 0, static_cast<size_t>(bytes_of(v.dtype, v.elements())));
  }
}

}  // namespace

Sizes bound_sizes(const Graph& g, const Symbols& symbols) {
  Sizes s = static_sizes(g);
  for (auto& [dim, leaf] : g.dims) {
    if (leaf.size > 0) continue;
    auto it = symbols.size.find(dim);
    PLAIT_CHECK(it != symbols.size.end(), "symbol {} of graph {} is not bound", dim, g.name);
    s.dims[dim] = Edges{it->second, std::max<i64>(leaf.leaf, 1), {}};
  }
  if (auto t = s.dims.find('T'); t != s.dims.end()) {
    i64 n = t->second.size;
    t->second.given = symbols.token_edges;
    s.sequence_edges = symbols.sequence_edges.empty() ? std::vector<i64>{0, n} : symbols.sequence_edges;
  }
  return s;
}

std::vector<std::vector<bool>> communicating_axes(const ShardedGraph& s) {
  std::set<std::vector<bool>> all;
  for (auto& st : s.steps)
    if (st.node < 0) all.insert(axes_moved(s.of(st.source), s.of(st.value)));
  return {all.begin(), all.end()};
}

StateShapes::StateShapes(const ShardedGraph& s, const ExecutorOptions& o)
    : s_(s), sizes_(static_sizes(s.graph)), binding_(s_.plan, sizes_) {
  if (o.reference) return;
  const Graph& g = s.graph;
  std::set<ValueId> keys;
  for (auto& n : g.nodes)
    if (n.op->name == "attention_paged") keys.insert(n.in[1]);
  for (auto& n : g.nodes)
    for (size_t k = 0; k < n.in.size(); k++) {
      if (g.at(n.in[k]).kind != Kind::state) continue;
      Use& u = uses_[n.in[k]];
      if (n.op->name == "matmul" && k == 1) {
        std::vector<bool> rows;
        for (auto& group : n.rule.in[1]) rows.push_back(n.rule.in_output(group[0]));
        u.panels &= !u.product || u.row_dims == rows;
        u.product = true;
        u.row_dims = rows;
      } else if (n.op->name == "kv_write" && k == 0) {
        u.keys = keys.count(n.out[0]) > 0;
      } else if (n.op->name != "embedding") {
        u.panels = false;
      }
    }
}

StateShape StateShapes::of(const std::string& name, i64 rank) const {
  ValueId v = s_.graph.named.at(name);
  const Value& x = s_.graph.at(v);
  StateShape shape{x.dtype, Layout::rows, binding_.box(s_.of(v), x.dims, rank), 0, 0, 0};
  if (auto it = uses_.find(v); it != uses_.end()) {
    const Use& u = it->second;
    if (u.keys) shape.layout = Layout::pages;
    if (u.product && u.panels && kernels::has_panels(shape.dtype)) {
      shape.layout = Layout::panels;
      shape.n = shape.k = 1;
      for (size_t d = 0; d < shape.box.size(); d++) (u.row_dims[d] ? shape.n : shape.k) *= shape.box[d].size();
    }
  }
  shape.bytes = shape.layout == Layout::panels ? kernels::panel_bytes(shape.dtype, shape.n, shape.k)
                                               : element_bytes(shape.box, shape.dtype);
  return shape;
}

std::vector<i64> value_bytes(const ShardedGraph& s, const Binding& b, i64 rank) {
  std::vector<i64> bytes;
  for (size_t v = 0; v < s.placement.size(); v++) {
    const Value& x = s.graph.at(s.origin[v]);
    bytes.push_back(x.kind == Kind::state && s.origin[v] == static_cast<ValueId>(v)
                        ? 0
                        : element_bytes(b.box(s.placement[v], x.dims, rank), x.dtype));
  }
  return bytes;
}

namespace {

std::vector<i64> largest_bytes(const ShardedGraph& s, std::span<const Symbols> bounds, i64 rank) {
  std::vector<i64> most(s.placement.size(), 0);
  for (auto& symbols : bounds) {
    Sizes sizes = bound_sizes(s.graph, symbols);
    Binding b(s.plan, sizes);
    auto bytes = value_bytes(s, b, rank);
    for (size_t v = 0; v < most.size(); v++) most[v] = std::max(most[v], bytes[v]);
  }
  return most;
}

}  // namespace

Arena plan_arena(const Program& p, std::span<const Symbols> bounds) {
  const ShardedGraph& s = *p.sharded;
  const std::vector<i64> bytes = largest_bytes(s, bounds, p.rank);
  const size_t n = s.placement.size();
  std::vector<i64> first(n, -1), last(n, -1), owner(n);
  for (size_t v = 0; v < n; v++) owner[v] = static_cast<i64>(v);
  auto touch = [&](ValueId v, Range at) {
    auto o = static_cast<size_t>(owner[static_cast<size_t>(v)]);
    if (first[o] < 0) first[o] = at.begin;
    last[o] = std::max(last[o], at.end);
  };
  // The calls of a window happen at once: what one of them reads or writes lies still from its first to its last.
  std::vector<Range> during;
  for (i64 i = 0; i < static_cast<i64>(p.calls.size()); i++) during.push_back({i, i});
  for (auto& w : find_fusions(p))
    for (i64 i = w.first; i < w.end(); i++) during[static_cast<size_t>(i)] = {w.first, w.end() - 1};
  for (size_t i = 0; i < p.calls.size(); i++) {
    const Call& c = p.calls[i];
    const Step& st = p.step(c);
    const Range at = during[i];
    if (c.kind == Call::Kind::kernel) {
      const Node& node = p.node(c);
      if (ValueId same = shares_memory_with(s, st); same != kNone)
        owner[static_cast<size_t>(node.out[0])] = owner[static_cast<size_t>(same)];
      for (ValueId v : st.in) touch(v, at);
      for (ValueId v : node.out) touch(v, at);
      if (node.op->name == "read")
        touch(node.out[0], {at.begin, static_cast<i64>(p.calls.size())});  // the host reads it afterwards
    } else {
      for (i64 step : c.steps()) {
        const ValueId from = p.step(step).source, to = p.step(step).value;
        if (!c.bucket.empty()) owner[static_cast<size_t>(to)] = from;  // in place
        touch(from, at);                                               // both lie still from start to wait
        touch(to, at);
      }
    }
  }
  struct Item {
    size_t value;
    i64 bytes;
  };
  std::vector<Item> items;
  for (size_t v = 0; v < n; v++) {
    const bool reshard = s.origin[v] != static_cast<ValueId>(v);  // a temporary, also of a state or an input
    if (first[v] < 0 || (!reshard && s.graph.at(s.origin[v]).kind != Kind::temp)) continue;
    items.push_back({v, round_up(bytes[v], kAlign)});
  }
  // Largest first, each at the lowest offset that is free over its whole life.
  std::stable_sort(items.begin(), items.end(), [](auto& x, auto& y) { return x.bytes > y.bytes; });
  Arena arena{std::vector<i64>(n, -1), bytes, 0};
  std::vector<Item> laid;
  for (auto& item : items) {
    std::vector<Range> taken;
    for (auto& l : laid)
      if (first[l.value] <= last[item.value] && first[item.value] <= last[l.value])
        taken.push_back({arena.offset[l.value], arena.offset[l.value] + l.bytes});
    std::sort(taken.begin(), taken.end(), [](Range x, Range y) { return x.begin < y.begin; });
    i64 at = 0;
    for (auto& t : taken) {
      if (t.begin >= at + item.bytes) break;
      at = std::max(at, t.end);
    }
    arena.offset[item.value] = at;
    arena.bytes = std::max(arena.bytes, at + item.bytes);
    laid.push_back(item);
  }
  for (size_t v = 0; v < n; v++)
    if (owner[v] != static_cast<i64>(v)) arena.offset[v] = arena.offset[static_cast<size_t>(owner[v])];
  return arena;
}

struct Executor::Bound {
  Sizes sizes;
  std::unique_ptr<Binding> binding;
  struct Prepared {
    kernels::Run run;  // of kernels; empty: nothing to do
    Reshard* reshard = nullptr;
    View in, out;  // of reshards
    const char* kernel = "";
  };
  std::vector<Prepared> calls;
  struct Fused {
    size_t first, count;
    kernels::Run run;
    const Fusion* fusion;
  };
  std::vector<Fused> fused;
  std::vector<std::pair<size_t, const Fused*>> list;  // what runs: a call by itself, or the fused one that it begins
  std::map<i64, std::unique_ptr<Reshard>> reshards;   // by step
  std::vector<View> views;                            // by value
};

Executor::Executor(Program program, std::vector<Symbols> bounds, ExecutorOptions options, FindCommunicator find,
                   std::shared_ptr<States> states)
    : program_(std::move(program)),
      bounds_(std::move(bounds)),
      options_(options),
      find_(std::move(find)),
      states_(states ? std::move(states) : std::make_shared<States>()) {
  const ShardedGraph& s = *program_.sharded;
  arena_ = plan_arena(program_, bounds_);
  memory_ = Buffer(arena_.bytes);
  StateShapes shapes(s, options_);
  for (auto& c : program_.calls) {
    if (c.kind != Call::Kind::start || c.bucket.empty()) continue;
    std::vector<std::pair<std::string, StateShape>> sums;
    for (i64 i : c.bucket) {
      const std::string& name = s.logical(program_.step(i).source).name;
      sums.emplace_back(name, shapes.of(name, program_.rank));
    }
    states_->make_together(sums);
  }
  for (auto& [name, v] : s.graph.named) {
    const Value& x = s.graph.at(v);
    if (x.kind == Kind::state) {
      states_->at(name, shapes.of(name, program_.rank));
    } else {
      inputs_.emplace(name, Buffer(arena_.value_bytes[static_cast<size_t>(v)]));
    }
  }
  reset_profile();
}

Executor::~Executor() = default;

const View& Executor::state(const std::string& name) const { return states_->at(name); }

const View& States::at(const std::string& name, const StateShape& shape) {
  if (states_.count(name) == 0) {
    memory_.emplace_back(shape.bytes);
    add(name, shape, memory_.back().data());
  }
  const View& v = states_.at(name);
  PLAIT_CHECK(v.dtype == shape.dtype && v.layout == shape.layout && v.box == shape.box,
              "state {}: two programs want it in other shapes, {} and {}", name, to_string(v.box),
              to_string(shape.box));
  return v;
}

const View& States::at(const std::string& name) const {
  auto it = states_.find(name);
  PLAIT_CHECK(it != states_.end(), "no state {}", name);
  return it->second;
}

void States::make_together(const std::vector<std::pair<std::string, StateShape>>& states) {
  i64 whole = 0;
  for (auto& [name, shape] : states) whole += round_up(shape.bytes, kAlign);
  memory_.emplace_back(whole);
  std::byte* p = memory_.back().data();
  for (auto& [name, shape] : states) {
    add(name, shape, p);
    p += round_up(shape.bytes, kAlign);
  }
}

void States::add(const std::string& name, const StateShape& shape, void* data) {
  const bool fresh = states_.emplace(name, View{data, shape.dtype, shape.layout, shape.box}).second;
  PLAIT_CHECK(fresh, "state {} is there already", name);
  bytes_ += shape.bytes;
}

void* Executor::input_data(const std::string& name) const {
  auto it = inputs_.find(name);
  PLAIT_CHECK(it != inputs_.end(), "no input {}", name);
  return it->second.data();
}

View Executor::view(ValueId v, const Binding& b) const {
  const ShardedGraph& s = *program_.sharded;
  const Value& x = s.logical(v);
  if (s.origin[static_cast<size_t>(v)] == v && x.kind == Kind::state) return states_->at(x.name);
  View out{nullptr, x.dtype, Layout::rows, b.box(s.of(v), x.dims, program_.rank)};
  if (s.origin[static_cast<size_t>(v)] == v && x.kind == Kind::input)
    out.data = inputs_.at(x.name).data();
  else if (i64 o = arena_.offset[static_cast<size_t>(v)]; o >= 0)
    out.data = memory_.data() + o;
  PLAIT_CHECK(bytes_of(out.dtype, out.elements()) <= arena_.value_bytes[static_cast<size_t>(v)],
              "{} takes {} of {}, planned for {} bytes", x.name, to_string(out.box), x.dims,
              arena_.value_bytes[static_cast<size_t>(v)]);
  return out;
}

std::unique_ptr<Executor::Bound> Executor::prepare(const Symbols& symbols) {
  const ShardedGraph& s = *program_.sharded;
  const Graph& g = s.graph;
  auto bound = std::make_unique<Bound>();
  bound->sizes = bound_sizes(g, symbols);
  bound->binding = std::make_unique<Binding>(s.plan, bound->sizes);
  const Binding& b = *bound->binding;
  const Coords at = b.mesh().coords(program_.rank);
  for (size_t v = 0; v < s.placement.size(); v++) bound->views.push_back(view(static_cast<ValueId>(v), b));
  auto view_of = [&](ValueId v) -> View& { return bound->views[static_cast<size_t>(v)]; };

  std::vector<kernels::Args> args(program_.calls.size());  // of calls with a kernel
  for (size_t i = 0; i < program_.calls.size(); i++) {
    const Call& c = program_.calls[i];
    const Step& st = program_.step(c);
    Bound::Prepared p;
    if (!c.bucket.empty()) {
      auto& r = bound->reshards[c.step];
      if (!r) r = prepare_bucket(c, bound->views);
      p.reshard = r.get();
      p.in = p.out = view_of(st.source);
      bound->calls.push_back(std::move(p));
      continue;
    }
    if (c.kind != Call::Kind::kernel) {
      auto& r = bound->reshards[c.step];
      if (!r) {
        const Value& x = s.logical(st.source);
        auto along = axes_moved(s.of(st.source), s.of(st.value));
        DType wire =
            x.type == Type::sum && options_.sum_wire == DType::bf16 && x.dtype == DType::f32 ? DType::bf16 : x.dtype;
        r = std::make_unique<Reshard>(b, s.of(st.source), s.of(st.value), Reshard::Shape{x.dims, x.type, x.dtype, wire},
                                      program_.rank, find_(along), x.name.c_str());
      }
      p.reshard = r.get();
      p.in = view_of(st.source);
      p.out = view_of(st.value);
      bound->calls.push_back(std::move(p));
      continue;
    }
    const Node& n = program_.node(c);
    if (ValueId same = shares_memory_with(s, st); same != kNone) {
      const View& memory = view_of(same);
      View& out = view_of(n.out[0]);
      out.data = memory.data;
      out.layout = memory.layout;
      if (n.op->name == "read") {
        bound->calls.push_back(std::move(p));
        continue;
      }
    }
    kernels::Args a;
    a.op = n.op->name;
    a.in_terms = n.rule.in;
    a.out_terms = n.rule.out;
    a.contracted = n.rule.contracted();
    a.attrs = n.attrs.x;
    if (g.dims.count('N') > 0 && g.dims.count('K') > 0) a.group = g.size('N') / g.size('K');
    auto& cuts = s.cuts[static_cast<size_t>(st.node)];
    auto term = [&](const Rule::Term& t, const std::string& dims) {
      for (size_t d = 0; d < t.size(); d++) {
        Range r = b.range(dims[d], group_uses(n, cuts, t[d], dims[d], s.plan), at);
        for (size_t x = 0; x < cuts.size(); x++)
          if (!cuts[x].holders.has(at[x])) r = {0, 0};
        a.ranges[t[d]] = r;
        if (g.has_leaves(dims[d])) a.leaves[t[d].back()] = bound->sizes.dims.at(dims[d]).list();
      }
    };
    bool empty = true, nothing_summed = false;
    for (size_t k = 0; k < n.in.size(); k++) {
      term(n.rule.in[k], g.at(n.in[k]).dims);
      a.in.push_back(view_of(st.in[k]));
    }
    for (size_t k = 0; k < n.out.size(); k++) {
      term(n.rule.out[k], g.at(n.out[k]).dims);
      a.out.push_back(view_of(n.out[k]));
      empty &= a.out.back().elements() == 0;
    }
    if (n.op->takes_sums)  // sums that are added lie alike, whatever the plan cuts
      for (size_t d = 0; d < n.rule.out[0].size(); d++) a.ranges[n.rule.out[0][d]] = a.out[0].box[d];
    for (size_t k = 0; k < n.in.size(); k++)  // what it reads is there
      for (size_t d = 0; !n.op->takes_sums && d < n.rule.in[k].size(); d++)
        PLAIT_CHECK(a.in[k].box[d].contains(a.ranges[n.rule.in[k][d]]), "{}: operand {} holds {}, needs {} of {}",
                    program_.label(c), k, to_string(a.in[k].box), to_string(a.ranges[n.rule.in[k][d]]),
                    n.rule.in[k][d]);
    const Value& o = g.at(n.out[0]);
    a.exponent = exponent(n.op->name == "finish" ? g.at(n.in[0]).cls : o.cls);
    for (auto& t : n.rule.in)
      for (auto& group : t)
        if (a.contracted.find(group[0]) != std::string::npos && n.op->follows.count(group[0]) == 0) {
          nothing_summed |= a.ranges[group].empty();
          if (auto l = a.leaves.find(group.back()); l != a.leaves.end())
            a.model_leaves = std::max<i64>(a.model_leaves, static_cast<i64>(l->second.size()) - 1);
        }
    // No part of the result is ours, or (a cache) no token comes to be written.
    if (empty || (nothing_summed && !n.attrs.alias.empty())) {
      bound->calls.push_back(std::move(p));
      continue;
    }
    if (nothing_summed) {
      p.run = [out = a.out, type = o.type](kernels::Context&) {
        for (auto& v : out) fill(v, type);
      };
      p.kernel = "nothing to sum";
      bound->calls.push_back(std::move(p));
      continue;
    }
    std::string declined;
    auto choose = [&](std::span<const kernels::Kernel> list) {
      for (auto& k : list) {
        if (p.run) return;
        auto r = k.prepare(a);
        if (r) {
          p.run = std::move(*r);
          p.kernel = k.name;
        } else {
          declined += fmt::format("\n  {}: {}", k.name, r.why());
        }
      }
    };
    if (!options_.reference) choose(kernels::cpu_kernels(a.op));
    choose(kernels::reference_kernels(a.op, g.real));
    PLAIT_CHECK(p.run != nullptr, "{} ({}) has no kernel that takes it:{}", a.op, program_.label(c), declined);
    bound->calls.push_back(std::move(p));
    args[i] = std::move(a);
  }
  prepare_fused(*bound, args);
  return bound;
}

/// One all_reduce over the states of a bucket, which lie one after the other: gaps between them are joined too, and
/// read by nobody. Null: they are empty, on all ranks of the group.
std::unique_ptr<Reshard> Executor::prepare_bucket(const Call& c, std::vector<View>& views) const {
  const ShardedGraph& s = *program_.sharded;
  const Step& first = program_.step(c);
  const View begin = views[static_cast<size_t>(first.source)];
  i64 bytes = 0;
  for (i64 i : c.bucket) {
    const View& from = views[static_cast<size_t>(program_.step(i).source)];
    View& to = views[static_cast<size_t>(program_.step(i).value)];
    bytes = round_up(bytes, kAlign);
    PLAIT_CHECK(
        from.layout == Layout::rows && from.box == to.box && from.as<std::byte>() == begin.as<std::byte>() + bytes,
        "{} does not lie where its bucket has it", s.logical(program_.step(i).source).name);
    to.data = from.data;
    bytes += element_bytes(from.box, from.dtype);
  }
  if (bytes == 0) return nullptr;
  return std::make_unique<Reshard>(bytes / bytes_of(begin.dtype, 1), begin.dtype,
                                   find_(axes_moved(s.of(first.source), s.of(first.value))),
                                   s.logical(first.source).name.c_str());
}

void Executor::prepare_fused(Bound& bound, const std::vector<kernels::Args>& args) const {
  std::vector<Window> windows;
  if (options_.fuse && !options_.reference) windows = find_fusions(program_);
  bound.fused.reserve(windows.size());
  size_t i = 0;
  auto alone = [&](size_t end) {
    for (; i < end; i++) bound.list.emplace_back(i, nullptr);
  };
  for (auto& w : windows) {
    const auto first = static_cast<size_t>(w.first), end = static_cast<size_t>(w.end());
    bool all = true;
    for (size_t k = first; k < end; k++) all &= !args[k].op.empty();
    if (!all) continue;
    auto run = w.fusion->prepare({args.data() + first, end - first});
    if (!run) continue;
    alone(first);
    bound.fused.push_back({first, end - first, std::move(*run), w.fusion});
    bound.list.emplace_back(first, &bound.fused.back());
    i = end;
  }
  alone(args.size());
}

void Executor::bind(const Symbols& s) {
  for (auto& [dim, n] : s.size) {
    i64 most = -1;
    for (auto& bound : bounds_)
      if (auto it = bound.size.find(dim); it != bound.size.end()) most = std::max(most, it->second);
    PLAIT_CHECK(most >= 0, "symbol {} has no bound", dim);
    if (n < 0 || n > most) fail(Code::does_not_fit, "binding {} = {}, planned for at most {}", dim, n, most);
  }
  auto it = bound_.find(s);
  if (it == bound_.end()) {
    if (bound_.size() >= 64) bound_.clear();  // bindings are cheap; a long run must not keep one for each size it met
    it = bound_.emplace(s, prepare(s)).first;
  }
  now_ = it->second.get();
  symbols_ = &it->first;
}

const View& Executor::input_part(const std::string& name) const {
  PLAIT_CHECK(now_ != nullptr, "an input's part before bind");
  return now_->views[static_cast<size_t>(program_.sharded->graph.named.at(name))];
}

void Executor::run(kernels::Context& context) {
  PLAIT_CHECK(now_ != nullptr, "run before bind");
  const double tick = tick_s();
  double begin_s = 0;
  if (recording_ != nullptr) {
    recording_->runs.push_back({*symbols_, recording_->events.size()});
    begin_s = steady_s();
  }
  u64 before = __rdtsc();
  const u64 begin = before;
  const bool fuse = fuses();
  const size_t count = fuse ? now_->list.size() : now_->calls.size();
  for (size_t k = 0; k < count; k++) {
    const size_t i = fuse ? now_->list[k].first : k;
    const Bound::Fused* fused = fuse ? now_->list[k].second : nullptr;
    auto& p = now_->calls[i];
    const Call& c = program_.calls[i];
    const double waited_s = recording_ != nullptr && p.reshard != nullptr ? p.reshard->waited_s() : 0;
    if (before_call_)
      for (size_t member = i; member < i + (fused != nullptr ? fused->count : 1); member++) before_call_(member);
    if (p.reshard != nullptr) {
      if (c.kind == Call::Kind::start)
        p.reshard->start(p.in, p.out);
      else
        p.reshard->wait();
    } else if (fused != nullptr) {
      fused->run(context);
    } else if (p.run) {
      p.run(context);
    }
    if (c.kind == Call::Kind::kernel && context.overflow)
      fail(Code::not_finite, "{} ({}) of layer {}: a partial sum is not finite or may overflow its 64-bit integer",
           program_.node(c).op->name, program_.label(c), program_.node(c).layer);
    u64 after = __rdtsc();
    double s = static_cast<double>(after - before) * tick;
    if (recording_ != nullptr)
      recording_->events.push_back({k, begin_s + static_cast<double>(before - begin) * tick,
                                    begin_s + static_cast<double>(after - begin) * tick,
                                    p.reshard != nullptr ? p.reshard->waited_s() - waited_s : 0});
    before = after;
    (p.reshard != nullptr ? profile_.comm_s : profile_.kernel_s) += s;
    if (watch_ && c.kind != Call::Kind::start) {
      for (ValueId v : program_.makes(c)) watch_(c, v, now_->views[static_cast<size_t>(v)]);
      before = __rdtsc();
    }
  }
  profile_.runs++;
}

const View& Executor::output(const std::string& label) const {
  PLAIT_CHECK(now_ != nullptr, "output before a run");
  const Graph& g = program_.sharded->graph;
  for (size_t i = g.nodes.size(); i-- > 0;)
    if (g.nodes[i].attrs.label == label) return now_->views[static_cast<size_t>(g.nodes[i].out[0])];
  PLAIT_CHECK(false, "no value labelled {}", label);
}

void Executor::reset_profile() { profile_ = {}; }

i64 Executor::calls() const {
  PLAIT_CHECK(now_ != nullptr, "calls before bind");
  return static_cast<i64>(fuses() ? now_->list.size() : now_->calls.size());
}

std::vector<Executor::Item> Executor::items() const {
  PLAIT_CHECK(now_ != nullptr, "items before bind");
  std::vector<Item> items;
  if (!fuses()) {
    for (size_t i = 0; i < now_->calls.size(); i++) items.push_back({i, 1, now_->calls[i].kernel, nullptr});
    return items;
  }
  for (auto& [first, fused] : now_->list)
    items.push_back(fused != nullptr ? Item{first, fused->count, fused->fusion->name, fused->fusion}
                                     : Item{first, 1, now_->calls[first].kernel, nullptr});
  return items;
}

Work Executor::work(const Item& item, const Attended& attended) const {
  PLAIT_CHECK(now_ != nullptr, "work before bind");
  return work_of(program_, std::span(program_.calls).subspan(item.first, item.count), *now_->binding, attended);
}

std::string Executor::kernels_text() const {
  std::string s;
  if (now_ == nullptr) return s;
  std::map<size_t, const Bound::Fused*> fused;
  if (fuses())
    for (auto& f : now_->fused) fused[f.first] = &f;
  for (size_t i = 0; i < program_.calls.size(); i++) {
    if (program_.calls[i].kind != Call::Kind::kernel) continue;
    const char* kernel = now_->calls[i].kernel;
    std::string op = program_.node(program_.calls[i]).op->name;
    if (auto f = fused.find(i); f != fused.end()) {
      s += fmt::format("{:<28} fused: {}\n", program_.label(program_.calls[i]), f->second->fusion->name);
      i += f->second->count - 1;
      continue;
    }
    s += fmt::format("{:<28} {:<16} {}\n", program_.label(program_.calls[i]), op, kernel);
  }
  return s;
}

}  // namespace plait
