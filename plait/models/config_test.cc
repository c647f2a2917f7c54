#include "plait/models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace plait {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::filesystem::path shared_folder() {
  const char* s = std::getenv("PLAIT_SHARED");
  return s != nullptr ? s : "../shared";
}

json read_json(const std::string& path) {
  std::ifstream f(path);
  return json::parse(f);
}

json smollm2() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "bos_token_id": 1,
    "eos_token_id": [2, 0], "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "mlp_bias": false, "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false,
    "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "use_cache": true, "vocab_size": 49152})");
}

json gpt2() {
  return json::parse(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-05, "bos_token_id": 50256, "eos_token_id": 50256, "resid_pdrop": 0.1})");
}

std::string why(const json& j) {
  try {
    parse_config(j, "config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    return e.what();
  }
  return "";
}

TEST(Config, SmolLM2) {
  ModelConfig c = parse_config(smollm2(), "config.json");
  EXPECT_EQ(c.family, "llama");
  EXPECT_EQ(std::vector<i64>({c.D, c.N, c.K, c.H, c.F, c.V, c.layers, c.max_positions}),
            std::vector<i64>({576, 9, 3, 64, 1536, 49152, 30, 8192}));
  EXPECT_EQ(c.rope_base, 100000);
  EXPECT_FALSE(c.rope_scaling);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.bos, 1);
  EXPECT_EQ(c.eos, std::vector<i64>({2, 0}));
  EXPECT_EQ(c.torch_dtype, "bfloat16");
}

TEST(Config, Gpt2) {
  ModelConfig c = parse_config(gpt2(), "config.json");
  EXPECT_EQ(std::vector<i64>({c.D, c.N, c.K, c.H, c.F, c.V, c.layers, c.max_positions}),
            std::vector<i64>({768, 12, 12, 64, 3072, 50257, 12, 1024}));
  EXPECT_TRUE(c.tied);
  EXPECT_TRUE(c.attention_bias);
  json j = gpt2();
  j["n_inner"] = 1000;
  EXPECT_EQ(parse_config(j, "").F, 1000);
}

json gemma3() {
  return json::parse(R"({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attn_logit_softcapping": null, "final_logit_softcapping": null, "bos_token_id": 2, "eos_token_id": [1, 106],
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640, "intermediate_size": 2048,
    "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null,
    "rope_theta": 1000000.0, "sliding_window": 512, "torch_dtype": "bfloat16", "vocab_size": 262144})");
}

TEST(Config, Gemma3) {
  ModelConfig c = parse_config(gemma3(), "config.json");
  EXPECT_EQ(c.family, "gemma3");
  EXPECT_EQ(std::vector<i64>({c.D, c.N, c.K, c.H, c.F, c.V, c.layers, c.max_positions, c.window}),
            std::vector<i64>({640, 4, 1, 256, 2048, 262144, 18, 32768, 512}));
  EXPECT_EQ(c.attention_scale, 1.0 / 16);
  EXPECT_EQ(c.rope_base, 1e6);
  EXPECT_EQ(c.local_rope_base, 1e4);
  EXPECT_EQ(c.rope_factor, 1);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.eos, std::vector<i64>({1, 106}));
  for (i64 l = 0; l < 18; l++) EXPECT_EQ(c.is_local(l), l != 5 && l != 11 && l != 17) << l;
  json j = gemma3();
  j["sliding_window_pattern"] = 2;
  for (i64 l = 0; l < 18; l++) EXPECT_EQ(parse_config(j, "").is_local(l), l % 2 == 0) << l;
  j = gemma3();
  j["num_hidden_layers"] = 2;
  j["layer_types"] = {"full_attention", "sliding_attention"};
  j["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  c = parse_config(j, "");
  EXPECT_EQ(c.local, std::vector<bool>({false, true}));
  EXPECT_EQ(c.rope_factor, 8);
  // As transformers 5 writes them.
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) j.erase(key);
  j["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}},
                          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  c = parse_config(j, "");
  EXPECT_EQ(std::vector<double>({c.rope_base, c.local_rope_base, c.rope_factor}), std::vector<double>({5e5, 2e4, 4}));
}

TEST(Config, Gemma3RefusedByName) {
  auto with = [](const char* key, json value) {
    json j = gemma3();
    j[key] = std::move(value);
    return why(j);
  };
  EXPECT_THAT(with("layer_types", {"full_attention"}),
              HasSubstr("layer_types: got [\"full_attention\"], want a list of 18"));
  EXPECT_THAT(with("layer_types", json(std::vector<std::string>(18, "chunked_attention"))),
              HasSubstr("layer_types: got \"chunked_attention\""));
  EXPECT_THAT(with("sliding_window", 0), HasSubstr("sliding_window: got 0"));
  EXPECT_THAT(with("sliding_window_pattern", 0), HasSubstr("sliding_window_pattern: got 0"));
  EXPECT_THAT(with("query_pre_attn_scalar", -1), HasSubstr("query_pre_attn_scalar: got -1"));
  EXPECT_THAT(with("final_logit_softcapping", 30.0), HasSubstr("final_logit_softcapping: got 30.0"));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}), HasSubstr("rope_type: got \"yarn\""));
  EXPECT_THAT(with("hidden_activation", "silu"), HasSubstr("hidden_activation: got \"silu\""));
  EXPECT_THAT(with("use_bidirectional_attention", true), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(with("head_dim", 255), HasSubstr("heads of 255"));
}

TEST(Config, Dropout) {
  json j = gpt2();
  j["embd_pdrop"] = 0;
  j["attn_pdrop"] = 0.25;
  ModelConfig c = parse_config(j, "");
  EXPECT_EQ(c.embedding_dropout, 0);
  EXPECT_EQ(c.residual_dropout, 0.1);
  EXPECT_EQ(c.attention_dropout, 0.25);
  j.erase("attn_pdrop");
  EXPECT_EQ(parse_config(j, "").attention_dropout, 0.1);  // what transformers takes
  j["attn_pdrop"] = 1;
  EXPECT_THAT(why(j), HasSubstr("attn_pdrop: got 1, want less"));
  EXPECT_EQ(parse_config(smollm2(), "").attention_dropout, 0);
}

TEST(Config, SpecialIdsThatMeanNone) {
  json j = smollm2();
  j["bos_token_id"] = 4294967295;
  j["eos_token_id"] = nullptr;
  EXPECT_FALSE(parse_config(j, "").bos);
  EXPECT_TRUE(parse_config(j, "").eos.empty());
  j["eos_token_id"] = {4294967295, 7};
  EXPECT_EQ(parse_config(j, "").eos, std::vector<i64>({7}));
  j["eos_token_id"] = 49152;
  EXPECT_THAT(why(j), HasSubstr("eos_token_id: got 49152, want below 49152"));
}

TEST(Config, NewerSpelling) {
  json j = smollm2();
  j.erase("rope_theta");
  j.erase("rope_scaling");
  j.erase("torch_dtype");
  j["rope_parameters"] = {{"rope_theta", 5000.0}, {"rope_type", "default"}};
  j["dtype"] = "float16";
  ModelConfig c = parse_config(j, "");
  EXPECT_EQ(c.rope_base, 5000);
  EXPECT_EQ(c.torch_dtype, "float16");
}

// The random models whose logits transformers gave (tests/data).
TEST(Config, ModelsOfTheOracles) {
  ModelConfig c = parse_config(read_json("tests/data/llama_small.json").at("config"), "llama_small.json");
  EXPECT_EQ(std::vector<i64>({c.D, c.N, c.K, c.H, c.F, c.V, c.layers, c.max_positions}),
            std::vector<i64>({72, 9, 3, 8, 208, 257, 3, 256}));
  c = parse_config(read_json("tests/data/llama_options.json").at("config"), "llama_options.json");
  EXPECT_EQ(c.H, 16);
  EXPECT_TRUE(c.attention_bias);
  EXPECT_FALSE(c.tied);
  ASSERT_TRUE(c.rope_scaling);
  EXPECT_EQ(c.rope_scaling->factor, 8);
  EXPECT_EQ(c.rope_scaling->original_positions, 32);
  c = parse_config(read_json("tests/data/gpt2_small.json").at("config"), "gpt2_small.json");
  EXPECT_EQ(std::vector<i64>({c.D, c.N, c.K, c.H, c.F, c.V, c.layers, c.max_positions}),
            std::vector<i64>({72, 9, 9, 8, 288, 257, 3, 64}));
}

TEST(Config, RealConfigs) {
  const auto configs = shared_folder() / "data/configs";
  if (!std::filesystem::exists(configs)) GTEST_SKIP() << "no " << configs;
  int llamas = 0, refused = 0;
  for (auto& entry : std::filesystem::directory_iterator(configs)) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem();
    const json j = read_json(entry.path());
    if (name.rfind("Llama-", 0) == 0 && name.rfind("Llama-4", 0) != 0) {
      ModelConfig c = parse_config(j, name);
      EXPECT_EQ(c.family, "llama") << name;
      EXPECT_EQ(c.rope_scaling.has_value(), name.rfind("Llama-3.", 0) == 0) << name;
      llamas++;
    } else {
      const std::string text = why(j);
      const std::string want = j.contains("architectures") ? j["architectures"][0].get<std::string>() : "none";
      EXPECT_THAT(text, HasSubstr("got architecture " + want)) << name;
      EXPECT_THAT(text, HasSubstr("LlamaForCausalLM")) << name;
      refused++;
    }
  }
  EXPECT_GE(llamas, 9);
  EXPECT_GE(refused, 15);
}

TEST(Config, RefusedByName) {
  struct Case {
    const char* key;
    json value;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"hidden_act", "gelu", "hidden_act: got \"gelu\""},
      {"mlp_bias", true, "mlp_bias: got true, want false"},
      {"pretraining_tp", 4, "pretraining_tp: got 4"},
      {"sliding_window", 1024, "sliding_window: got 1024, want null"},
      {"quantization_config", {{"quant_method", "fp8"}}, "quantization_config"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor: got 0.5, want 1"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, "rope_type: got \"linear\""},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}, "rope_type: got \"yarn\""},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}, "low_freq_factor is missing"},
      {"rope_scaling", 8, "rope_scaling: got 8, want an object"},
      {"attn_logit_softcapping", 50.0, "attn_logit_softcapping"},
      {"logits_scaling", 8.0, "logits_scaling: got 8.0, want 1"},
      {"num_local_experts", 8, "num_local_experts: got 8"},
      {"layer_types", {"full_attention", "sliding_attention"}, "layer_types: got \"sliding_attention\""},
      {"is_encoder_decoder", true, "is_encoder_decoder"},
      {"architectures", {"LlamaForSequenceClassification"}, "got architecture LlamaForSequenceClassification"},
      {"architectures", json::array(), "architectures: got []"},
      {"model_type", "qwen2", "model_type qwen2"},
      {"hidden_size", 0, "hidden_size: got 0, want an integer from 1"},
      {"hidden_size", -576, "hidden_size: got -576"},
      {"hidden_size", 576.0, "hidden_size: got 576.0"},
      {"hidden_size", "576", "hidden_size: got \"576\""},
      {"hidden_size", 18446744073709551615ull, "hidden_size: got 18446744073709551615"},
      {"hidden_size", 577, "got hidden_size 577 over 9 heads"},
      {"hidden_size", 9 << 20, "model width: got 9437184"},
      {"num_hidden_layers", 10001, "layers: got 10001, want 1 to 10000"},
      {"vocab_size", 1 << 25, "vocabulary: got"},
      {"num_key_value_heads", 2, "got 9 query heads over 2 KV heads"},
      {"num_key_value_heads", 18, "got 9 query heads over 18 KV heads"},
      {"head_dim", 63, "got heads of 63, want an even width"},
      {"rms_norm_eps", 0, "epsilon of norms: got 0"},
      {"rms_norm_eps", "small", "rms_norm_eps: got \"small\""},
      {"rope_theta", 0, "rope_theta: got 0"},
      {"tie_word_embeddings", 1, "tie_word_embeddings: got 1, want true or false"},
      {"bos_token_id", 49152, "bos_token_id: got 49152"},
      {"eos_token_id", "2", "eos_token_id: got \"2\""},
  };
  for (auto& c : cases) {
    json j = smollm2();
    j[c.key] = c.value;
    EXPECT_THAT(why(j), HasSubstr(c.text)) << c.key;
  }
  for (auto& [key, value] : std::map<std::string, json>{{"scale_attn_by_inverse_layer_idx", true},
                                                        {"reorder_and_upcast_attn", true},
                                                        {"scale_attn_weights", false},
                                                        {"add_cross_attention", true},
                                                        {"activation_function", "relu"},
                                                        {"n_inner", 0},
                                                        {"n_embd", 770}}) {
    json j = gpt2();
    j[key] = value;
    EXPECT_THAT(why(j), HasSubstr(key));
  }
  for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    json j = smollm2();
    j.erase(key);
    EXPECT_THAT(why(j), HasSubstr(std::string(key) + " is missing"));
  }
  EXPECT_THAT(why(json::array()), HasSubstr("want a config: a JSON object"));
  EXPECT_THAT(why(json::object()), HasSubstr("got architecture none (model_type none), want one of"));
}

// Both spellings of the type; what is not known is refused and never ignored.
TEST(PublicReports, S46_RopeScalingIsHonouredOrRefused) {
  for (const char* spelling : {"type", "rope_type"}) {
    json j = smollm2();
    j["rope_scaling"] = {{spelling, "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
    const ModelConfig c = parse_config(j, "");
    ASSERT_TRUE(c.rope_scaling) << spelling;
    EXPECT_EQ(c.rope_scaling->factor, 8);
    for (const char* type : {"linear", "dynamic", "yarn", "longrope", "su"}) {
      j["rope_scaling"][spelling] = type;
      EXPECT_THAT(why(j), HasSubstr(fmt::format("rope_type: got \"{}\"", type)));
    }
  }
}

TEST(Config, MistralWindows) {
  json j = smollm2();
  j["model_type"] = "mistral";
  j["architectures"] = {"MistralForCausalLM"};
  EXPECT_THAT(why(j), HasSubstr("sliding_window: is absent"));
  j["sliding_window"] = nullptr;
  EXPECT_EQ(parse_config(j, "").family, "llama");
  j["sliding_window"] = 4096;
  EXPECT_THAT(why(j), HasSubstr("sliding_window: got 4096"));
  j["sliding_window"] = 8192;  // holds every position
  EXPECT_EQ(parse_config(j, "").family, "llama");
}

}  // namespace
}  // namespace plait
