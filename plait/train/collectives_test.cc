// The collectives of forward and backward of a training step, counted for every family under every kind of axis: equal
// bits do not show a needless one. Those of the update: explain_test.cc.
#include <gtest/gtest.h>

#include "plait/train/explain.h"
#include "plait/train/test_models.h"

namespace plait::train {
namespace {

/// By phase and op: how many a third layer adds, and the rest.
std::string counts(ModelConfig c, const PlanAxis& axis) {
  std::map<std::string, std::map<i64, i64>> of;  // by layers
  for (i64 layers : {2, 3}) {
    c.layers = layers;
    for (auto& row : explain(make_training_plan(c, {}, {}, Plan{{axis}}), 64, 16).collectives)
      if (row.phase != "update") of[row.phase + " " + row.op][layers] += row.count;
  }
  std::string text;
  for (auto& [what, n] : of) {
    const i64 a_layer = n[3] - n[2];
    text += fmt::format("{}: {} a layer, {}\n", what, a_layer, n[2] - 2 * a_layer);
  }
  return text;
}

// Dropout, which the GPT-2 has, costs none.
TEST(TrainCollectives, OfEveryFamilyAndAxis) {
  const PlanAxis tp = axis("tp", 2, "KNFV"), sp = axis("tp", 2, "KNFVT"), dp = axis("dp", 2, "T", true),
                 cp = axis("cp", 2, "T");
  const ModelConfig llama = small_llama(), gpt2 = with_dropout(small_gpt2());
  // Outside of layers, forward: embedding, row maximum, sum of exponentials, picked logit.
  const std::string tensor =
      "backward all_reduce: 2 a layer, 1\n"
      "forward all_reduce: 2 a layer, 4\n";
  const std::string context =
      "backward prefix_gather: 2 a layer, 0\n"
      "backward sum_overlap: 2 a layer, 0\n"
      "forward prefix_gather: 2 a layer, 0\n";
  EXPECT_EQ(counts(llama, tp), tensor);
  EXPECT_EQ(counts(gpt2, tp), tensor);
  EXPECT_EQ(counts(llama, sp),
            "backward all_gather: 4 a layer, 5\n"
            "backward reduce_scatter: 2 a layer, 2\n"
            "forward all_gather: 2 a layer, 2\n"
            "forward reduce_scatter: 2 a layer, 4\n");
  EXPECT_EQ(counts(gpt2, sp),
            "backward all_gather: 4 a layer, 5\n"
            "backward reduce_scatter: 2 a layer, 1\n"
            "forward all_gather: 2 a layer, 2\n"
            "forward reduce_scatter: 2 a layer, 4\n");
  EXPECT_EQ(counts(llama, dp), "");  // in the update alone
  EXPECT_EQ(counts(gpt2, dp), "");
  EXPECT_EQ(counts(llama, cp), context);
  EXPECT_EQ(counts(gpt2, cp), context);
}

}  // namespace
}  // namespace plait::train
