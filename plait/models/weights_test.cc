#include "plait/models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "plait/models/family.h"
#include "plait/models/random_weights.h"
#include "plait/models/test_configs.h"

namespace plait {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig llama() {
  ModelConfig c = small_llama(12);
  c.max_positions = 256;
  c.tied = false;
  c.attention_bias = true;
  return c;
}

ModelConfig gpt2() {
  ModelConfig c = llama();
  c.family = "gpt2";
  c.K = 9, c.F = 288;
  c.tied = true;
  return c;
}

TEST(Weights, EveryStateOfTheGraphLiesInBothFormats) {
  for (const ModelConfig& c : {llama(), gpt2()}) {
    Graph g = build_serving(c, {});
    const auto names = weights_of(g);
    EXPECT_EQ(names.size(), c.family == "llama" ? 12 * 13 + 3 : 12 * 16 + 4);
    for (FileFormat format : {FileFormat::hf, FileFormat::gguf}) {
      // Each element of each file tensor serves exactly one state.
      std::map<std::string, i64> taken, whole;
      for (auto& name : names) {
        const WeightSlice s = weight_slice(c, format, name);
        i64 elements = 1;
        for (char d : g.at(g.named.at(name)).dims) elements *= g.size(d);
        EXPECT_EQ(s.rows * s.cols, elements) << name;
        ASSERT_FALSE(s.tensors.empty()) << name;
        EXPECT_EQ(s.tensors[0].find('*'), std::string::npos) << name;
        taken[s.tensors[0]] += elements;
        i64 volume = 1;
        for (i64 d : s.file_shape) volume *= d;
        whole[s.tensors[0]] = volume;
      }
      EXPECT_EQ(taken, whole);
      std::vector<std::string> tensors;
      for (auto& [t, n] : taken) tensors.push_back(t);
      EXPECT_THAT(unknown_tensors(c, format, tensors), ElementsAre());
    }
  }
}

TEST(Weights, LlamaNames) {
  const ModelConfig c = llama();
  WeightSlice q = weight_slice(c, FileFormat::hf, "layers.10.wq");
  EXPECT_THAT(q.tensors, ElementsAre("model.layers.10.self_attn.q_proj.weight", "layers.10.self_attn.q_proj.weight"));
  EXPECT_THAT(q.file_shape, ElementsAre(72, 72));
  EXPECT_FALSE(q.interleaved || q.transposed);
  q = weight_slice(c, FileFormat::gguf, "layers.10.wq");
  EXPECT_THAT(q.tensors, ElementsAre("blk.10.attn_q.weight"));
  EXPECT_TRUE(q.interleaved);
  EXPECT_FALSE(weight_slice(c, FileFormat::gguf, "layers.10.wv").interleaved);
  EXPECT_THAT(weight_slice(c, FileFormat::gguf, "layers.0.wk").file_shape, ElementsAre(24, 72));
  EXPECT_THAT(weight_slice(c, FileFormat::gguf, "layers.0.down").file_shape, ElementsAre(72, 208));
  EXPECT_THAT(weight_slice(c, FileFormat::gguf, "embedding").tensors, ElementsAre("token_embd.weight"));
  EXPECT_THAT(weight_slice(c, FileFormat::hf, "output").tensors, ElementsAre("lm_head.weight"));
}

TEST(Weights, Gpt2Parts) {
  const ModelConfig c = gpt2();
  WeightSlice k = weight_slice(c, FileFormat::hf, "layers.3.wk");
  EXPECT_THAT(k.tensors, ElementsAre("transformer.h.3.attn.c_attn.weight", "h.3.attn.c_attn.weight"));
  EXPECT_TRUE(k.transposed);
  EXPECT_EQ(k.row0, 72);
  EXPECT_THAT(k.file_shape, ElementsAre(72, 216));
  k = weight_slice(c, FileFormat::gguf, "layers.3.wk");
  EXPECT_FALSE(k.transposed);
  EXPECT_EQ(k.row0, 72);
  EXPECT_EQ(k.file_row(5), 77);
  EXPECT_THAT(k.file_shape, ElementsAre(216, 72));
  WeightSlice v = weight_slice(c, FileFormat::hf, "layers.3.wv.bias");
  EXPECT_FALSE(v.transposed);
  EXPECT_EQ(v.row0, 144);
  EXPECT_THAT(v.file_shape, ElementsAre(216));
  EXPECT_THAT(weight_slice(c, FileFormat::hf, "positions").file_shape, ElementsAre(256, 72));
}

TEST(Weights, InterleavedRowsAreAPermutationOfEachHead) {
  WeightSlice q = weight_slice(llama(), FileFormat::gguf, "layers.0.wq");
  EXPECT_EQ(q.head, 8);
  // The first half of a head takes the even rows of the file, the second the odd ones.
  std::vector<i64> rows;
  for (i64 r = 8; r < 16; r++) rows.push_back(q.file_row(r));
  EXPECT_THAT(rows, ElementsAre(8, 10, 12, 14, 9, 11, 13, 15));
  std::set<i64> all;
  for (i64 r = 0; r < q.rows; r++) all.insert(q.file_row(r));
  EXPECT_EQ(static_cast<i64>(all.size()), q.rows);
  EXPECT_EQ(*all.rbegin(), q.rows - 1);
}

TEST(Weights, Shapes) {
  WeightSlice s = weight_slice(llama(), FileFormat::hf, "layers.0.down");
  check_shape(s, "f", "t", {72, 208});
  try {
    check_shape(s, "model.safetensors", "model.layers.0.mlp.down_proj.weight", {208, 72});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    EXPECT_STREQ(e.what(),
                 "[model.safetensors] tensor model.layers.0.mlp.down_proj.weight: got shape [208 72], want [72 208]");
  }
}

TEST(Weights, NoWeight) {
  for (const char* name : {"layers.12.wq", "layers.1.wz", "layers.wq", "layers.*.wq", "layers.0.cache.k", "",
                           "layers.99999999999999999999.wq", "positions"}) {
    try {
      weight_slice(llama(), FileFormat::hf, name);
      ADD_FAILURE() << name;
    } catch (const Error& e) { EXPECT_THAT(e.what(), HasSubstr("is no weight of a llama of 12 layers")); }
  }
}

TEST(Weights, UnknownTensorsOfAFile) {
  ModelConfig c = llama();
  c.tied = true;
  c.attention_bias = false;
  // A tied file may keep a copy of its head; frequencies follow from the config.
  EXPECT_THAT(unknown_tensors(c, FileFormat::hf,
                              {"model.norm.weight", "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}),
              ElementsAre());
  EXPECT_THAT(unknown_tensors(c, FileFormat::hf,
                              {"model.layers.0.self_attn.q_norm.weight", "model.layers.12.mlp.up_proj.weight",
                               "model.layers.0.self_attn.q_proj.bias"}),
              ElementsAre("model.layers.0.self_attn.q_norm.weight", "model.layers.12.mlp.up_proj.weight",
                          "model.layers.0.self_attn.q_proj.bias"));
  EXPECT_THAT(unknown_tensors(c, FileFormat::gguf, {"output.weight", "rope_freqs.weight"}),
              ElementsAre("output.weight"));
  EXPECT_THAT(unknown_tensors(gpt2(), FileFormat::hf, {"h.0.attn.bias", "h.0.attn.c_attn.bias"}), ElementsAre());
}

TEST(RandomWeights, TheBitsOfTheOracles) {
  // scripts/oracles/random_weights.py
  EXPECT_EQ(random_weight("embedding", 0), -0x1.226728p-3f);
  EXPECT_EQ(random_weight("embedding", 18503), -0x1.243ffcp-5f);
  EXPECT_EQ(random_weight("layers.2.ffn_norm", 71), 0x1.03ec7p+0f);
  EXPECT_EQ(random_weight("layers.0.wq.bias", 5), 0x1.51ea98p-3f);
}

TEST(RandomWeights, APartHasTheBitsOfTheWhole) {
  Tensor whole(DType::f32, {{0, 6}, {0, 10}}), part(DType::f32, {{2, 5}, {3, 10}}),
      half(DType::bf16, {{5, 6}, {0, 10}});
  for (Tensor* t : {&whole, &part, &half}) fill_random("layers.0.wo", {6, 10}, *t);
  for_each(part.box, [&](const std::vector<i64>& x) {
    EXPECT_EQ(part.as<float>()[part.at(x)], whole.as<float>()[whole.at(x)]);
    EXPECT_EQ(part.as<float>()[part.at(x)], random_weight("layers.0.wo", x[0] * 10 + x[1]));
  });
  EXPECT_EQ(half.as<bf16>()[9].bits, bf16(random_weight("layers.0.wo", 59)).bits);
}

}  // namespace
}  // namespace plait
