#include <nlohmann/json.hpp>

#include "plait/io/gguf_config.h"

#include "plait/io/gguf_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

nlohmann::json config_of_bytes(const GgufWriter& w) {
  return config_of(GgufFile(MappedFile::of_bytes("x.gguf", w.to_bytes())));
}

GgufWriter llama() {
  GgufWriter w;
  w.set_text("general.architecture", "llama");
  w.set_u32("llama.embedding_length", 64);
  w.set_u32("llama.attention.head_count", 4);
  return w;
}

/// The configuration with `n` rotary divisors: ones, then some, then `factor`.
nlohmann::json with_divisors(float base, size_t ones, std::vector<float> some, float factor, size_t n) {
  std::vector<float> d(ones, 1.f);
  d.insert(d.end(), some.begin(), some.end());
  d.resize(n, factor);
  auto w = llama();
  w.set_f32("llama.rope.freq_base", base);
  w.add("rope_freqs.weight", DType::f32, {static_cast<i64>(n)}, d.data());
  return config_of_bytes(w);
}

TEST(GgufConfig, llama_options) {
  static const float row[64] = {};
  auto w = llama();
  w.set_u32("llama.attention.key_length", 32);
  w.set_u32("llama.attention.value_length", 32);
  w.set_u32("llama.rope.dimension_count", 8);
  w.set_f32("llama.rope.freq_base", 5e5f);
  w.set_text("llama.rope.scaling.type", "yarn");
  w.set_f32("llama.rope.scaling.factor", 4.f);
  w.set_u32("llama.rope.scaling.original_context_length", 1024);
  w.add("token_embd.weight", DType::f32, {2, 32}, row);
  w.add("blk.0.attn_q.bias", DType::f32, {4}, row);
  auto c = config_of_bytes(w);
  EXPECT_EQ(c["head_dim"], 32);
  EXPECT_EQ(c["partial_rotary_factor"], 0.25);
  EXPECT_EQ(c["rope_theta"], 500000.0);
  EXPECT_EQ(c["rope_scaling"],
            nlohmann::json::parse(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})"));
  EXPECT_EQ(c["attention_bias"], true);
  EXPECT_EQ(c["vocab_size"], 2);
  EXPECT_EQ(c["tie_word_embeddings"], true);
  EXPECT_FALSE(c.contains("num_key_value_heads"));

  w.add("output.weight", DType::f32, {2, 32}, row);
  EXPECT_EQ(config_of_bytes(w)["tie_word_embeddings"], false);
}

TEST(GgufConfig, rotary_factors_of_the_file) {
  auto w = llama();
  const float ones[2] = {1, 1}, factors[2] = {1, 8};
  w.add("rope_freqs.weight", DType::f32, {2}, ones);
  EXPECT_FALSE(config_of_bytes(w).contains("rope_scaling"));
  auto v = llama();
  v.add("rope_freqs.weight", DType::f32, {2}, factors);
  EXPECT_EQ(config_of_bytes(v)["rope_scaling"],
            nlohmann::json::parse(R"({"rope_type": "factors", "factors": [1.0, 8.0]})"));
  // The divisors of Llama 3.1 8B and Llama 3.2 1B, computed apart from the definition, in Python.
  auto c = with_divisors(5e5f, 29, {1.2074840f, 1.5534146f, 2.0263131f, 2.6945300f, 3.6842530f, 5.2573266f}, 8, 64);
  EXPECT_EQ(c["rope_scaling"], nlohmann::json::parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"));
  EXPECT_EQ(with_divisors(5e5f, 15, {1.6513292f, 3.2922626f, 9.6667299f}, 32, 32)["rope_scaling"]["factor"], 32.0);
  EXPECT_EQ(with_divisors(5e5f, 15, {1.6523292f, 3.2922626f, 9.6667299f}, 32, 32)["rope_scaling"]["rope_type"],
            "factors");
  EXPECT_EQ(with_divisors(1e4f, 15, {1.6513292f, 3.2922626f, 9.6667299f}, 32, 32)["rope_scaling"]["rope_type"],
            "factors");
  auto old = llama();
  old.set_f32("llama.rope.scale_linear", 2.f);
  EXPECT_EQ(config_of_bytes(old)["rope_scaling"], nlohmann::json::parse(R"({"rope_type": "linear", "factor": 2.0})"));
}

TEST(GgufConfig, a_llama_with_experts_is_a_mixtral) {
  auto w = llama();
  w.set_u32("llama.expert_count", 8);
  w.set_u32("llama.expert_used_count", 2);
  auto c = config_of_bytes(w);
  EXPECT_EQ(c["model_type"], "mixtral");
  EXPECT_EQ(c["num_local_experts"], 8);
  EXPECT_EQ(c["num_experts_per_tok"], 2);
}

TEST(GgufConfig, gpt2) {
  NEED_SHARED(path, "tokenizers/llama.cpp-vocab/ggml-vocab-gpt-2.gguf");
  EXPECT_EQ(config_of(GgufFile(path)),
            nlohmann::json::parse(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "activation_function": "gelu_new", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_ctx": 1024,
    "n_positions": 1024, "layer_norm_epsilon": 1e-05, "vocab_size": 50257, "bos_token_id": 50256, "eos_token_id": 50256})"));
}

TEST(GgufConfig, gemma3) {
  auto gemma = [](std::uint32_t layers) {
    GgufWriter w;
    w.set_text("general.architecture", "gemma3");
    for (auto [key, value] : {std::pair{"context_length", 32768u},
                              {"embedding_length", 640u},
                              {"block_count", layers},
                              {"feed_forward_length", 2048u},
                              {"attention.head_count", 4u},
                              {"attention.head_count_kv", 1u},
                              {"attention.key_length", 256u},
                              {"attention.value_length", 256u},
                              {"attention.sliding_window", 512u}})
      w.set_u32(std::string("gemma3.") + key, value);
    w.set_f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
    w.set_f32("gemma3.rope.freq_base", 1e6f);
    w.set_u32("tokenizer.ggml.bos_token_id", 2);
    return w;
  };
  auto small = gemma(18);
  EXPECT_EQ(config_of_bytes(small), nlohmann::json::parse(R"({"model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640,
    "num_hidden_layers": 18, "intermediate_size": 2048, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "rope_theta": 1000000.0,
    "sliding_window": 512, "query_pre_attn_scalar": 256, "bos_token_id": 2})"));
  auto large = gemma(62);
  large.set_text("gemma3.rope.scaling.type", "linear");
  large.set_f32("gemma3.rope.scaling.factor", 8.f);
  large.set_f32("gemma3.rope.freq_base_swa", 20000.f);
  large.set_u32("gemma3.attention.sliding_window_pattern", 3);
  const auto c = config_of_bytes(large);
  EXPECT_EQ(c["query_pre_attn_scalar"], 160);
  EXPECT_EQ(c["rope_scaling"], nlohmann::json::parse(R"({"rope_type": "linear", "factor": 8.0})"));
  EXPECT_EQ(c["rope_local_base_freq"], 20000.0);
  EXPECT_EQ(c["sliding_window_pattern"], 3);
}

TEST(GgufConfig, another_architecture_keeps_its_name) {
  GgufWriter w;
  w.set_text("general.architecture", "qwen2");
  w.set_u32("qwen2.block_count", 24);
  auto c = config_of_bytes(w);
  EXPECT_EQ(c["model_type"], "qwen2");
  EXPECT_EQ(c["num_hidden_layers"], 24);
  EXPECT_FALSE(c.contains("architectures"));
}

TEST(GgufConfig, says_what_is_wrong) {
  expect_bad_file([] { config_of_bytes(GgufWriter()); }, "x.gguf", "general.architecture");
  GgufWriter odd;
  odd.set_text("general.architecture", "lla\nma");
  expect_bad_file([&] { config_of_bytes(odd); }, "lla\\x0ama");
  auto w = llama();
  w.set_text("llama.block_count", "five");
  expect_bad_file([&] { config_of_bytes(w); }, "'llama.block_count'", "got text", "want an integer");
  auto v = llama();
  v.set_u32("llama.attention.value_length", 8);
  expect_bad_file([&] { config_of_bytes(v); }, "llama.attention.value_length: got 8, want the 16 of the keys");
}

}  // namespace
}  // namespace plait::io
