// Ranks that generate together. Every rank runs the same program on its own part: load, prefill, decode, sample; the
// ranks agree on each token. On one machine they are threads, or processes over one shared mapping.
#pragma once
#include <atomic>
#include <functional>
#include <span>

#include "plait/comm/local/local_world.h"
#include "plait/exec/fault.h"
#include "plait/kernels/sample.h"
#include "plait/serve/serving_plan.h"

namespace plait::serve {

struct EngineOptions {
  i64 threads = 0;         // of a rank; 0: allowed cores / ranks, at least 1
  double deadline_s = 30;  // longest wait of a rank for another
  bool pin = false;        // each thread to a core of its own, where there are enough
  bool processes = false;  // ranks are processes, of which rank 0 is the calling one; else threads
  std::optional<Fault> fault;
  /// Called with the error when a rank has failed and another does not stop; it ends the process. Null: waits.
  std::function<void(const Error&)> stuck;
};

/// Cores that this process may use.
std::vector<int> allowed_cpus();

/// What a rank did.
struct RankReport {
  std::string coords;
  RankMemory memory;  // as allocated
  double load_s = 0;
  double compute_s = 0, comm_s = 0, wait_s = 0;
};

/// One rank, inside Engine::run. One sequence at a time: positions go on from call to call until `reset`.
class Session {
 public:
  Session(const ServingPlan& plan, i64 rank, const io::ModelFiles& files, const comm::LocalWorld& world,
          const std::map<std::vector<bool>, i64>& groups, const EngineOptions& options, std::vector<int> cpus);
  i64 rank() const { return executor_.program().rank; }
  Executor& executor() { return executor_; }
  i64 position() const { return position_; }

  void reset() { position_ = steps_ = 0; }
  /// Appends tokens to the sequence; the logits [V] of the last one, valid until the next call. Every rank has them
  /// all.
  ///   errors  does_not_fit: beyond the context
  std::span<const float> forward(std::span<const i64> tokens);
  /// The same, and the logits of every token: f(index, logits).
  void forward_all(std::span<const i64> tokens, const std::function<void(i64, std::span<const float>)>& f);

  /// All ranks must come with the same token; the highest `stop` of any rank comes back.
  ///   errors  differs: they hold different tokens
  i64 agree(i64 token, i64 stop);
  /// Waits until all ranks have come here.
  void barrier(const char* what);

  RankReport report() const;
  void reset_profile();

 private:
  void run(std::span<const i64> tokens, i64 rows);
  void enter(std::string_view phase, i64 step);
  const ServingPlan& plan_;
  const comm::LocalWorld& world_;
  kernels::Team team_;
  kernels::Context context_;
  std::map<std::vector<bool>, std::unique_ptr<comm::Communicator>> communicators_;
  Executor executor_;
  comm::Communicator* all_;  // of all ranks; null for a rank alone
  Symbols symbols_;
  i64 position_ = 0, steps_ = 0;  // steps: of one token, since the prompt
  std::optional<FaultInjector> fault_;
  double load_s_ = 0;
};

class Engine {
 public:
  Engine(const io::ModelFiles& files, ServingPlan plan, EngineOptions options = {});
  const ServingPlan& plan() const { return plan_; }
  i64 threads() const { return threads_; }
  /// f on every rank, weights loaded. An error of one ends all; the cause is thrown, with the rank's name. What f
  /// changes outside its Session is seen here from all ranks that are threads, and from rank 0 if they are processes.
  void run(const std::function<void(Session&)>& f);
  /// The same; what f returned, by rank, also of processes.
  std::vector<std::string> collect(const std::function<std::string(Session&)>& f);
  const std::vector<RankReport>& reports() const { return reports_; }

 private:
  const io::ModelFiles& files_;
  ServingPlan plan_;
  EngineOptions options_;
  i64 threads_;
  std::vector<RankReport> reports_;
};

struct Request {
  std::vector<i64> prompt;
  i64 max_tokens = 128;
  kernels::SamplingOptions sampling;
  std::function<bool(i64)> is_end;    // ends the text; null: never
  std::function<void(i64)> on_token;  // on rank 0
  const std::atomic<bool>* interrupted = nullptr;
};

struct Generated {
  std::vector<i64> tokens;
  std::string finish_reason;           // stop | length | interrupted
  double prefill_s = 0, decode_s = 0;  // decode: tokens after the first
  i64 decoded = 0;
};
Generated generate(Session& s, const Request& r);

}  // namespace plait::serve
