// Every number that ranks make in the micro graph, forward and backward, against those of one rank: the first that
// differs has a name.
#pragma once
#include <mutex>
#include <optional>
#include <tuple>

#include "plait/train/trainer.h"

namespace plait::train {

struct ValueDifference {
  std::string label, op;
  i64 layer = -1, step = 0, rank = 0;
  std::string where;  // global index, tokens numbered through the step
  double got = 0, want = 0;
  std::string text() const;
};

class Values {
 public:
  /// oracle null: keeps what a run makes, of one rank with one micro-batch a step; else compares with what that kept.
  explicit Values(const TrainingPlan& plan, const Values* oracle = nullptr) : graph_(plan.micro), oracle_(oracle) {}
  /// For Run::started. Sums that nobody has finished are left out: gradients are recorded (record.h).
  void watch(RankTrainer& t);
  /// Of ranks that are processes each has its own: what one saw, and taking that up in rank 0.
  std::string told() const;
  void hear(const std::string& told);
  i64 compared() const { return compared_; }  // parts that ranks have whole
  /// In order of steps, micro-batches and the program.
  const std::optional<ValueDifference>& first() const { return first_; }

 private:
  void see(const RankTrainer& t, const Call& call, ValueId v, const View& view);
  std::optional<ValueDifference> compare(const RankTrainer& t, ValueId v, const View& got, const View& want) const;

  std::shared_ptr<const ShardedGraph> graph_;
  const Values* oracle_;
  std::map<std::pair<i64, ValueId>, Tensor> kept_;  // by step
  std::mutex lock_;
  i64 compared_ = 0;
  std::optional<ValueDifference> first_;
  std::tuple<i64, i64, i64> first_at_;
};

}  // namespace plait::train
