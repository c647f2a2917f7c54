// What calls have to do at least, against sums made by hand from a model's sizes.
#include "plait/exec/cost.h"

#include <gtest/gtest.h>

#include "plait/exec/executor.h"
#include "plait/models/family.h"

namespace plait {
namespace {

constexpr i64 kTokens = 5, kCached = 100;
constexpr double kPairs = kTokens * kCached + 15;  // 1 + 2 + 3 + 4 + 5

ModelConfig config() {
  ModelConfig c;
  c.family = "llama";
  c.D = 64, c.N = 6, c.K = 3, c.H = 32, c.F = 96, c.V = 640, c.layers = 2, c.max_positions = 512, c.tied = true;
  return c;
}

/// The work of all calls of all ranks.
Work whole(DType weights, i64 tp, const ModelConfig& c = config()) {
  BuildOptions o;
  o.compute = DType::bf16;
  if (weights != DType::bf16) o.weight_dtype = [&](const std::string&) { return weights; };
  auto s = std::make_shared<const ShardedGraph>(propagate(build_serving(c, o), tensor_parallel(tp)));
  Symbols symbols;
  symbols.size = {{'T', kTokens}, {'R', 1}};
  const Sizes sizes = bound_sizes(s->graph, symbols);
  const Binding b(s->plan, sizes);
  Work sum;
  for (i64 r = 0; r < tp; r++) {
    const Program p = partition(s, r);
    for (auto& call : p.calls) sum += work_of(p, {&call, 1}, b, {kPairs, kCached + kTokens});
  }
  return sum;
}

double matrix_elements(bool head) {
  const double layer = 64 * 192 + 2 * 64 * 96 + 192 * 64 + 3 * 64 * 96;  // wq, wk wv, wo, gate up down
  return 2 * layer + (head ? 640 * 64 : 0);
}

TEST(Cost, OfAllCallsByHand) {
  const Work w = whole(DType::bf16, 1);
  const double products = 2 * kTokens * matrix_elements(false) + 2 * 640 * 64;  // logits of one row
  const double attention = 2 * 4 * kPairs * 6 * 32;
  EXPECT_EQ(w.bf16_flops, products + attention / 2);
  EXPECT_EQ(w.int8_flops, 0);
  // every matrix once, the rows of the table that are looked up, five norms in f32
  EXPECT_EQ(w.weight_bytes, 2 * matrix_elements(true) + 2 * kTokens * 64 + 5 * 4 * 64);
  // keys and values of all positions read, of the tokens written
  EXPECT_EQ(w.cache_bytes, 2 * 2 * 2 * 3 * 32 * (kCached + kTokens + kTokens));
}

TEST(Cost, BlocksCountTheirBytesAndIntegers) {
  const Work w = whole(DType::q8_0, 1);
  EXPECT_EQ(w.int8_flops, 2 * kTokens * matrix_elements(false) + 2 * 640 * 64);
  EXPECT_EQ(w.weight_bytes, 34.0 / 32 * (matrix_elements(true) + kTokens * 64) + 5 * 4 * 64);
}

// Ranks share the work; what every rank looks up or holds whole (norms, a KV head that two of them read) comes on top.
TEST(Cost, OfRanksIsSharedOut) {
  const Work one = whole(DType::bf16, 1), three = whole(DType::bf16, 3);
  EXPECT_EQ(three.bf16_flops, one.bf16_flops);
  EXPECT_EQ(three.cache_bytes, one.cache_bytes);  // a KV head each
  EXPECT_EQ(three.weight_bytes, one.weight_bytes + 2 * (5 * 4 * 64 + 2 * kTokens * 64));
  EXPECT_GT(three.other_bytes, one.other_bytes);
  const Work two = whole(DType::bf16, 2);
  EXPECT_EQ(two.bf16_flops, one.bf16_flops + 2 * 2 * (2 * kTokens * 64 * 32));  // wk and wv of the KV head twice
}

// Tokens of a layer that attends to the last 10 positions read no more than 10 each.
TEST(Cost, LocalLayersReadTheirWindow) {
  ModelConfig c = config();
  c.family = "gemma3";
  const Work all = whole(DType::bf16, 1, c);
  c.local = {true, false};
  c.window = 10;
  const Work some = whole(DType::bf16, 1, c);
  EXPECT_EQ(all.cache_bytes - some.cache_bytes, 2 * 2 * 3 * 32 * (kCached + kTokens - 10 * kTokens));
  EXPECT_EQ(all.bf16_flops - some.bf16_flops, 2 * (kPairs - 10 * kTokens) * 6 * 32);
}

// A window counts once what one call makes and the next reads.
TEST(Cost, OfAWindow) {
  Graph g;
  g.name = "test";
  g.dims = {{'T', {0, 4}}, {'D', {8, 0}}, {'F', {32, 16}}};
  const ValueId h = g.one("matmul", {g.input("x", "TD", Type::num), g.state("w", "FD")}, {.rule = "t d, f d -> t f"});
  g.one("gelu", {h}, {});
  const Program p = partition(std::make_shared<ShardedGraph>(propagate(g, tensor_parallel(1))), 0);
  Symbols symbols;
  symbols.size = {{'T', 3}};
  const Sizes sizes = bound_sizes(p.sharded->graph, symbols);
  const Binding b(p.sharded->plan, sizes);
  ASSERT_EQ(p.calls.size(), 2u);
  const Work w = work_of(p, p.calls, b, {});
  EXPECT_EQ(w.weight_bytes, 4 * 8 * 32);
  EXPECT_EQ(w.other_bytes, 4 * 3 * (8 + 32 + 32));
  Work apart = work_of(p, {&p.calls[0], 1}, b, {});
  apart += work_of(p, {&p.calls[1], 1}, b, {});
  EXPECT_EQ(apart.other_bytes, 4 * 3 * (8 + 32 + 32 + 32));
  EXPECT_EQ(apart.flops(), w.flops());
}

}  // namespace
}  // namespace plait
