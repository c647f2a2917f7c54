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

/// Tokens that a run appends to a sequence, and of how many of the last of them the logits are wanted.
struct Piece {
  i64 sequence = 0;
  std::span<const i64> tokens;
  i64 rows = 1;
};

/// One rank, inside Engine::run. Positions of a sequence go on from call to call until it is reset; calls without a
/// sequence mean the first.
class Session {
 public:
  Session(const ServingPlan& plan, i64 rank, const io::ModelFiles& files, const comm::LocalWorld& world,
          const std::map<std::vector<bool>, i64>& groups, const EngineOptions& options, std::vector<int> cpus);
  i64 rank() const { return executor_.program().rank; }
  const ServingPlan& plan() const { return plan_; }
  Executor& executor() { return executor_; }
  kernels::Team& team() { return team_; }
  i64 position(i64 sequence = 0) const { return position_[static_cast<size_t>(sequence)]; }

  /// All sequences begin anew.
  void reset();
  void reset(i64 sequence) { position_[static_cast<size_t>(sequence)] = 0; }
  /// Appends tokens to the sequence; the logits [V] of the last one, valid until the next call. Every rank has them
  /// all.
  ///   errors  does_not_fit: beyond the context
  std::span<const float> forward(std::span<const i64> tokens);
  /// The same, and the logits of every token: f(index, logits).
  void forward_all(std::span<const i64> tokens, const std::function<void(i64, std::span<const float>)>& f);
  /// One run of pieces of different sequences; the logits that they want [rows V], in their order, valid until the next
  /// call. A row has the bits that it would have alone.
  ///   errors  does_not_fit: more tokens or rows than the plan's bounds, or beyond the context
  std::span<const float> step(std::span<const Piece> pieces);

  /// All ranks must come with the same token; the highest `stop` of any rank comes back.
  ///   errors  differs: they hold different tokens
  i64 agree(i64 token, i64 stop);
  /// The same for several; stops are overwritten by the highest of any rank, each.
  void agree(std::span<const i64> tokens, std::span<i64> stops);
  /// Waits until all ranks have come here.
  void barrier(const char* what);

  RankReport report() const;
  void reset_profile();

 private:
  void run(std::span<const Piece> pieces);
  void enter(std::string_view phase, i64 step);
  const ServingPlan& plan_;
  const comm::LocalWorld& world_;
  kernels::Team team_;
  kernels::Context context_;
  std::map<std::vector<bool>, std::unique_ptr<comm::Communicator>> communicators_;
  Executor executor_;
  comm::Communicator* all_;  // of all ranks; null for a rank alone
  Symbols symbols_;
  std::vector<i64> position_;  // by sequence
  i64 steps_ = 0;              // of one token a sequence, since the prompt
  std::vector<i64> agreement_;
  std::vector<bool> seen_;  // sequences of a step
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
  std::function<bool(i64)> stops;     // on rank 0, asked of each token in order: does the text end with it? null: never
  const std::atomic<bool>* interrupted = nullptr;
};

struct Generated {
  std::vector<i64> tokens;
  std::string finish_reason;           // stop | length | interrupted
  double prefill_s = 0, decode_s = 0;  // decode: tokens after the first
  i64 decoded = 0;
};
Generated generate(Session& s, const Request& r);

/// Several requests, as many together as the plan has sequences: one that ends makes room for the next in order,
/// prompts are read in chunks beside the others' steps. Each has the tokens that it would have alone. `done` is called
/// on rank 0 as they end, with the number of the request. Interrupted by any request's flag; what has not begun then
/// has no tokens.
std::vector<Generated> generate_all(Session& s, std::span<const Request> requests,
                                    const std::function<void(i64, const Generated&)>& done = {});

}  // namespace plait::serve
