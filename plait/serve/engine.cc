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

/// The weights, in one piece of memory; caches are touched as they fill and so lie apart.
std::shared_ptr<States> weight_memory(const ServingPlan& plan, i64 rank) {
  StateShapes shapes(*plan.sharded, plan.executor);
  std::vector<std::pair<std::string, StateShape>> weights;
  for (auto& name : weights_of(plan.sharded->graph)) weights.emplace_back(name, shapes.of(name, rank));
  auto states = std::make_shared<States>();
  states->make_together(weights);
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
          weight_memory(plan, rank)),
      all_(plan.world() > 1 ? communicators_.at(all_axes(plan.options.plan)).get() : nullptr),
      symbols_(plan.bounds) {
  kernels::flush_denormals();
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

void Session::run(std::span<const i64> tokens, i64 rows) {
  if (tokens.size() == 1 && position_ > 0)
    enter("decode", ++steps_);
  else
    enter("prefill", 0);
  const i64 n = static_cast<i64>(tokens.size());
  if (position_ + n > plan_.context)
    fail(Code::does_not_fit, "position {} and {} tokens more do not fit the context of {}", position_, n,
         plan_.context);
  auto* ids = executor_.input<std::int32_t>("ids");
  auto* position = executor_.input<std::int32_t>("position");
  auto* sequence = executor_.input<std::int32_t>("sequence");
  auto* slot = executor_.input<std::int32_t>("slot");
  auto* table = executor_.input<std::int32_t>("table");
  auto* row = executor_.input<std::int32_t>("rows");
  for (i64 i = 0; i < plan_.context / plan_.page; i++) table[i] = static_cast<std::int32_t>(i);
  for (i64 i = 0; i < n; i++) {
    if (tokens[static_cast<size_t>(i)] < 0 || tokens[static_cast<size_t>(i)] >= plan_.config.V)
      fail(Code::usage, "token {} is not in the vocabulary of {}", tokens[static_cast<size_t>(i)], plan_.config.V);
    ids[i] = static_cast<std::int32_t>(tokens[static_cast<size_t>(i)]);
    position[i] = static_cast<std::int32_t>(position_ + i);
    sequence[i] = 0;
    slot[i] = table[(position_ + i) / plan_.page] * static_cast<std::int32_t>(plan_.page) +
              static_cast<std::int32_t>((position_ + i) % plan_.page);
  }
  for (i64 r = 0; r < rows; r++) row[r] = static_cast<std::int32_t>(n - rows + r);
  symbols_.size['T'] = n;
  symbols_.size['R'] = rows;
  executor_.bind(symbols_);
  try {
    executor_.run(context_);
  } catch (const Error& e) {
    if (e.code() != Code::not_finite) throw;
    const std::string where = n == 1 ? fmt::format("token at position {}", position_)
                                     : fmt::format("tokens at positions {} to {}", position_, position_ + n - 1);
    fail(e.code(), "{}: {}", where, e.what());
  }
  position_ += n;
}

std::span<const float> Session::forward(std::span<const i64> tokens) {
  const i64 chunk = plan_.bounds.size.at('T');
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk))
    run(tokens.subspan(i, std::min(static_cast<size_t>(chunk), tokens.size() - i)), 1);
  const View& logits = executor_.output("logits");
  return {logits.as<float>(), static_cast<size_t>(plan_.config.V)};
}

void Session::forward_all(std::span<const i64> tokens, const std::function<void(i64, std::span<const float>)>& f) {
  const i64 chunk = std::min(plan_.bounds.size.at('T'), plan_.bounds.size.at('R'));
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk)) {
    auto part = tokens.subspan(i, std::min(static_cast<size_t>(chunk), tokens.size() - i));
    run(part, static_cast<i64>(part.size()));
    const View& logits = executor_.output("logits");
    for (size_t r = 0; r < part.size(); r++)
      f(static_cast<i64>(i + r),
        {logits.as<float>() + static_cast<i64>(r) * plan_.config.V, static_cast<size_t>(plan_.config.V)});
  }
}

i64 Session::agree(i64 token, i64 stop) {
  if (fault_) fault_->before("sample");
  if (all_ == nullptr) return stop;
  i64 v[3] = {token, -token, stop};
  all_->wait(all_->start_all_reduce(v, v, 3, DType::i64, comm::Join::max, "token agreement"));
  if (v[0] != -v[1]) fail(Code::differs, "position {}: ranks hold different tokens, {} to {}", position_, -v[1], v[0]);
  return v[2];
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

Generated generate(Session& s, const Request& r) {
  PLAIT_CHECK(!r.prompt.empty(), "an empty prompt");
  Generated g;
  g.finish_reason = "length";
  kernels::SampleScratch scratch;
  double t0 = now_s();
  std::span<const float> logits = s.forward(r.prompt);
  double first = 0;
  while (static_cast<i64>(g.tokens.size()) < r.max_tokens) {
    i64 token = kernels::sample(logits, r.sampling, static_cast<u64>(s.position()), scratch);
    i64 stop = s.agree(token, r.interrupted != nullptr && r.interrupted->load(std::memory_order_relaxed) ? 1 : 0);
    if (g.tokens.empty()) {
      first = now_s();
      g.prefill_s = first - t0;
    }
    if (r.is_end && r.is_end(token)) {
      g.finish_reason = "stop";
      break;
    }
    g.tokens.push_back(token);
    if (s.rank() == 0 && r.on_token) r.on_token(token);
    if (stop != 0) {
      g.finish_reason = "interrupted";
      break;
    }
    if (static_cast<i64>(g.tokens.size()) == r.max_tokens) break;
    logits = s.forward(std::span<const i64>(&g.tokens.back(), 1));
    g.decoded++;
  }
  g.decode_s = now_s() - first;
  return g;
}

}  // namespace plait::serve
