// What the tests of training steps share: a run of a plan, and what differs first.
#pragma once
#include "plait/models/random_weights.h"
#include "plait/models/test_configs.h"
#include "plait/train/record.h"
#include "plait/train/values.h"

namespace plait::train {

inline ModelConfig with_dropout(ModelConfig c) {
  c.embedding_dropout = 0.1, c.residual_dropout = 0.2, c.attention_dropout = 0.15;
  return c;
}

struct Experiment {
  ModelConfig config;
  BuildOptions build;
  OptimizerSpec spec;
  i64 micros = 1, documents = 6;
};

inline Experiment experiment(const ModelConfig& config, DType real, DType compute, OptimizerSpec::Kind kind) {
  Experiment s;
  s.config = config;
  s.build.real = real;
  s.build.compute = compute;
  s.build.sum = real == DType::f64 ? DType::i128 : DType::i64;
  s.build.weight_dtype = [real](const std::string&) { return real; };
  s.build.leaves = {{'F', 16}, {'V', 32}, {'T', 8}};
  s.spec.kind = kind;
  s.spec.weight_decay = 0.1;
  return s;
}

inline PlanAxis axis(const std::string& name, i64 size, const std::string& dims, bool data = false,
                     std::vector<i64> weights = {}) {
  return {name, size, dims, data, std::move(weights)};
}

inline TrainingPlan plan_of(const Experiment& e, const Plan& plan) {
  return make_training_plan(e.config, e.build, e.spec, plan);
}

/// Documents of 3 to 20 tokens, dealt to the micro-batches; all gradients, and every number on the way.
inline Recorded run(const Experiment& e, const TrainingPlan& p, i64 steps, Values& values) {
  Run r;
  r.steps = steps;
  r.batches = [&](i64 step) { return random_batches(e.config.V, step, e.documents, e.micros); };
  r.rate = [](i64 step) { return 1e-2 / static_cast<double>(step); };
  r.initial = [&](const std::string& name, const View& part) { fill_random(name, p.sizes_of(name), part); };
  r.started = [&](RankTrainer& t) { values.watch(t); };
  return record(p, r, true);
}

/// One rank, with what it made.
struct Oracle {
  TrainingPlan plan;
  Values values;
  Recorded recorded;
  Oracle(const Experiment& e, i64 steps)
      : plan(plan_of(e, tensor_parallel(1))), values(plan), recorded(run(e, plan, steps, values)) {}
};

/// What differs first; empty when all bits are equal, on all ranks.
inline std::string difference(const Oracle& oracle, const Recorded& got, const Values& values) {
  if (values.first()) return values.first()->text();
  if (!got.bad_copy.empty()) return got.bad_copy;
  for (auto& c : compare(got, oracle.recorded))
    if (c.different > 0)
      return fmt::format("{} of {} at step {}: {} elements, first {} got {} want {}", c.kind, c.name, c.step,
                         c.different, c.where, c.got, c.want);
  return {};
}

}  // namespace plait::train
