#include "plait/serve/engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "plait/comm/local/run_processes.h"
#include "plait/io/load_state.h"
#include "plait/models/family.h"

namespace plait::serve {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

i64 threads_of(const EngineOptions& o, i64 ranks) {
  if (o.threads < 0 || o.threads > 4096) fail(Code::usage, "--threads {}: want 0 (cores / ranks) to 4096", o.threads);
  return o.threads > 0 ? o.threads : std::max<i64>(1, static_cast<i64>(allowed_cpus().size()) / ranks);
}

struct Returned {
  RankReport report;
  std::string value;
};

// What a process tells: the report without its coordinates, as it lies in memory, then the value.
struct PackedReport {
  RankMemory memory;
  double load_s, compute_s, comm_s, wait_s;
};
static_assert(std::is_trivially_copyable_v<PackedReport>);

std::string pack(const Returned& r) {
  const RankReport& p = r.report;
  const PackedReport packed{p.memory, p.load_s, p.compute_s, p.comm_s, p.wait_s};
  return std::string(reinterpret_cast<const char*>(&packed), sizeof packed) + r.value;
}

Returned unpack(const std::string& bytes, std::string coords) {
  PLAIT_CHECK(bytes.size() >= sizeof(PackedReport), "a rank returned {} bytes", bytes.size());
  PackedReport p;
  std::memcpy(&p, bytes.data(), sizeof p);
  Returned r{{std::move(coords), p.memory, p.load_s, p.compute_s, p.comm_s, p.wait_s}, bytes.substr(sizeof p)};
  return r;
}

/// The weights in one piece of memory and the caches in another, so that small ones share huge pages; each in the order
/// of the graph, in which they are read.
std::shared_ptr<States> state_memory(const ServingPlan& plan, i64 rank) {
  StateShapes shapes(*plan.sharded, plan.executor);
  const Graph& g = plan.sharded->graph;
  const std::vector<std::string> weights = weights_of(g);
  std::vector<std::pair<std::string, StateShape>> pieces[2];
  for (auto& v : g.values)
    if (v.kind == Kind::state)
      pieces[std::count(weights.begin(), weights.end(), v.name) == 0].emplace_back(v.name, shapes.of(v.name, rank));
  auto states = std::make_shared<States>();
  for (auto& piece : pieces) states->make_together(piece);
  return states;
}

/// Along which the whole world lies. Not axes of one rank: equal groups are one, and a rank joins it once.
std::vector<bool> all_axes(const Plan& plan) {
  std::vector<bool> all;
  for (auto& a : plan.axes) all.push_back(a.size > 1);
  return all;
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; c++)
      if (CPU_ISSET(c, &set)) cpus.push_back(c);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

Session::Session(const ServingPlan& plan, i64 rank, const io::ModelFiles& files, const comm::LocalWorld& world,
                 const std::map<std::vector<bool>, i64>& groups, const EngineOptions& options, std::vector<int> cpus)
    : plan_(plan),
      world_(world),
      team_(threads_of(options, plan.world()), std::move(cpus)),
      context_{team_},
      communicators_([&] {
        std::map<std::vector<bool>, std::unique_ptr<comm::Communicator>> c;
        for (auto& [along, group] : groups) c.emplace(along, world.join(group, rank));
        return c;
      }()),
      executor_(
          partition(plan.sharded, rank), {plan.bounds}, plan.executor,
          [this](const std::vector<bool>& along) -> comm::Communicator* {
            auto it = communicators_.find(along);
            return it == communicators_.end() ? nullptr : it->second.get();
          },
          state_memory(plan, rank)),
      all_(plan.world() > 1 ? communicators_.at(all_axes(plan.options.plan)).get() : nullptr),
      symbols_(plan.bounds),
      position_(static_cast<size_t>(plan.sequences())) {
  kernels::flush_denormals();
  agreement_.reserve(position_.size() * 3);
  // A sequence's pages are its own, one after the other.
  auto* table = executor_.input<std::int32_t>("table");
  for (i64 i = 0; i < plan.sequences() * plan.context / plan.page; i++) table[i] = static_cast<std::int32_t>(i);
  if (options.fault && options.fault->rank == rank) {
    fault_.emplace(*options.fault, std::initializer_list{&executor_.program()}, "sample");
    executor_.before_calls([this](size_t call) { fault_->before_call(0, call); });
  }
  enter("load", 0);
  double t0 = now_s();
  StateShapes shapes(*plan.sharded, plan.executor);
  for (auto& name : weights_of(plan.sharded->graph)) {
    StateShape shape = shapes.of(name, rank);
    io::load_state(files, plan.config, name, executor_.state(name), shape.n, shape.k, team_);
  }
  files.dont_need();
  load_s_ = now_s() - t0;
}

void Session::enter(std::string_view phase, i64 step) {
  world_.set_phase(rank(), phase, step);
  if (fault_) fault_->enter(phase, step);
}

void Session::reset() {
  std::fill(position_.begin(), position_.end(), 0);
  steps_ = 0;
}

void Session::run(std::span<const Piece> pieces) {
  bool decode = true;
  i64 tokens = 0, rows = 0;
  for (const Piece& p : pieces) {
    const i64 n = static_cast<i64>(p.tokens.size()), at = position(p.sequence);
    decode &= n == 1 && at > 0;
    if (at + n > plan_.context)
      fail(Code::does_not_fit, "position {} and {} tokens more do not fit the context of {}", at, n, plan_.context);
    PLAIT_CHECK(p.rows >= 0 && p.rows <= n, "{} rows of {} tokens", p.rows, n);
    tokens += n;
    rows += p.rows;
  }
  enter(decode ? "decode" : "prefill", decode ? ++steps_ : 0);
  symbols_.size['T'] = tokens;
  symbols_.size['R'] = rows;
  executor_.bind(symbols_);
  auto* ids = executor_.input<std::int32_t>("ids");
  auto* positions = executor_.input<std::int32_t>("position");
  auto* sequence = executor_.input<std::int32_t>("sequence");
  auto* slot = executor_.input<std::int32_t>("slot");
  auto* row = executor_.input<std::int32_t>("rows");
  i64 t = 0, r = 0;
  for (const Piece& p : pieces) {
    i64 at = position(p.sequence);
    for (i64 id : p.tokens) {
      if (id < 0 || id >= plan_.config.V)
        fail(Code::usage, "token {} is not in the vocabulary of {}", id, plan_.config.V);
      ids[t] = static_cast<std::int32_t>(id);
      positions[t] = static_cast<std::int32_t>(at);
      sequence[t] = static_cast<std::int32_t>(p.sequence);
      slot[t] = static_cast<std::int32_t>(p.sequence * plan_.context + at);
      t++, at++;
    }
    for (i64 k = p.rows; k > 0; k--) row[r++] = static_cast<std::int32_t>(t - k);
  }
  try {
    executor_.run(context_);
  } catch (const Error& e) {
    if (e.code() != Code::not_finite) throw;
    std::string where;
    for (const Piece& p : pieces) {
      const i64 n = static_cast<i64>(p.tokens.size()), at = position(p.sequence);
      where += where.empty() ? "" : ", ";
      where += n == 1 ? fmt::format("token at position {}", at)
                      : fmt::format("tokens at positions {} to {}", at, at + n - 1);
      if (pieces.size() > 1) where += fmt::format(" of sequence {}", p.sequence);
    }
    fail(e.code(), "{}: {}", where, e.what());
  }
  for (const Piece& p : pieces) position_[static_cast<size_t>(p.sequence)] += static_cast<i64>(p.tokens.size());
}

std::span<const float> Session::step(std::span<const Piece> pieces) {
  seen_.assign(position_.size(), false);
  i64 rows = 0;
  for (const Piece& p : pieces) {
    PLAIT_CHECK(p.sequence >= 0 && p.sequence < static_cast<i64>(seen_.size()), "sequence {} of {}", p.sequence,
                seen_.size());
    const auto q = static_cast<size_t>(p.sequence);
    PLAIT_CHECK(!seen_[q], "sequence {} twice in a step", q);
    seen_[q] = true;
    rows += p.rows;
  }
  run(pieces);
  return {executor_.output("logits").as<float>(), static_cast<size_t>(rows * plan_.config.V)};
}

std::span<const float> Session::forward(std::span<const i64> tokens) {
  const i64 chunk = plan_.bounds.size.at('T');
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk)) {
    const Piece piece{0, tokens.subspan(i, std::min(static_cast<size_t>(chunk), tokens.size() - i)), 1};
    run({&piece, 1});
  }
  const View& logits = executor_.output("logits");
  return {logits.as<float>(), static_cast<size_t>(plan_.config.V)};
}

void Session::forward_all(std::span<const i64> tokens, const std::function<void(i64, std::span<const float>)>& f) {
  const i64 chunk = std::min(plan_.bounds.size.at('T'), plan_.bounds.size.at('R'));
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk)) {
    auto part = tokens.subspan(i, std::min(static_cast<size_t>(chunk), tokens.size() - i));
    const Piece piece{0, part, static_cast<i64>(part.size())};
    run({&piece, 1});
    const View& logits = executor_.output("logits");
    for (size_t r = 0; r < part.size(); r++)
      f(static_cast<i64>(i + r),
        {logits.as<float>() + static_cast<i64>(r) * plan_.config.V, static_cast<size_t>(plan_.config.V)});
  }
}

i64 Session::agree(i64 token, i64 stop) {
  agree({&token, 1}, {&stop, 1});
  return stop;
}

void Session::agree(std::span<const i64> tokens, std::span<i64> stops) {
  PLAIT_CHECK(tokens.size() == stops.size(), "{} tokens, {} stops", tokens.size(), stops.size());
  if (fault_) fault_->before("sample");
  if (all_ == nullptr) return;
  agreement_.assign(tokens.begin(), tokens.end());
  for (i64 t : tokens) agreement_.push_back(-t);
  agreement_.insert(agreement_.end(), stops.begin(), stops.end());
  const size_t n = tokens.size();
  all_->wait(all_->start_all_reduce(agreement_.data(), agreement_.data(), static_cast<i64>(3 * n), DType::i64,
                                    comm::Join::max, "token agreement"));
  for (size_t i = 0; i < n; i++)
    if (agreement_[i] != -agreement_[n + i])
      fail(Code::differs, "position {}: ranks hold different tokens, {} to {}", position_[0], -agreement_[n + i],
           agreement_[i]);
  std::copy_n(agreement_.begin() + static_cast<std::ptrdiff_t>(2 * n), n, stops.begin());
}

void Session::barrier(const char* what) {
  if (all_ != nullptr) all_->barrier(what);
}

RankReport Session::report() const {
  RankReport r;
  r.coords = plan_.options.plan.mesh().describe(executor_.program().rank);
  r.load_s = load_s_;
  RankMemory& m = r.memory;
  m = plan_.memory[static_cast<size_t>(executor_.program().rank)];
  m.comm = 0;
  for (auto& [along, c] : communicators_) {
    m.comm += c->buffer_bytes();
    r.wait_s += c->counters().wait_s;
  }
  m.arena = executor_.arena_bytes();
  const i64 difference = executor_.state_bytes() - m.weights() - m.kv;
  PLAIT_CHECK(difference == 0, "rank {} holds {} bytes of state more than planned", executor_.program().rank,
              difference);
  r.compute_s = executor_.profile().kernel_s;
  r.comm_s = std::max(0.0, executor_.profile().comm_s - r.wait_s);
  return r;
}

void Session::reset_profile() {
  executor_.reset_profile();
  for (auto& [along, c] : communicators_) c->reset_counters();
}

Engine::Engine(const io::ModelFiles& files, ServingPlan plan, EngineOptions options)
    : files_(files), plan_(std::move(plan)), options_(options), threads_(threads_of(options, plan_.world())) {
  if (!files.has_weights()) fail(Code::bad_file, "[{}] a config without weights: nothing to run", files.path());
  io::check_files(files, plan_.config, weights_of(plan_.sharded->graph));
  if (options_.fault) options_.fault->check(plan_.world(), options_.processes, {"load", "prefill", "decode"});
}

void Engine::run(const std::function<void(Session&)>& f) {
  collect([&](Session& s) {
    f(s);
    return std::string();
  });
}

std::vector<std::string> Engine::collect(const std::function<std::string(Session&)>& f) {
  comm::LocalOptions local;
  local.deadline_s = options_.deadline_s;
  local.slot_bytes = slot_bytes(*plan_.sharded, plan_.bounds, plan_.executor.sum_wire);
  local.mail_bytes = kMailBytes;
  const Mesh mesh = plan_.options.plan.mesh();
  for (i64 r = 0; r < plan_.world() && plan_.world() > 1; r++) local.names.push_back(mesh.describe(r));
  comm::LocalWorld world(plan_.world(), local);
  auto axes = communicating_axes(*plan_.sharded);
  const std::vector<bool> all = all_axes(plan_.options.plan);
  if (std::find(axes.begin(), axes.end(), all) == axes.end()) axes.push_back(all);
  std::vector<std::map<std::vector<bool>, i64>> groups(static_cast<size_t>(plan_.world()));
  for (i64 r = 0; r < plan_.world() && plan_.world() > 1; r++)
    for (auto& along : axes) groups[static_cast<size_t>(r)][along] = world.add_group(mesh.group(r, along));
  reports_.assign(static_cast<size_t>(plan_.world()), {});
  const auto cpus = allowed_cpus();
  const bool pin = options_.pin && static_cast<i64>(cpus.size()) >= plan_.world() * threads_;
  EngineOptions options = options_;
  options.threads = threads_;
  auto rank_of = [&](i64 rank) {
    std::vector<int> mine;
    if (pin) mine.assign(cpus.begin() + rank * threads_, cpus.begin() + (rank + 1) * threads_);
    Session s(plan_, rank, files_, world, groups[static_cast<size_t>(rank)], options, std::move(mine));
    Returned r;
    r.value = f(s);
    s.barrier("end");  // who does not come to the end is missed within the deadline
    r.report = s.report();
    return r;
  };
  comm::RunOptions how;
  how.stuck = options_.stuck;
  std::vector<std::string> values(static_cast<size_t>(plan_.world()));
  auto keep = [&](i64 rank, Returned r) {
    reports_[static_cast<size_t>(rank)] = std::move(r.report);
    values[static_cast<size_t>(rank)] = std::move(r.value);
  };
  if (!options_.processes) {
    comm::run_ranks(
        world, [&](i64 rank) { keep(rank, rank_of(rank)); }, how);
    return values;
  }
  auto packed = comm::run_processes(
      world, [&](i64 rank) { return pack(rank_of(rank)); }, how);
  for (i64 r = 0; r < plan_.world(); r++) keep(r, unpack(packed[static_cast<size_t>(r)], mesh.describe(r)));
  return values;
}

}  // namespace plait::serve
