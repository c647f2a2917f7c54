// Training steps on ranks, threads or processes: micro-batches, then one update. A step is a function of the global
// batch alone, so any plan, any number of micro-batches and any thread count give the same bits.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "plait/exec/fault.h"
#include "plait/exec/run_sharded.h"
#include "plait/models/training.h"

namespace plait::train {

/// Tokens of whole documents, one after the other. targets -1: not counted.
struct Batch {
  std::vector<std::int32_t> ids, position, sequence, targets;
  std::vector<i64> sequence_edges{0};  // where documents begin, and the end
  i64 tokens() const { return static_cast<i64>(ids.size()); }
  i64 counted() const;
  void add_document(const std::vector<std::int32_t>& document_ids, const std::vector<std::int32_t>& document_targets);
};

struct TrainingPlan {
  ModelConfig config;
  std::vector<std::string> weights;
  std::shared_ptr<const ShardedGraph> micro, update;
  i64 token_leaf = 256;

  /// Sizes of a weight's dims.
  std::vector<i64> sizes_of(const std::string& weight) const;
  /// T and its edges for a batch.
  Symbols symbols(const Batch& b) const;
};

/// One plan for both graphs, and one table of where states lie.
///   errors  usage: what propagate refuses
TrainingPlan make_training_plan(const ModelConfig& config, const BuildOptions& build, const OptimizerSpec& spec,
                                const Plan& plan);

/// One rank inside `train`.
class RankTrainer {
 public:
  RankTrainer(const TrainingPlan& plan, i64 rank, const std::vector<Symbols>& bounds, const FindCommunicator& find);
  i64 rank() const { return micro_.program().rank; }
  const View& state(const std::string& name) const { return micro_.state(name); }
  /// step: from 1; first: the number of the batch's first token in the step (dropout knows tokens by it).
  void micro(const Batch& batch, i64 step, i64 first);
  /// count: tokens of the global batch that count.
  void update(i64 count, double rate, i64 step);
  double loss() const { return output("loss"); }           // of the last update: the mean over counted tokens
  double norm() const { return output("gradient_norm"); }  // of its mean gradient, before clipping
  i64 step() const { return step_; }                       // of the last micro-batch
  i64 first_token() const { return first_; }               // of it, in the step
  Executor& micro_executor() { return micro_; }
  Executor& update_executor() { return update_; }

 private:
  double output(const char* label) const;

  const TrainingPlan& plan_;
  kernels::Team team_;
  kernels::Context context_;
  std::shared_ptr<States> states_;
  Executor update_, micro_;  // update lays the accumulators for its buckets
  i64 step_ = 0, first_ = 0;
};

struct Run {
  i64 steps = 1;
  std::function<std::vector<Batch>(i64 step)> batches;  // the micro-batches of a step (from 1)
  std::function<double(i64 step)> rate;
  std::function<void(const std::string& weight, const View& part)> initial;  // fills a rank's part
  std::function<void(RankTrainer&)> started;                                 // before the first step
  std::function<void(RankTrainer&, i64 step)> before_update, after_update;   // on every rank
  std::function<std::string(RankTrainer&)> result;                           // after the last step; null: nothing
  double deadline_s = 30;
  bool processes = false;  // ranks are processes, of which rank 0 is the calling one; else threads
  std::optional<Fault> fault;
  std::function<void(const Error&)> stuck;  // as comm::RunOptions
};
/// What run.result returned, by rank. What the functions of `run` change is seen here from all ranks that are threads,
/// and from rank 0 if they are processes.
///   errors  as comm::run_ranks and comm::run_processes: the first failure, with the rank's coordinates and the step
std::vector<std::string> train(const TrainingPlan& plan, const Run& run);

}  // namespace plait::train
