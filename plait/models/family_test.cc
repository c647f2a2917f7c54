#include "plait/models/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "plait/models/test_configs.h"

namespace plait {
namespace {

using testing::HasSubstr;

ModelConfig wide_gpt2() {
  ModelConfig c = small_llama(3);
  c.family = "gpt2";
  c.K = 9, c.F = 288, c.max_positions = 64;
  c.attention_bias = true;
  return c;
}

/// "op operand, operand -> label[dims] dtype", of the nodes of a layer.
std::string layer_text(const Graph& g, i64 layer, const std::string& without) {
  std::string s;
  auto shown = [&](ValueId v) {
    std::string n = g.at(v).name;
    if (n.rfind(without, 0) == 0) n = n.substr(without.size());
    return n + "[" + g.at(v).dims + "]";
  };
  for (auto& n : g.nodes) {
    if (n.layer != layer) continue;
    s += n.op->name;
    for (size_t i = 0; i < n.in.size(); i++) s += (i > 0 ? ", " : " ") + shown(n.in[i]);
    s += " -> " + shown(n.out[0]) + " " + name_of(g.at(n.out[0]).dtype) + "\n";
  }
  return s;
}

std::map<std::string, int> counts(const Graph& g) {
  std::map<std::string, int> n;
  for (auto& node : g.nodes) n[node.op->name]++;
  return n;
}

TEST(Family, LlamaLayer) {
  Graph g = build_serving(small_llama(3), {.compute = DType::bf16});
  g.verify();
  EXPECT_EQ(layer_text(g, 1, "layers.1."),
            "rms_norm layers.0.out[TD], attention_norm[D] -> attention.in[TD] bf16\n"
            "matmul attention.in[TD], wq[NHD] -> wq[TNH] f32\n"
            "rope wq[TNH], position[T] -> q[TNH] bf16\n"
            "matmul attention.in[TD], wk[KHD] -> wk[TKH] f32\n"
            "rope wk[TKH], position[T] -> k[TKH] bf16\n"
            "matmul attention.in[TD], wv[KHD] -> wv[TKH] bf16\n"
            "kv_write cache.k[CKH], k[TKH], slot[T] -> cache.k[CKH] bf16\n"
            "kv_write cache.v[CKH], wv[TKH], slot[T] -> cache.v[CKH] bf16\n"
            "attention_paged q[TNH], cache.k[CKH], cache.v[CKH], position[T], sequence[T], table[BP]"
            " -> attention.out[TNH] bf16\n"
            "matmul attention.out[TNH], wo[DNH] -> wo[TD] i64\n"
            "finish wo[TD] -> wo[TD] f32\n"
            "add layers.0.out[TD], wo[TD] -> attention.residual[TD] f32\n"
            "rms_norm attention.residual[TD], ffn_norm[D] -> ffn.in[TD] bf16\n"
            "matmul ffn.in[TD], gate[FD] -> gate[TF] f32\n"
            "matmul ffn.in[TD], up[FD] -> up[TF] f32\n"
            "silu_mul gate[TF], up[TF] -> ffn.act[TF] bf16\n"
            "matmul ffn.act[TF], down[DF] -> down[TD] i64\n"
            "finish down[TD] -> down[TD] f32\n"
            "add attention.residual[TD], down[TD] -> out[TD] f32\n");
  EXPECT_EQ(g.nodes.size(), 1 + 3 * 19 + 4);
  EXPECT_EQ(g.nodes.back().op->name, "read");
  EXPECT_EQ(g.at(g.nodes.back().out[0]).dims, "RV");
  EXPECT_EQ(g.at(g.nodes.back().out[0]).dtype, DType::f32);
  EXPECT_EQ(g.size('N'), 9);
  EXPECT_EQ(g.layers, 3);
  // The tied embedding is one state, read twice.
  EXPECT_EQ(g.nodes[g.nodes.size() - 2].in[1], g.named.at("embedding"));
}

TEST(Family, Gpt2Layer) {
  Graph g = build_serving(wide_gpt2(), {.compute = DType::bf16});
  g.verify();
  EXPECT_EQ(layer_text(g, 1, "layers.1."),
            "layer_norm layers.0.out[TD], attention_norm[D], attention_norm.bias[D] -> attention.in[TD] bf16\n"
            "matmul attention.in[TD], wq[NHD] -> wq[TNH] f32\n"
            "bias wq[TNH], wq.bias[NH] -> q[TNH] bf16\n"
            "matmul attention.in[TD], wk[KHD] -> wk[TKH] f32\n"
            "bias wk[TKH], wk.bias[KH] -> k[TKH] bf16\n"
            "matmul attention.in[TD], wv[KHD] -> wv[TKH] f32\n"
            "bias wv[TKH], wv.bias[KH] -> v[TKH] bf16\n"
            "kv_write cache.k[CKH], k[TKH], slot[T] -> cache.k[CKH] bf16\n"
            "kv_write cache.v[CKH], v[TKH], slot[T] -> cache.v[CKH] bf16\n"
            "attention_paged q[TNH], cache.k[CKH], cache.v[CKH], position[T], sequence[T], table[BP]"
            " -> attention.out[TNH] bf16\n"
            "matmul attention.out[TNH], wo[DNH] -> wo[TD] i64\n"
            "finish wo[TD] -> wo[TD] f32\n"
            "bias wo[TD], wo.bias[D] -> wo.bias[TD] f32\n"
            "add layers.0.out[TD], wo.bias[TD] -> attention.residual[TD] f32\n"
            "layer_norm attention.residual[TD], ffn_norm[D], ffn_norm.bias[D] -> ffn.in[TD] bf16\n"
            "matmul ffn.in[TD], up[FD] -> up[TF] f32\n"
            "bias up[TF], up.bias[F] -> up.bias[TF] f32\n"
            "gelu up.bias[TF] -> ffn.act[TF] bf16\n"
            "matmul ffn.act[TF], down[DF] -> down[TD] i64\n"
            "finish down[TD] -> down[TD] f32\n"
            "bias down[TD], down.bias[D] -> down.bias[TD] f32\n"
            "add attention.residual[TD], down.bias[TD] -> out[TD] f32\n");
  EXPECT_EQ(counts(g)["bias"], 3 * 6);
  EXPECT_EQ(counts(g)["finish"], 3 * 2);
  EXPECT_EQ(counts(g)["gelu"], 3);
  EXPECT_EQ(counts(g)["embedding"], 2);
  EXPECT_EQ(g.size('W'), 64);
}

TEST(Family, Gemma3Layers) {
  ModelConfig c = small_gemma3();
  c.rope_factor = 8;
  c.attention_scale = 0.125;
  Graph g = build_serving(c, {.compute = DType::bf16});
  g.verify();
  EXPECT_EQ(layer_text(g, 1, "layers.1."),
            "rms_norm layers.0.out[TD], attention_norm[D] -> attention.in[TD] bf16\n"
            "matmul attention.in[TD], wq[NHD] -> wq[TNH] f32\n"
            "head_rms_norm wq[TNH], q_norm[H] -> q.normed[TNH] f32\n"
            "rope q.normed[TNH], position[T] -> q[TNH] bf16\n"
            "matmul attention.in[TD], wk[KHD] -> wk[TKH] f32\n"
            "head_rms_norm wk[TKH], k_norm[H] -> k.normed[TKH] f32\n"
            "rope k.normed[TKH], position[T] -> k[TKH] bf16\n"
            "matmul attention.in[TD], wv[KHD] -> wv[TKH] bf16\n"
            "kv_write cache.k[CKH], k[TKH], slot[T] -> cache.k[CKH] bf16\n"
            "kv_write cache.v[CKH], wv[TKH], slot[T] -> cache.v[CKH] bf16\n"
            "attention_paged q[TNH], cache.k[CKH], cache.v[CKH], position[T], sequence[T], table[BP]"
            " -> attention.out[TNH] bf16\n"
            "matmul attention.out[TNH], wo[DNH] -> wo[TD] i64\n"
            "finish wo[TD] -> wo[TD] f32\n"
            "rms_norm wo[TD], post_attention_norm[D] -> attention.normed[TD] f32\n"
            "add layers.0.out[TD], attention.normed[TD] -> attention.residual[TD] f32\n"
            "rms_norm attention.residual[TD], ffn_norm[D] -> ffn.in[TD] bf16\n"
            "matmul ffn.in[TD], gate[FD] -> gate[TF] f32\n"
            "matmul ffn.in[TD], up[FD] -> up[TF] f32\n"
            "gelu_mul gate[TF], up[TF] -> ffn.act[TF] bf16\n"
            "matmul ffn.act[TF], down[DF] -> down[TD] i64\n"
            "finish down[TD] -> down[TD] f32\n"
            "rms_norm down[TD], post_ffn_norm[D] -> ffn.normed[TD] f32\n"
            "add attention.residual[TD], ffn.normed[TD] -> out[TD] f32\n");
  for (auto& n : g.nodes) {
    const bool local = n.layer != 1;
    if (n.op->name == "attention_paged") {
      EXPECT_EQ(n.attrs.x.count("window"), local ? 1u : 0u) << n.attrs.label;
      EXPECT_EQ(n.attrs.x.at("scale"), 0.125);
    }
    if (n.op->name == "rope") {
      EXPECT_EQ(n.attrs.x, local ? (std::map<std::string, double>{{"base", 10000}})
                                 : (std::map<std::string, double>{{"base", 1e6}, {"factor", 8}}));
    }
  }
  // sqrt(48) in the type of the table, as transformers rounds it.
  auto scale_of = [](const Graph& graph) { return graph.nodes[1].attrs.x.at("by"); };
  EXPECT_EQ(scale_of(g), 6.9375);
  EXPECT_EQ(scale_of(build_serving(c, {})), std::sqrt(48.f));
  auto blocks = [](const std::string&) { return DType::q8_0; };
  EXPECT_EQ(scale_of(build_serving(c, {.compute = DType::bf16, .weight_dtype = blocks})), std::sqrt(48.f));
}

TEST(Family, RopeScalingAndBiasesReachTheGraph) {
  ModelConfig c = small_llama(3);
  c.rope_scaling = RopeScaling{8, 1, 4, 8192};
  c.rope_base = 500000;
  c.attention_bias = true;
  c.tied = false;
  Graph g = build_serving(c, {});
  g.verify();
  for (auto& n : g.nodes) {
    if (n.op->name != "rope") continue;
    EXPECT_EQ(n.attrs.x, (std::map<std::string, double>{
                             {"base", 500000}, {"factor", 8}, {"low", 1}, {"high", 4}, {"original", 8192}}));
  }
  EXPECT_EQ(counts(g)["bias"], 3 * 4);
  EXPECT_EQ(g.named.count("output"), 1);
}

TEST(Family, Training) {
  for (const ModelConfig& c : {small_llama(3), wide_gpt2(), small_gemma3()}) {
    Graph g = build_training(c, {.compute = DType::f64, .real = DType::f64, .sum = DType::i128});
    g.verify();
    const ValueId loss = g.nodes.back().out[0];
    EXPECT_EQ(g.at(loss).type, Type::sum);
    EXPECT_EQ(g.at(loss).dims, "1");
    EXPECT_EQ(g.at(loss).dtype, DType::i128);
    const auto d = grad(g, loss);
    g.verify();
    for (auto& w : weights_of(g)) {
      ASSERT_EQ(d.count(w), 1) << w;
      EXPECT_EQ(g.at(d.at(w)).dims, g.at(g.named.at(w)).dims) << w;
      EXPECT_EQ(g.at(d.at(w)).type, Type::sum) << w;
    }
  }
}

TEST(Family, DropoutIsOfTrainingAlone) {
  const ModelConfig none = small_gpt2();
  ModelConfig c = none;
  c.embedding_dropout = 0.1, c.residual_dropout = 0.2, c.attention_dropout = 0.3;
  EXPECT_EQ(build_serving(c, {}).text(), build_serving(none, {}).text());
  const Graph without = build_training(none, {}), with = build_training(c, {.seed = 5});
  EXPECT_EQ(counts(without)["dropout"] + counts(without)["attention_dropout"], 0);
  EXPECT_EQ(without.named.count("number") + without.named.count("step"), 0);
  EXPECT_EQ(counts(with)["dropout"], 1 + 2 * c.layers);
  EXPECT_EQ(counts(with)["attention_dropout"], c.layers);
  EXPECT_EQ(counts(with)["attention"], 0);
  std::set<double> sites;  // a mask of its own each
  for (auto& n : with.nodes)
    if (n.attrs.x.count("site") > 0) {
      EXPECT_TRUE(sites.insert(n.attrs.x.at("site")).second) << n.attrs.label;
      EXPECT_EQ(n.attrs.x.at("seed"), 5);
    }
}

TEST(Family, Leaves) {
  auto leaf_of = [](i64 F, i64 V, i64 H, DType type, char dim) {
    ModelConfig c = small_llama(3);
    c.F = F, c.V = V, c.H = H;
    BuildOptions o;  // one layer decides
    o.weight_dtype = [type](const std::string& state) { return state.starts_with("layers.1.") ? type : DType::bf16; };
    return leaf_table(c, o).at(dim).leaf;
  };
  auto leaf = [&](i64 F, i64 V, i64 H, bool quantized, char dim) {
    return leaf_of(F, V, H, quantized ? DType::q4_1 : DType::bf16, dim);
  };
  EXPECT_EQ(leaf(1536, 49152, 64, true, 'F'), 96);
  EXPECT_EQ(leaf(208, 257, 8, false, 'F'), 32);
  EXPECT_EQ(leaf(2047, 257, 8, false, 'F'), 128);
  EXPECT_EQ(leaf(2048, 257, 8, false, 'F'), 128);
  EXPECT_EQ(leaf(14336, 257, 8, false, 'F'), 128);
  EXPECT_EQ(leaf(208, 4095, 8, false, 'V'), 32);
  EXPECT_EQ(leaf(208, 4096, 8, false, 'V'), 256);
  EXPECT_EQ(leaf(208, 257, 8, false, 'N'), 1);
  EXPECT_EQ(leaf(208, 257, 8, true, 'N'), 4);
  EXPECT_EQ(leaf(208, 257, 64, true, 'N'), 1);
  EXPECT_EQ(leaf(208, 257, 80, true, 'N'), 2);
  EXPECT_EQ(leaf_of(2048, 257, 256, DType::q4_k, 'N'), 1);
  EXPECT_EQ(leaf_of(2048, 257, 64, DType::q6_k, 'N'), 4);
  EXPECT_EQ(leaf_of(2048, 257, 96, DType::q2_k, 'N'), 8);
  EXPECT_EQ(leaf_of(2048, 257, 64, DType::q3_k, 'F'), 256);
  EXPECT_EQ(leaf_of(768, 257, 64, DType::q5_k, 'F'), 256);
  EXPECT_EQ(leaf_of(1536, 257, 64, DType::q5_0, 'F'), 96);
  EXPECT_EQ(leaf_table(small_llama(3), {}).at('N').leaf, 1);
  EXPECT_EQ(leaf_table(small_llama(3), {.leaves = {{'T', 4}}}).at('T').leaf, 4);
}

TEST(Family, DtypesOfWeights) {
  Graph g = build_serving(small_llama(3), {.compute = DType::bf16, .weight_dtype = [](const std::string& state) {
                                             return state == "embedding" ? DType::q8_0 : DType::q4_1;
                                           }});
  g.verify();
  auto dtype = [&](const char* name) { return g.at(g.named.at(name)).dtype; };
  EXPECT_EQ(dtype("embedding"), DType::q8_0);
  EXPECT_EQ(dtype("layers.2.down"), DType::q4_1);
  EXPECT_EQ(dtype("layers.2.ffn_norm"), DType::f32);
  EXPECT_EQ(dtype("layers.2.cache.k"), DType::bf16);
}

TEST(Family, UnknownFamily) {
  ModelConfig c = small_llama(3);
  c.family = "bloom";
  try {
    build_serving(c, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("got model family bloom, want one of: gemma3, gpt2, llama"));
  }
}

TEST(Family, TheLargestModelBuildsQuickly) {
  ModelConfig c = small_llama(3);
  c.D = 16384, c.N = 128, c.K = 8, c.H = 128, c.F = 53248, c.V = 128256, c.layers = 126;
  c.tied = false;
  const auto start = std::chrono::steady_clock::now();
  Graph g = build_serving(c, {});
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(g.nodes.size(), 1 + 126 * 19 + 4);
  EXPECT_LT(s, 0.5);  // 0.005 s in a release build
}

}  // namespace
}  // namespace plait
