#include "plait/kernels/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plait/base/random.h"

namespace plait::kernels {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<i64> counts(const std::vector<float>& logits, const SamplingOptions& o, u64 draws) {
  std::vector<i64> n(logits.size());
  SampleScratch scratch;
  for (u64 p = 0; p < draws; p++) n[static_cast<size_t>(sample(logits, o, p, scratch))]++;
  return n;
}

TEST(Sample, GreedyTakesTheLowestOfEqualIds) {
  SampleScratch s;
  EXPECT_EQ(sample(std::vector<float>{1, 3, 2, 3}, {}, 0, s), 1);
  EXPECT_EQ(sample(std::vector<float>{-5}, {}, 7, s), 0);
  EXPECT_EQ(sample(std::vector<float>{kNone, -1e30f, kNone}, {}, 7, s), 1);
  std::vector<float> many(100, 0.25f);
  many[63] = many[99] = 0.5f;
  EXPECT_EQ(sample(many, {}, 0, s), 63);
  EXPECT_EQ(sample(many, {.temperature = 2, .top_k = 1}, 5, s), 63);
}

TEST(Sample, DrawsInProportion) {
  std::vector<float> logits{std::log(1.0f), std::log(2.0f), std::log(5.0f), kNone};
  auto n = counts(logits, {.temperature = 1, .seed = 3}, 8000);
  EXPECT_NEAR(n[0], 1000, 150);
  EXPECT_NEAR(n[1], 2000, 200);
  EXPECT_NEAR(n[2], 5000, 250);
  EXPECT_EQ(n[3], 0);
  n = counts(logits, {.temperature = 0.5, .seed = 4}, 6000);  // squares: 1 4 25
  EXPECT_NEAR(n[0], 200, 75);
  EXPECT_NEAR(n[1], 800, 130);
}

TEST(Sample, FiltersKeepWhatTheySay) {
  std::vector<float> logits;
  for (float p : {0.1f, 0.4f, 0.05f, 0.3f, 0.15f}) logits.push_back(std::log(p));
  auto kept = [&](SamplingOptions o) {
    o.temperature = 1;
    std::vector<i64> ids;
    auto n = counts(logits, o, 3000);
    for (size_t i = 0; i < n.size(); i++)
      if (n[i] > 0) ids.push_back(static_cast<i64>(i));
    return ids;
  };
  using Ids = std::vector<i64>;
  EXPECT_EQ(kept({}), Ids({0, 1, 2, 3, 4}));
  EXPECT_EQ(kept({.top_k = 2}), Ids({1, 3}));
  EXPECT_EQ(kept({.top_k = 99}), Ids({0, 1, 2, 3, 4}));
  EXPECT_EQ(kept({.top_p = 0.3f}), Ids({1}));
  EXPECT_EQ(kept({.top_p = 0.69f}), Ids({1, 3}));
  EXPECT_EQ(kept({.top_p = 0.8f}), Ids({1, 3, 4}));
  EXPECT_EQ(kept({.min_p = 0.3f}), Ids({1, 3, 4}));
  EXPECT_EQ(kept({.top_p = 0.99f, .min_p = 0.5f}), Ids({1, 3}));
  EXPECT_EQ(kept({.top_k = 3, .top_p = 0.8f}), Ids({1, 3}));  // 0.8 of the 0.85 that three have
}

TEST(Sample, EqualLogitsAreTakenByLowestId) {
  std::vector<float> logits(300, 1.0f);
  auto n = counts(logits, {.temperature = 1, .top_k = 2}, 400);
  EXPECT_EQ(n[0] + n[1], 400);
  EXPECT_GT(n[1], 100);
  n = counts(logits, {.temperature = 1, .top_p = 0.5f}, 3000);
  for (size_t i = 150; i < 300; i++) EXPECT_EQ(n[i], 0);
  EXPECT_GT(n[149] + n[148] + n[147] + n[146] + n[145], 20);
}

TEST(Sample, DependsOnSeedAndPositionAlone) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); i++) logits[i] = static_cast<float>(normal(1, i));
  SampleScratch s, t;
  SamplingOptions o{.temperature = 1, .seed = 5};
  std::vector<i64> forward, backward(50);
  for (u64 p = 0; p < 50; p++) forward.push_back(sample(logits, o, p, s));
  for (u64 p = 50; p-- > 0;) backward[p] = sample(logits, o, p, t);
  EXPECT_EQ(forward, backward);
  o.seed = 6;
  std::vector<i64> other;
  for (u64 p = 0; p < 50; p++) other.push_back(sample(logits, o, p, s));
  EXPECT_NE(forward, other);
}

TEST(Sample, RefusesWhatIsNotANumber) {
  SampleScratch s;
  for (float bad : {NAN, INFINITY}) EXPECT_THROW(sample(std::vector<float>{1, bad, 2}, {}, 0, s), Error);
  EXPECT_THROW(sample(std::vector<float>{kNone, kNone}, {}, 0, s), Error);
  std::vector<float> x{1, 2};
  for (SamplingOptions o : {SamplingOptions{.temperature = -1},
                            {.temperature = NAN},
                            {.top_k = -1},
                            {.top_p = 0},
                            {.top_p = 1.5f},
                            {.min_p = -0.1f},
                            {.min_p = 2}})
    EXPECT_THROW(sample(x, o, 0, s), Error);
  EXPECT_EQ(sample(x, {.temperature = 1e-40f}, 0, s), 1);
}

TEST(Sample, Margin) {
  Margin m = top_margin(std::vector<float>{1, 4, 2.5f, 4});
  EXPECT_EQ(m.id, 1);
  EXPECT_EQ(m.second, 3);
  EXPECT_EQ(m.gap, 0);
  m = top_margin(std::vector<float>{1, 2.5f, 4});
  EXPECT_EQ(m.id, 2);
  EXPECT_EQ(m.gap, 1.5f);
  m = top_margin(std::vector<float>{3});
  EXPECT_EQ(m.second, -1);
  EXPECT_TRUE(std::isinf(m.gap));
}

TEST(Sample, NegativeLogLikelihood) {
  std::vector<float> scratch, logits;
  for (i64 i = 0; i < 1000; i++) logits.push_back(static_cast<float>(normal(5, static_cast<u64>(i))) * 4 + 80);
  double total = 0;
  for (float x : logits) total += std::exp(static_cast<double>(x) - 80);
  for (i64 id : {0, 7, 999})
    EXPECT_NEAR(negative_log_likelihood(logits, id, scratch),
                std::log(total) + 80 - static_cast<double>(logits[static_cast<size_t>(id)]), 1e-6);
  EXPECT_EQ(negative_log_likelihood(std::vector<float>{3}, 0, scratch), 0);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{2, kNone, 2}, 2, scratch), std::log(2.0), 1e-7);
  EXPECT_EQ(negative_log_likelihood(std::vector<float>{2, kNone}, 1, scratch), INFINITY);
  EXPECT_THROW(negative_log_likelihood(std::vector<float>{2, NAN}, 0, scratch), Error);
}

}  // namespace
}  // namespace plait::kernels
