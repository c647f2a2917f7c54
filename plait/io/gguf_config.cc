#include "plait/io/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numbers>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {

using nlohmann::json;

class Translation {
 public:
  Translation(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + '.') {}

  void integer(const char* to, std::string_view from) {
    if (auto v = file_.integer(prefix_ + std::string(from))) config[to] = *v;
  }
  void number(const char* to, std::string_view from) {
    if (auto v = number_of(from)) config[to] = *v;
  }
  std::optional<i64> integer_of(std::string_view key) const { return file_.integer(prefix_ + std::string(key)); }
  std::optional<std::string_view> text_of(std::string_view key) const { return file_.text(prefix_ + std::string(key)); }
  std::optional<double> number_of(std::string_view key) const {
    const auto name = prefix_ + std::string(key);
    auto v = file_.number(name);
    if (v && file_.find(name)->type == GgufType::f32)
      v = std::strtod(fmt::format("{}", static_cast<float>(*v)).c_str(), nullptr);
    return v;
  }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  json config = json::object();

 private:
  const GgufFile& file_;
  std::string prefix_;
};

std::string architecture_of(const GgufFile& file) {
  auto name = file.text("general.architecture");
  if (!name) fail(Code::bad_file, "[{}] got no general.architecture, want the model's family", file.path());
  bool plain = !name->empty() && name->size() <= 64 &&
               std::all_of(name->begin(), name->end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain)
    fail(Code::bad_file, "[{}] general.architecture: got {}, want a name of 1 to 64 ASCII letters", file.path(),
         shown(*name));
  return std::string(*name);
}

void add_vocabulary(const GgufFile& file, Translation& t) {
  if (const auto* embedding = file.find_tensor("token_embd.weight");
      embedding != nullptr && embedding->shape.size() == 2)
    t.config["vocab_size"] = embedding->shape[0];
  else if (auto n = t.integer_of("vocab_size"))
    t.config["vocab_size"] = *n;
  else if (const auto* tokens = file.find("tokenizer.ggml.tokens");
           tokens != nullptr && tokens->type == GgufType::array)
    t.config["vocab_size"] = tokens->count;
  if (auto id = file.integer("tokenizer.ggml.bos_token_id")) t.config["bos_token_id"] = *id;
  if (auto id = file.integer("tokenizer.ggml.eos_token_id")) t.config["eos_token_id"] = *id;
  if (!file.tensors().empty()) t.config["tie_word_embeddings"] = file.find_tensor("output.weight") == nullptr;
}

/// The factors that llama3 scaling has for these frequencies: 1 for short waves, `factor` for long ones, between
/// low and high a blend (transformers, modeling_rope_utils).
float llama3_factor(double frequency, double factor, double low, double high, double original) {
  const double waves = original * frequency / (2 * std::numbers::pi);  // in the original context
  if (waves > high) return 1.f;
  if (waves < low) return static_cast<float>(factor);
  const double smooth = (waves - low) / (high - low);
  return static_cast<float>(1 / ((1 - smooth) / factor + smooth));
}

/// Converted Llama 3 models carry the factors, not the settings that made them. The settings of all published ones are
/// taken when they give these factors; other factors are handed on as they are.
json llama3_scaling(const std::vector<float>& factors, double base) {
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  const double factor = factors.back(), n = static_cast<double>(factors.size());
  for (size_t i = 0; i < factors.size(); i++) {
    float want = llama3_factor(std::pow(base, -static_cast<double>(i) / n), factor, kLow, kHigh, kOriginal);
    if (!(std::abs(factors[i] - want) <= 1e-4f * want)) return {{"rope_type", "factors"}, {"factors", factors}};
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", kLow},
          {"high_freq_factor", kHigh},
          {"original_max_position_embeddings", static_cast<i64>(kOriginal)}};
}

void add_rope(const GgufFile& file, Translation& t) {
  t.number("rope_theta", "rope.freq_base");
  json scaling = json::object();
  if (auto type = t.text_of("rope.scaling.type"); type && *type != "none") {
    scaling["rope_type"] = json::string_t(*type);
    if (auto v = t.number_of("rope.scaling.factor")) scaling["factor"] = *v;
    if (auto v = t.number_of("rope.scaling.attn_factor")) scaling["attention_factor"] = *v;
    if (auto v = t.integer_of("rope.scaling.original_context_length")) scaling["original_max_position_embeddings"] = *v;
  } else if (auto linear = t.number_of("rope.scale_linear"); linear && *linear != 1.0) {
    scaling["rope_type"] = "linear";
    scaling["factor"] = *linear;
  }
  if (const auto* factors = file.find_tensor("rope_freqs.weight"); factors != nullptr) {
    if (factors->type_id != 0 || factors->shape.size() != 1 || factors->shape[0] > 4096)
      fail(Code::bad_file, "[{}] rope_freqs.weight: got another type or shape, want a row of at most 4096 F32",
           file.path());
    std::vector<float> values(static_cast<size_t>(factors->shape[0]));
    std::memcpy(values.data(), factors->data, values.size() * sizeof(float));
    if (std::any_of(values.begin(), values.end(), [](float f) { return f != 1.0f; })) {
      scaling = llama3_scaling(values, t.number_of("rope.freq_base").value_or(10000.0));
    }
  }
  if (!scaling.empty()) t.config["rope_scaling"] = scaling;
}

void add_heads(const GgufFile& file, Translation& t) {
  t.integer("num_attention_heads", "attention.head_count");
  t.integer("num_key_value_heads", "attention.head_count_kv");
  t.integer("head_dim", "attention.key_length");
  auto hidden = t.integer_of("embedding_length"), heads = t.integer_of("attention.head_count");
  i64 even =
      hidden && heads && *heads > 0 ? *hidden / *heads : 0;  // the width of a head unless the file says otherwise
  i64 key = t.integer_of("attention.key_length").value_or(even),
      value = t.integer_of("attention.value_length").value_or(even);
  if (key != value)
    fail(Code::bad_file, "[{}] {}: got {}, want the {} of the keys", file.path(), t.key("attention.value_length"),
         value, key);
  i64 rotary = t.integer_of("rope.dimension_count").value_or(key);
  if (key > 0 && rotary != key)
    t.config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(key);
}

void add_common(Translation& t) {
  t.integer("hidden_size", "embedding_length");
  t.integer("num_hidden_layers", "block_count");
  t.integer("intermediate_size", "feed_forward_length");
  t.integer("max_position_embeddings", "context_length");
  t.number("rms_norm_eps", "attention.layer_norm_rms_epsilon");
}

void add_gpt2(Translation& t) {
  t.config["architectures"] = {"GPT2LMHeadModel"};
  t.config["activation_function"] = "gelu_new";
  t.integer("n_embd", "embedding_length");
  t.integer("n_layer", "block_count");
  t.integer("n_head", "attention.head_count");
  t.integer("n_inner", "feed_forward_length");
  t.integer("n_ctx", "context_length");
  t.integer("n_positions", "context_length");
  t.number("layer_norm_epsilon", "attention.layer_norm_epsilon");
}

void add_llama(const GgufFile& file, Translation& t) {
  t.config["architectures"] = {"LlamaForCausalLM"};
  t.config["hidden_act"] = "silu";
  t.config["attention_bias"] = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  t.config["mlp_bias"] = file.find_tensor("blk.0.ffn_up.bias") != nullptr;
  add_common(t);
  add_heads(file, t);
  add_rope(file, t);
  if (auto experts = t.integer_of("expert_count"); experts && *experts > 0) {
    t.config["model_type"] = "mixtral";
    t.config["architectures"] = {"MixtralForCausalLM"};
    t.config["num_local_experts"] = *experts;
    t.integer("num_experts_per_tok", "expert_used_count");
  }
}

void add_gemma3(const GgufFile& file, Translation& t) {
  t.config["architectures"] = {"Gemma3ForCausalLM"};
  t.config["model_type"] = "gemma3_text";
  t.config["hidden_activation"] = "gelu_pytorch_tanh";
  add_common(t);
  add_heads(file, t);
  add_rope(file, t);
  t.number("rope_local_base_freq", "rope.freq_base_swa");
  t.integer("sliding_window", "attention.sliding_window");
  t.integer("sliding_window_pattern", "attention.sliding_window_pattern");
  t.number("final_logit_softcapping", "final_logit_softcapping");
  t.number("attn_logit_softcapping", "attn_logit_softcapping");
  // The file has no scale of scores: 1 / sqrt(H), but that of the largest model (62 layers) is 1 / sqrt(D / N).
  constexpr i64 kLargest = 62;
  const auto hidden = t.integer_of("embedding_length"), heads = t.integer_of("attention.head_count");
  if (t.integer_of("block_count") == kLargest && hidden && heads && *heads > 0)
    t.config["query_pre_attn_scalar"] = *hidden / *heads;
  else
    t.integer("query_pre_attn_scalar", "attention.key_length");
}

}  // namespace

json config_of(const GgufFile& file) {
  const auto architecture = architecture_of(file);
  Translation t(file, architecture);
  t.config["model_type"] = architecture;
  if (architecture == "gpt2") {
    add_gpt2(t);
  } else if (architecture == "llama") {
    add_llama(file, t);
  } else if (architecture == "gemma3") {
    add_gemma3(file, t);
  } else {
    add_common(t);
    t.integer("num_attention_heads", "attention.head_count");
    t.integer("num_key_value_heads", "attention.head_count_kv");
    t.integer("head_dim", "attention.key_length");
    t.number("rope_theta", "rope.freq_base");
  }
  add_vocabulary(file, t);
  file.files()[0].check_whole();
  return t.config;
}

}  // namespace plait::io
