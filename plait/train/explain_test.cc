// What `explain --train` says of the small Llama: the famous counts.
#include "plait/train/explain.h"

#include <gtest/gtest.h>

#include "plait/models/test_configs.h"

namespace plait::train {
namespace {

TrainExplanation of(const Plan& plan, DType compute = DType::f32) {
  BuildOptions build;
  build.compute = compute;
  build.weight_dtype = [](const std::string&) { return DType::f32; };
  return explain(make_training_plan(small_llama(3), build, {}, plan), 64, 16);
}

/// Collectives of an op on an axis in a phase, counted over those that layers have: a layer's share.
i64 per_layer(const TrainExplanation& e, const std::string& phase, const std::string& op) {
  i64 n = 0;
  for (auto& c : e.collectives)
    if (c.phase == phase && c.op == op && c.layers == 3) n += c.count;
  return n / 3;
}

TEST(TrainExplain, TensorParallel) {
  TrainExplanation e = of(Plan{{{"tp", 2, "KNFV", false, {}}}});
  EXPECT_EQ(per_layer(e, "forward", "all_reduce"), 2);
  EXPECT_EQ(per_layer(e, "backward", "all_reduce"), 2);
  EXPECT_EQ(per_layer(e, "backward", "sum_overlap"), 0);
  EXPECT_EQ(per_layer(of(Plan{{{"tp", 2, "NKFV", false, {}}}}), "backward", "sum_overlap"), 2);  // dk and dv
}

TEST(TrainExplain, SequenceParallelMovesTheSameBytes) {
  TrainExplanation tp = of(Plan{{{"tp", 2, "KNFV", false, {}}}}), sp = of(Plan{{{"tp", 2, "KNFVT", false, {}}}});
  EXPECT_EQ(per_layer(sp, "forward", "all_gather"), 2);
  EXPECT_EQ(per_layer(sp, "forward", "reduce_scatter"), 2);
  EXPECT_EQ(per_layer(sp, "backward", "reduce_scatter"), 2);
  EXPECT_EQ(per_layer(sp, "forward", "all_reduce") + per_layer(sp, "backward", "all_reduce"), 0);
  EXPECT_LT(sp.memory[0].activations, tp.memory[0].activations);
}

// One exchange on the data axis, where the sums lie: 3 layers of 9 weights, the embedding, the last norm; the loss; and
// no second one for the norm of the gradients.
TEST(TrainExplain, DataParallelReducesAllGradientsAtOnce) {
  TrainExplanation one = of(Plan{{{"dp", 1, "T", true, {}}}}), e = of(Plan{{{"dp", 2, "T", true, {}}}});
  ASSERT_EQ(e.collectives.size(), 1u);
  const TrainCollective& c = e.collectives[0];
  EXPECT_EQ(c.phase, "update");
  EXPECT_EQ(c.op, "all_reduce");
  EXPECT_EQ(c.axis, "dp");
  EXPECT_EQ(c.count, 1);
  EXPECT_EQ(c.values, 3 * 9 + 2 + 1);
  EXPECT_EQ(c.bytes, e.memory[0].gradients);
  EXPECT_EQ(e.memory[0].gradients, e.memory[1].gradients);
  EXPECT_EQ(e.memory[0].update, one.memory[0].update);  // no copies of the sums
}

// Of the tensor axis the sums of the data axis know nothing; norms under sequence parallelism are summed over both.
TEST(TrainExplain, BucketsByAxes) {
  TrainExplanation e = of(Plan{{{"dp", 2, "T", true, {}}, {"tp", 2, "KNFVT", false, {}}}});
  std::map<std::string, std::pair<i64, i64>> update;  // by axes: collectives, sums
  for (auto& c : e.collectives)
    if (c.cause == "acc.*") update[c.axis] = {c.count, c.values};
  EXPECT_EQ(update,
            (std::map<std::string, std::pair<i64, i64>>{{"dp", {1, 3 * 7 + 1}}, {"dp tp", {1, 3 * 2 + 1 + 1}}}));
}

TEST(TrainExplain, Bf16) {
  const Plan tp{{{"tp", 2, "KNFV", false, {}}}}, sp{{{"tp", 2, "KNFVT", false, {}}}};
  TrainExplanation f32 = of(tp), bf16 = of(tp, DType::bf16);
  EXPECT_EQ(per_layer(bf16, "forward", "all_reduce"), 2);
  EXPECT_EQ(per_layer(bf16, "backward", "all_reduce"), 2);
  EXPECT_EQ(bf16.memory[0].weights, f32.memory[0].weights);
  EXPECT_EQ(bf16.memory[0].moments, f32.memory[0].moments);
  auto gathered = [](const TrainExplanation& e) {
    i64 bytes = 0;
    for (auto& c : e.collectives)
      if (c.phase != "update" && c.op == "all_gather" && c.layers == 3) bytes += c.bytes * c.count;
    return bytes;
  };
  EXPECT_EQ(2 * gathered(of(sp, DType::bf16)), gathered(of(sp)));
}

}  // namespace
}  // namespace plait::train
