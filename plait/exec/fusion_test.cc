// Which calls of a model are fused, and that nothing else changes.
#include "plait/exec/fusion.h"

#include <gtest/gtest.h>

#include "plait/exec/executor.h"
#include "plait/models/family.h"

namespace plait {
namespace {

ModelConfig smollm2() {
  ModelConfig c;
  c.family = "llama";
  c.D = 576, c.N = 9, c.K = 3, c.H = 64, c.F = 1536, c.V = 49152, c.layers = 30, c.max_positions = 8192, c.tied = true;
  return c;
}

ModelConfig gpt2() {
  ModelConfig c;
  c.family = "gpt2";
  c.D = 768, c.N = c.K = 12, c.H = 64, c.F = 3072, c.V = 50257, c.layers = 12, c.max_positions = 1024, c.tied = true;
  c.attention_bias = true;
  return c;
}

struct Counts {
  i64 alone = 0, fused = 0;
  std::map<std::string, i64> by;
};

Counts count(const ModelConfig& c, i64 tp) {
  const Graph g = build_serving(c, {});
  const Program p = partition(std::make_shared<ShardedGraph>(propagate(g, tensor_parallel(tp))), 0);
  Counts n;
  n.alone = n.fused = static_cast<i64>(p.calls.size());
  i64 before = 0;
  for (auto& w : find_fusions(p)) {
    EXPECT_GE(w.first, before) << w.fusion->name;
    before = w.end();
    n.fused -= w.count - 1;
    n.by[w.fusion->name]++;
  }
  return n;
}

// A decode step of SmolLM2: 19 calls a layer become 7. With ranks two starts and waits a layer stay as they are.
TEST(Fusion, CallsOfADecodeStep) {
  const Counts one = count(smollm2(), 1);
  EXPECT_EQ(one.alone, 575);
  EXPECT_EQ(one.fused, 216);
  EXPECT_EQ(one.by, (std::map<std::string, i64>{{"qkv + rope + kv_write", 30},
                                                {"gate + up + silu_mul", 30},
                                                {"finish + add + rms_norm", 59},
                                                {"finish + add", 1}}));
  const Counts three = count(smollm2(), 3);
  EXPECT_EQ(three.by, one.by);
  EXPECT_EQ(three.alone - three.fused, one.alone - one.fused);
  const Counts other = count(gpt2(), 2);
  EXPECT_EQ(other.by, (std::map<std::string, i64>{{"qkv + bias + kv_write", 12},
                                                  {"up + bias + gelu", 12},
                                                  {"finish + bias + add + layer_norm", 23},
                                                  {"finish + bias + add", 1},
                                                  {"add + layer_norm", 1}}));
}

// A value that somebody else reads is written, so a kernel that would not write it does not stand for its calls.
TEST(Fusion, ResultsThatOthersReadAreWritten) {
  for (bool read : {false, true}) {
    Graph g;
    g.name = "test";
    g.dims = {{'T', {0, 4}}, {'D', {8, 0}}, {'F', {32, 16}}};
    const ValueId x = g.input("x", "TF", Type::num), r = g.input("r", "TD", Type::num);
    const ValueId w = g.state("w", "DF"), gain = g.state("gain", "D");
    const ValueId sum = g.one("matmul", {x, w}, {.rule = "t f, d f -> t d"});
    const ValueId y = g.one("finish", {sum}, {});
    const ValueId z = g.one("add", {r, y}, {});
    g.one("rms_norm", {z, gain}, {.x = {{"eps", 1e-5}}});
    if (read) g.one("add", {z, y}, {});
    const Program p = partition(std::make_shared<ShardedGraph>(propagate(g, tensor_parallel(1))), 0);
    const auto found = find_fusions(p);
    ASSERT_EQ(found.size(), read ? 0u : 1u);
    if (!read) { EXPECT_STREQ(found[0].fusion->name, "finish + add + rms_norm"); }
  }
}

}  // namespace
}  // namespace plait
