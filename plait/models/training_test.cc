// The graphs of a training step in bf16: which values have which type.
#include "plait/models/training.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TrainingGraphs step(const std::string& family, DType compute) {
  ModelConfig c;
  c.family = family;
  c.D = 32, c.N = c.K = 4, c.H = 8, c.F = 64, c.V = 97, c.layers = 2, c.max_positions = 64;
  c.tied = true, c.attention_bias = family == "gpt2";
  BuildOptions o;
  o.compute = compute;
  o.weight_dtype = [](const std::string&) { return DType::f32; };
  return build_training_step(c, o, {});
}

TEST(TrainingGraphs, OperandsAndWhatIsKeptAreBf16TheRestF32) {
  for (const std::string family : {"llama", "gpt2"}) {
    const TrainingGraphs t = step(family, DType::bf16);
    const std::set<std::string> reads_bf16 = {"matmul", "silu_mul", "gelu", "attention", "attention_vjp"};
    std::map<ValueId, i64> casts;
    for (auto& n : t.micro.nodes) {
      const std::string where = family + " " + n.op->name + " " + n.attrs.label;
      if (reads_bf16.count(n.op->name) > 0)
        for (ValueId v : n.in)
          if (t.micro.at(v).type == Type::num && t.micro.at(v).dims != "TN") {
            EXPECT_EQ(t.micro.at(v).dtype, DType::bf16) << where << " reads " << t.micro.at(v).name;
          }
      if (n.op->name == "cast") casts[n.in[0]]++;
      // What comes from a product or a norm's gradient, the residual stream and the loss.
      if (n.backward && n.op->name != "cast") {
        for (ValueId v : n.out) EXPECT_NE(t.micro.at(v).dtype, DType::bf16) << where;
      }
      if (n.op->name == "add" || n.op->name == "embedding") {
        EXPECT_EQ(t.micro.at(n.out[0]).dtype, DType::f32) << where;
      }
      if (n.op->name == "row_max" || n.op->name == "sum_exp") {
        EXPECT_EQ(t.micro.at(n.in[0]).dtype, DType::f32) << where;
      }
    }
    for (auto& [v, n] : casts) EXPECT_EQ(n, 1) << family << " casts " << t.micro.at(v).name << " again";
    for (auto* g : {&t.micro, &t.update})
      for (auto& [name, v] : g->named)
        if (g->at(v).type == Type::num) { EXPECT_EQ(g->at(v).dtype, DType::f32) << family << " " << name; }
  }
}

TEST(TrainingGraphs, NothingIsCastWhereAllIsF32) {
  for (auto& n : step("llama", DType::f32).micro.nodes) EXPECT_NE(n.op->name, "cast") << n.attrs.label;
}

}  // namespace
}  // namespace plait
