// Whole training steps under random plans, tensor x data x context parallel, even and weighted, with sequence
// parallelism and micro-batches, against one rank: every number on the way, losses, gradients, moments and weights of
// every rank have the same bits.
//
//   PLAIT_FUZZ_PLANS=2000 build/train_test --gtest_filter=TrainingPlans.Random     (PLAIT_FUZZ_SEED: others)
#include <gtest/gtest.h>

#include <cstdlib>

#include "plait/base/random.h"
#include "plait/train/test_models.h"

namespace plait::train {
namespace {

struct Numbers {
  DType real, compute;
};
constexpr Numbers kNumbers[] = {{DType::f32, DType::f32}, {DType::f32, DType::bf16}, {DType::f64, DType::f64}};
constexpr i64 kSteps = 2, kMostRanks = 12;

struct Case {
  Experiment experiment;
  std::unique_ptr<Oracle> oracle;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (auto& n : kNumbers)
    for (auto& config : {small_llama(), with_dropout(small_gpt2())}) {
      const auto kind = all.size() % 2 == 0 ? OptimizerSpec::Kind::adamw : OptimizerSpec::Kind::sgd;
      Case c{experiment(config, n.real, n.compute, kind), nullptr};
      c.experiment.documents = 4;
      c.oracle = std::make_unique<Oracle>(c.experiment, kSteps);
      all.push_back(std::move(c));
    }
  return all;
}

struct Draw {
  u64 stream, next = 0;
  i64 below(i64 n) { return static_cast<i64>(random_bits(stream, next++) % static_cast<u64>(n)); }
};

/// Every third time weights from 0 to 3, not all of them 0.
std::vector<i64> random_weights(Draw& draw, i64 size) {
  std::vector<i64> w;
  if (draw.below(3) > 0) return w;
  for (i64 i = 0; i < size; i++) w.push_back(draw.below(4));
  w[static_cast<size_t>(draw.below(size))] = 1;
  return w;
}

Plan random_plan(Draw& draw) {
  i64 tp = 0, dp = 0, cp = 0;
  do { tp = 1 + draw.below(9), dp = 1 + draw.below(3), cp = 1 + draw.below(3); } while (tp * dp * cp > kMostRanks);
  constexpr const char* kDims[] = {"NKFV", "KNFV", "NKF", "FV"};
  const std::string dims = kDims[draw.below(4)];
  const bool sequences = draw.below(2) == 0;
  Plan plan{
      {axis("dp", dp, "T", true, random_weights(draw, dp)), axis("cp", cp, "T", false, random_weights(draw, cp))}};
  const i64 outermost = sequences ? 1 : 0;  // cuts of T: between documents first
  plan.axes.insert(plan.axes.begin() + outermost + draw.below(3 - outermost),
                   axis("tp", tp, sequences ? dims + "T" : dims, false, random_weights(draw, tp)));
  return plan;
}

u64 number(const char* name, u64 otherwise) {
  const char* s = std::getenv(name);
  return s != nullptr ? std::strtoull(s, nullptr, 10) : otherwise;
}

TEST(TrainingPlans, Random) {
  const u64 plans = number("PLAIT_FUZZ_PLANS", 100), seed = number("PLAIT_FUZZ_SEED", 1);
  std::vector<Case> all = cases();
  u64 ranks = 0, values = 0;
  for (u64 k = 0; k < plans; k++) {
    Draw draw{seed * 1000003 + k};
    Case& c = all[k % all.size()];
    const Plan plan = random_plan(draw);
    c.experiment.micros = 1 + draw.below(3);
    const TrainingPlan training = plan_of(c.experiment, plan);
    Values made(training, &c.oracle->values);
    const Recorded got = run(c.experiment, training, kSteps, made);
    ASSERT_EQ(difference(*c.oracle, got, made), "")
        << "seed " << seed << " plan " << k << ", " << c.experiment.config.family << " in "
        << name_of(c.experiment.build.compute) << ", " << c.experiment.micros << " micro-batches\n"
        << plan.text();
    ranks += static_cast<u64>(plan.world());
    values += static_cast<u64>(made.compared() + got.copies);
  }
  RecordProperty("ranks", std::to_string(ranks));
  RecordProperty("values", std::to_string(values));
}

}  // namespace
}  // namespace plait::train
