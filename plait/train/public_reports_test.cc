// Faults that users of other engines reported (docs/testing.md lists them by case), tried on our training step. The
// model is small: 2 layers, 8 query heads over 2 KV heads, a vocabulary that nothing divides. "Equal" is equal bits.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "plait/base/hash.h"
#include "plait/base/random.h"
#include "plait/models/random_weights.h"
#include "plait/train/record.h"

namespace plait::train {
namespace {

using Kind = OptimizerSpec::Kind;

ModelConfig llama(i64 N = 8, i64 K = 2) {
  ModelConfig c;
  c.family = "llama";
  c.D = 8 * N, c.N = N, c.K = K, c.H = 8, c.F = 96, c.V = 257, c.layers = 2, c.max_positions = 64, c.tied = true;
  return c;
}

ModelConfig gpt2() {
  ModelConfig c = llama(8, 8);
  c.family = "gpt2";
  c.attention_bias = true;
  return c;
}

struct Training {
  ModelConfig config = llama();
  OptimizerSpec spec = {.kind = Kind::sgd, .clip_norm = 0};
  DType real = DType::f32;
  i64 steps = 1;
  double rate = 1;
  i64 token_leaf = 4;
  std::function<std::vector<Batch>(i64 step)> batches = [](i64 step) { return random_batches(257, step, 4, 1); };
};

TrainingPlan plan_of(const Training& s, const Plan& plan) {
  BuildOptions o;
  o.real = o.compute = s.real;
  o.sum = s.real == DType::f64 ? DType::i128 : DType::i64;
  o.weight_dtype = [real = s.real](const std::string&) { return real; };
  o.leaves = {{'F', 16}, {'V', 32}, {'T', s.token_leaf}};
  return make_training_plan(s.config, o, s.spec, plan);
}

train::Run run_of(const Training& s, const TrainingPlan& p) {
  train::Run r;
  r.steps = s.steps;
  r.batches = s.batches;
  r.rate = [rate = s.rate](i64) { return rate; };
  r.initial = [&p](const std::string& name, const View& part) { fill_random(name, p.sizes_of(name), part); };
  return r;
}

Recorded recorded(const Training& s, const Plan& plan) {
  const TrainingPlan p = plan_of(s, plan);
  return record(p, run_of(s, p), true);
}

const Plan kOne = tensor_parallel(1);
Plan tp(i64 n, const std::string& dims = "NKFV") { return Plan{{{"tp", n, dims, false, {}}}}; }
Plan dp(i64 n) { return Plan{{{"dp", n, "T", true, {}}}}; }
Plan cp(i64 n) { return Plan{{{"cp", n, "T", false, {}}}}; }
Plan both(const Plan& a, const Plan& b) { return Plan{{a.axes[0], b.axes[0]}}; }

/// Every plan gives the bits of one rank.
void expect_equal(const Training& s, const std::vector<Plan>& plans, const std::string& what = "") {
  const Recorded one = recorded(s, kOne);
  for (auto& plan : plans) {
    const Recorded got = recorded(s, plan);
    EXPECT_EQ(got.bad_copy, "") << what << plan.text();
    for (auto& c : compare(got, one))
      EXPECT_EQ(c.different, 0) << what << c.kind << " of " << c.name << " at step " << c.step << "\n" << plan.text();
  }
}

Batch batch_of(const std::vector<std::vector<std::int32_t>>& documents, const std::vector<i64>& counted = {}) {
  Batch b;
  for (size_t d = 0; d < documents.size(); d++) {
    auto targets = documents[d];
    std::rotate(targets.begin(), targets.begin() + 1, targets.end());
    for (size_t i = 0; !counted.empty() && i < targets.size(); i++)
      if (static_cast<i64>(i) >= counted[d]) targets[i] = -1;
    b.add_document(documents[d], targets);
  }
  return b;
}

std::vector<std::int32_t> document(i64 length, u64 seed) {
  std::vector<std::int32_t> ids;
  for (i64 i = 0; i < length; i++)
    ids.push_back(static_cast<std::int32_t>(random_bits(stream_of("document"), seed * 64 + static_cast<u64>(i)) % 257));
  return ids;
}

/// What a step took from each weight, in order of the names.
std::vector<double> deltas(const Training& s, const Recorded& r) {
  const TrainingPlan p = plan_of(s, kOne);
  std::vector<double> all;
  for (auto& e : r.entries) {
    if (e.kind != "weight") continue;
    Tensor before(e.whole.dtype, e.whole.box);
    fill_random(e.name, p.sizes_of(e.name), before);
    for (i64 i = 0; i < before.elements(); i++) all.push_back(before.as<double>()[i] - e.whole.as<double>()[i]);
  }
  return all;
}

double norm(const std::vector<double>& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return std::sqrt(squares);
}

TEST(PublicReports, S01_OddVocabularyUnderTensorParallelism) {
  Training s;
  s.spec = {.kind = Kind::adamw};
  s.steps = 6;
  s.rate = 1e-2;
  expect_equal(s, {tp(2), tp(3), tp(4)});
  const TrainingPlan p = plan_of(s, tp(4));
  train::Run r = run_of(s, p);
  r.steps = 1;
  std::atomic<i64> rows{0}, last{0};
  r.started = [&](RankTrainer& t) {
    const Range v = t.state("embedding").box[0];
    rows += v.size();
    if (v.end == 257) last++;
    EXPECT_LE(v.end, 257) << "a padding row";
  };
  train(p, r);
  EXPECT_EQ(rows, 257);
  EXPECT_EQ(last, 1);
}

TEST(PublicReports, S03_NormWeightsStayEqualUnderSequenceParallelism) {
  for (auto& config : {llama(), gpt2()})
    for (auto& plan : {tp(2, "NKFVT"), tp(4, "NKFVT")}) {
      Training s;
      s.config = config;
      s.steps = 5;
      s.rate = 1e-2;
      std::mutex lock;
      std::map<std::pair<i64, std::string>, std::set<u64>> hashes;  // of whole vectors
      for (auto& way : {kOne, plan}) {
        const TrainingPlan p = plan_of(s, way);
        train::Run r = run_of(s, p);
        r.after_update = [&](RankTrainer& t, i64 step) {
          std::lock_guard guard(lock);
          for (auto& name : p.weights) {
            const View& v = t.state(name);
            if (name.find("norm") == std::string::npos) continue;
            EXPECT_EQ(v.elements(), p.sizes_of(name)[0]) << name << " is cut";
            hashes[{step, name}].insert(hash_bytes(v.data, bytes_of(v.dtype, v.elements())));
          }
        };
        train(p, r);
      }
      EXPECT_EQ(hashes.size(), static_cast<size_t>(s.steps * 5 * (config.family == "gpt2" ? 2 : 1)));
      for (auto& [at, different] : hashes)
        EXPECT_EQ(different.size(), 1u) << at.second << " after step " << at.first << "\n" << plan.text();
      std::set<u64> over_time;
      for (i64 step = 1; step <= s.steps; step++) over_time.insert(*hashes[{step, "norm"}].begin());
      EXPECT_EQ(over_time.size(), static_cast<size_t>(s.steps)) << "norms are not trained";
    }
}

TEST(PublicReports, S04_S20_GradientsAreScaledByTokensNotByRanks) {
  expect_equal({}, {dp(4), tp(4), cp(4), both(dp(2), tp(2)), both(dp(2), cp(2))});
}

TEST(PublicReports, S05_ReplicatedWeightsCountOnceInTheGlobalNorm) {
  Training s;
  s.real = DType::f64;
  s.spec.clip_norm = 0.1;
  // The step of a clipped gradient has the length of the clip, whatever is held twice: KV heads too at 4 and 8.
  const std::vector<Plan> plans = {tp(2), tp(4), tp(8), both(dp(2), tp(2)), tp(4, "NKFVT")};
  for (auto& plan : plans) EXPECT_NEAR(norm(deltas(s, recorded(s, plan))), 0.1, 1e-7) << plan.text();
  expect_equal(s, plans);
}

TEST(PublicReports, S06_S07_S08_S22_KvHeadsThatRanksShareOrDoNotDivide) {
  struct Case {
    i64 heads, kv_heads;
    std::vector<Plan> plans;
  };
  for (auto& c : {Case{8, 1, {tp(4), tp(8), tp(4, "NKFVT")}}, Case{8, 2, {tp(4), tp(8), cp(4)}},
                  Case{9, 3, {tp(2), tp(4)}}, Case{10, 5, {tp(2), tp(5), both(cp(2), tp(2))}}}) {
    Training s;
    s.config = llama(c.heads, c.kv_heads);
    expect_equal(s, c.plans, fmt::format("{} heads over {}: ", c.heads, c.kv_heads));
  }
}

TEST(PublicReports, S19_LengthsThatContextRanksDoNotDivide) {
  for (i64 length = 1; length <= 17; length++) {
    Training s;
    s.config.layers = 1;
    s.token_leaf = 2;
    s.batches = [&](i64) { return std::vector<Batch>{batch_of({document(length, 1)})}; };
    expect_equal(s, {cp(2), cp(4)}, fmt::format("{} tokens: ", length));
  }
}

TEST(PublicReports, S23_EveryLossTokenWeighsTheSame) {
  Training s;
  s.real = DType::f64;
  const auto a = document(8, 1), b = document(6, 2);
  auto step_with = [&](const Batch& batch, const Plan& plan) {
    s.batches = [batch](i64) { return std::vector<Batch>{batch}; };
    return deltas(s, recorded(s, plan));
  };
  const auto of_a = step_with(batch_of({a}, {5}), kOne), of_b = step_with(batch_of({b}, {1}), kOne);
  const auto together = step_with(batch_of({a, b}, {5, 1}), dp(2));
  std::vector<double> apart, per_rank;
  for (size_t i = 0; i < together.size(); i++) {
    apart.push_back(together[i] - (5 * of_a[i] + of_b[i]) / 6);
    per_rank.push_back(together[i] - (of_a[i] + of_b[i]) / 2);
  }
  EXPECT_LT(norm(apart), 1e-9 * norm(together));
  EXPECT_GT(norm(per_rank), 1e-2 * norm(together));
  expect_equal(s, {dp(2), cp(2)});
}

TEST(PublicReports, S24_AccumulationIsOneLargeBatch) {
  Training s;
  s.spec = {.kind = Kind::adamw};
  s.steps = 3;
  s.rate = 1e-2;
  std::vector<std::vector<std::int32_t>> documents;
  for (i64 length : {3, 9, 20, 31}) documents.push_back(document(length, static_cast<u64>(length)));
  auto dealt = [&](size_t micros) {
    std::vector<Batch> all;
    for (size_t m = 0; m < micros; m++)
      all.push_back(batch_of({documents.begin() + static_cast<long>(m * 4 / micros),
                              documents.begin() + static_cast<long>((m + 1) * 4 / micros)}));
    return all;
  };
  s.batches = [&](i64) { return dealt(1); };
  const Recorded one = recorded(s, kOne);
  for (size_t micros : {1, 2, 4})
    for (auto& plan : {kOne, dp(2)}) {
      s.batches = [&](i64) { return dealt(micros); };
      const Recorded got = recorded(s, plan);
      EXPECT_EQ(got.losses, one.losses) << micros;
      for (auto& c : compare(got, one)) EXPECT_EQ(c.different, 0) << micros << " micro-batches: " << c.name;
    }
}

TEST(PublicReports, S25_FewerDocumentsThanDataRanks) {
  Training s;
  s.steps = 2;
  s.rate = 1e-2;
  s.batches = [](i64 step) {
    return std::vector<Batch>{step == 1 ? batch_of({document(5, 1), document(7, 2), document(3, 3), document(9, 4)})
                                        : batch_of({document(6, 5)})};
  };
  expect_equal(s, {dp(4), both(dp(4), tp(2))});
}

TEST(PublicReports, S27_AGroupOfOneAddsNothing) {
  Training s;
  s.batches = [](i64) { return std::vector<Batch>{batch_of({document(5, 1)})}; };
  const Recorded one = recorded(s, kOne);
  s.batches = [](i64) { return std::vector<Batch>(8, batch_of({document(5, 1)})); };  // the same mean
  for (auto& plan : {kOne, dp(1), both(dp(1), tp(2)), both(cp(1), dp(1))})
    for (auto& c : compare(recorded(s, plan), one)) {
      if (c.kind == "gradient") continue;  // a sum, here of eight times the tokens
      EXPECT_EQ(c.different, 0) << c.kind << " of " << c.name << "\n" << plan.text();
    }
}

TEST(PublicReports, S28_WeightDecayIsOfMatricesAlone) {
  Training s;
  s.config = gpt2();
  s.spec = {.kind = Kind::adamw, .weight_decay = 0.5};
  s.rate = 0.1;
  for (auto& plan : {kOne, both(dp(2), tp(2))}) {
    const TrainingPlan p = plan_of(s, plan);
    train::Run r = run_of(s, p);
    r.before_update = [&](RankTrainer& t, i64) {
      for (auto& name : p.weights) {
        const View& sum = t.state("acc." + name);
        std::memset(sum.data, 0, static_cast<size_t>(bytes_of(sum.dtype, sum.elements())));
      }
    };
    r.after_update = [&](RankTrainer& t, i64) {
      for (auto& name : p.weights) {
        const View& w = t.state(name);
        Tensor before(w.dtype, w.box);
        fill_random(name, p.sizes_of(name), before);
        const bool vector = name.find("norm") != std::string::npos || name.find("bias") != std::string::npos;
        for (i64 i = 0; i < w.elements(); i++) {
          const float x = before.as<float>()[i];
          EXPECT_NEAR(w.as<float>()[i], vector ? x : x * 0.95f, std::fabs(x) * 1e-6f) << name;
        }
      }
    };
    train(p, r);
  }
}

// Only the longest document reads the position whose vector is no number: one rank sees it.
TEST(PublicReports, S29_WhatOneRankAloneSeesStopsAllBeforeTheStep) {
  for (auto& plan : {kOne, dp(4), both(dp(2), tp(2)), cp(4)}) {
    Training s;
    s.config = gpt2();
    s.batches = [](i64) {
      return std::vector<Batch>{batch_of({document(5, 1), document(7, 2), document(3, 3), document(12, 4)})};
    };
    const TrainingPlan p = plan_of(s, plan);
    train::Run r = run_of(s, p);
    r.initial = [&](const std::string& name, const View& part) {
      fill_random(name, p.sizes_of(name), part);
      if (name == "positions") part.as<float>()[11 * p.config.D] = std::numeric_limits<float>::quiet_NaN();
    };
    std::atomic<i64> stepped{0};
    r.after_update = [&](RankTrainer&, i64) { stepped++; };
    try {
      train(p, r);
      ADD_FAILURE() << "no error\n" << plan.text();
    } catch (const Error& e) { EXPECT_EQ(e.code(), Code::not_finite) << e.what(); }
    EXPECT_EQ(stepped, 0) << plan.text();
  }
}

}  // namespace
}  // namespace plait::train
