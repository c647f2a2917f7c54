#include "plait/models/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "plait/models/family.h"

namespace plait {

using nlohmann::json;

namespace {

constexpr i64 kMaxD = i64{1} << 20, kMaxV = i64{1} << 24, kMaxHeads = i64{1} << 16, kMaxLayers = 10000;
constexpr i64 kMaxPositions = i64{1} << 30;
constexpr i64 kNoToken = (i64{1} << 32) - 1;

std::string shown(const json& value) {
  std::string s = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return s.size() > 80 ? s.substr(0, 77) + "..." : s;
}

/// Keys that change the meaning of a model, and their values beside null that do not.
struct Refused {
  const char* key;
  std::vector<std::string> allowed;
  const char* what;
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> kRefused = {
      {"quantization_config", {}, "quantized Hugging Face weights"},
      {"pretraining_tp", {"0", "1"}, "products in slices"},
      {"is_encoder_decoder", {"false"}, "an encoder"},
      {"add_cross_attention", {"false"}, "cross attention"},
      {"attention_chunk_size", {}, "attention in chunks"},
      {"attn_logit_softcapping", {}, "capped attention scores"},
      {"final_logit_softcapping", {}, "capped logits"},
      {"query_pre_attn_scalar", {}, "another scale of attention scores"},
      {"attention_multiplier", {}, "another scale of attention scores"},
      {"clip_qkv", {}, "clipped q, k, v"},
      {"logit_scale", {"1"}, "scaled logits"},
      {"logits_scaling", {"1"}, "scaled logits"},
      {"embedding_multiplier", {"1"}, "scaled embeddings"},
      {"residual_multiplier", {"1"}, "scaled residuals"},
      {"scale_emb", {"1"}, "scaled embeddings"},
      {"scale_depth", {}, "scaled residuals"},
      {"partial_rotary_factor", {"1"}, "partly rotated heads"},
      {"rotary_pct", {"1"}, "partly rotated heads"},
      {"rotary_dim", {}, "partly rotated heads"},
      {"no_rope_layers", {"[]"}, "layers without rotation"},
      {"no_rope_layer_interval", {}, "layers without rotation"},
      {"alibi", {"false"}, "ALiBi"},
      {"parallel_attn", {"false"}, "parallel residuals"},
      {"use_parallel_residual", {"false"}, "parallel residuals"},
      {"use_qk_norm", {"false"}, "normed queries and keys"},
      {"qk_norm", {"false"}, "normed queries and keys"},
      {"qk_layernorm", {"false"}, "normed queries and keys"},
      {"qkv_bias", {"false"}, "biases of q, k, v alone"},
      {"num_local_experts", {"0", "1"}, "experts"},
      {"num_experts", {"0", "1"}, "experts"},
      {"n_routed_experts", {"0"}, "experts"},
      {"kv_lora_rank", {}, "latent attention"},
      {"q_lora_rank", {}, "latent attention"},
  };
  return kRefused;
}

}  // namespace

ConfigReader::ConfigReader(const json& config, std::string_view where) : config_(config), where_(where) {
  if (!config.is_object()) fail(Code::bad_file, "[{}] got {}, want a config: a JSON object", where_, shown(config));
}

bool ConfigReader::contains(const char* key) const { return config_.contains(key); }

bool ConfigReader::has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

const json& ConfigReader::at(const char* key) const {
  if (!has(key)) fail(Code::bad_file, "[{}] {} is missing", where_, key);
  return config_.at(key);
}

i64 ConfigReader::integer(const char* key, i64 low, i64 high, std::optional<i64> absent) const {
  if (absent && !has(key)) return *absent;
  const json& v = at(key);
  bool fits = v.is_number_integer() && !(v.is_number_unsigned() && v.get<u64>() > static_cast<u64>(INT64_MAX));
  if (!fits || v.get<i64>() < low || v.get<i64>() > high)
    fail(Code::bad_file, "[{}] {}: got {}, want an integer from {} to {}", where_, key, shown(v), low, high);
  return v.get<i64>();
}

double ConfigReader::number(const char* key, double low, double high, std::optional<double> absent) const {
  if (absent && !has(key)) return *absent;
  const json& v = at(key);
  if (!v.is_number() || !(v.get<double>() >= low && v.get<double>() <= high))
    fail(Code::bad_file, "[{}] {}: got {}, want a number from {} to {}", where_, key, shown(v), low, high);
  return v.get<double>();
}

double ConfigReader::dropout(const char* key, double absent) const {
  const double p = number(key, 0, 1, absent);
  if (p == 1) fail(Code::bad_file, "[{}] {}: got 1, want less: dropout of everything", where_, key);
  return p;
}

bool ConfigReader::flag(const char* key, bool absent) const {
  if (!has(key)) return absent;
  if (!at(key).is_boolean()) fail(Code::bad_file, "[{}] {}: got {}, want true or false", where_, key, shown(at(key)));
  return at(key).get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& absent) const {
  if (!has(key)) return absent;
  if (!at(key).is_string()) fail(Code::bad_file, "[{}] {}: got {}, want a text", where_, key, shown(at(key)));
  return at(key).get<std::string>();
}

void ConfigReader::only(const char* key, const std::vector<std::string>& allowed, const char* what) const {
  if (!has(key)) return;
  const json& v = at(key);
  for (auto& a : allowed)
    if (v == json::parse(a)) return;
  fail(Code::bad_file, "[{}] {}: got {}, want {}: {} is not supported", where_, key, shown(v),
       allowed.empty() ? "null" : fmt::format("{}", fmt::join(allowed, " or ")), what);
}

void ConfigReader::refuse_common(const std::vector<std::string>& honoured) const {
  auto honours = [&](std::string_view key) {
    return std::find(honoured.begin(), honoured.end(), key) != honoured.end();
  };
  for (auto& r : refused())
    if (!honours(r.key)) only(r.key, r.allowed, r.what);
  if (has("layer_types") && !honours("layer_types"))
    for (auto& t : at("layer_types"))
      if (t != "full_attention")
        fail(Code::bad_file, "[{}] layer_types: got {}, want full_attention: no other kind of layer is supported",
             where_, shown(t));
}

void ConfigReader::read_common(ModelConfig& c) const {
  i64 bos = integer("bos_token_id", -1, kNoToken, -1);
  if (bos >= 0 && bos != kNoToken) c.bos = bos;
  if (has("eos_token_id")) {
    const json& v = at("eos_token_id");
    for (auto& id : v.is_array() ? v : json::array({v})) {
      if (!id.is_number_integer() || id.get<i64>() < -1 || id.get<i64>() > kNoToken)
        fail(Code::bad_file, "[{}] eos_token_id: got {}, want a token id or a list of them", where_, shown(v));
      if (id.get<i64>() >= 0 && id.get<i64>() != kNoToken) c.eos.push_back(id.get<i64>());
    }
  }
  c.torch_dtype = text("torch_dtype", text("dtype", ""));
}

void ConfigReader::read_rope(ModelConfig& c) const {
  c.rope_base = number("rope_theta", 1, 1e12, 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!has(key)) continue;
    if (!at(key).is_object()) fail(Code::bad_file, "[{}] {}: got {}, want an object", where_, key, shown(at(key)));
    ConfigReader r(at(key), where_ + ": " + key);
    c.rope_base = r.number("rope_theta", 1, 1e12, c.rope_base);
    r.only("partial_rotary_factor", {"1"}, "partly rotated heads");
    std::string type = r.text("rope_type", r.text("type", "default"));
    if (type == "default") continue;
    if (type != "llama3")
      fail(Code::bad_file, "[{}] rope_type: got {}, want llama3 or default: no other scaling is supported", r.where(),
           shown(type));
    RopeScaling s;
    s.factor = r.number("factor", 1, 1e6);
    s.low_freq_factor = r.number("low_freq_factor", 1e-6, 1e6);
    s.high_freq_factor = r.number("high_freq_factor", 1e-6, 1e6);
    s.original_positions = r.integer("original_max_position_embeddings", 1, kMaxPositions);
    c.rope_scaling = s;
  }
}

std::vector<bool> ConfigReader::local_layers(i64 layers, i64 pattern) const {
  std::vector<bool> local(static_cast<size_t>(layers));
  if (has("layer_types")) {
    const json& types = at("layer_types");
    if (!types.is_array() || static_cast<i64>(types.size()) != layers)
      fail(Code::bad_file, "[{}] layer_types: got {}, want a list of {}, one a layer", where_, shown(types), layers);
    for (size_t l = 0; l < local.size(); l++) {
      local[l] = types[l] == "sliding_attention";
      if (!local[l] && types[l] != "full_attention")
        fail(Code::bad_file, "[{}] layer_types: got {}, want sliding_attention or full_attention", where_,
             shown(types[l]));
    }
    return local;
  }
  pattern = integer("_sliding_window_pattern", 1, kMaxLayers, pattern);
  pattern = integer("sliding_window_pattern", 1, kMaxLayers, pattern);
  for (i64 l = 0; l < layers; l++) local[static_cast<size_t>(l)] = (l + 1) % pattern != 0;
  return local;
}

void check_config(const ModelConfig& c, std::string_view where) {
  auto range = [&](const char* what, i64 got, i64 low, i64 high) {
    if (got < low || got > high) fail(Code::bad_file, "[{}] {}: got {}, want {} to {}", where, what, got, low, high);
  };
  range("layers", c.layers, 1, kMaxLayers);
  range("model width", c.D, 1, kMaxD);
  range("query heads", c.N, 1, kMaxHeads);
  range("KV heads", c.K, 1, kMaxHeads);
  range("head width", c.H, 1, kMaxD);
  range("ffn width", c.F, 1, kMaxV);
  range("vocabulary", c.V, 1, kMaxV);
  range("positions", c.max_positions, 1, kMaxPositions);
  range("query heads x head width", checked_mul(c.N, c.H, where), 1, kMaxV);
  if (c.N % c.K != 0)
    fail(Code::bad_file, "[{}] got {} query heads over {} KV heads, want a multiple: every KV head serves one group",
         where, c.N, c.K);
  if (!(c.eps > 0 && c.eps < 1))
    fail(Code::bad_file, "[{}] epsilon of norms: got {}, want within (0, 1)", where, c.eps);
  if (!(c.rope_base >= 1 && std::isfinite(c.rope_base)))
    fail(Code::bad_file, "[{}] rope base: got {}, want at least 1", where, c.rope_base);
  if (c.rope_scaling && !(c.rope_scaling->low_freq_factor < c.rope_scaling->high_freq_factor))
    fail(Code::bad_file, "[{}] rope scaling: got low_freq_factor {} and high_freq_factor {}, want low below high",
         where, c.rope_scaling->low_freq_factor, c.rope_scaling->high_freq_factor);
  if (!(c.attention_scale >= 0 && std::isfinite(c.attention_scale) && c.local_rope_base >= 1 && c.rope_factor >= 1))
    fail(Code::bad_file, "[{}] got a scale of scores of {}, a local rope base of {}, a rope factor of {}", where,
         c.attention_scale, c.local_rope_base, c.rope_factor);
  if (!c.local.empty()) range("window", c.window, 1, kMaxPositions);
  if (c.bos && *c.bos >= c.V) fail(Code::bad_file, "[{}] bos_token_id: got {}, want below {}", where, *c.bos, c.V);
  for (i64 e : c.eos)
    if (e >= c.V) fail(Code::bad_file, "[{}] eos_token_id: got {}, want below {}", where, e, c.V);
}

ModelConfig parse_config(const json& config, std::string_view where) {
  ConfigReader r(config, where);
  std::string type = r.text("model_type", ""), architecture;
  if (r.has("architectures")) {
    const json& a = r.at("architectures");
    if (!a.is_array() || a.size() != 1 || !a[0].is_string())
      fail(Code::bad_file, "[{}] architectures: got {}, want a list of one name", where, shown(a));
    architecture = a[0].get<std::string>();
  }
  const Family* family = nullptr;
  std::string known;
  for (auto& [name, f] : families()) {
    auto lists = [](const std::vector<std::string>& names, const std::string& s) {
      return std::find(names.begin(), names.end(), s) != names.end();
    };
    bool fits = architecture.empty()
                    ? lists(f.model_types, type)
                    : lists(f.architectures, architecture) && (type.empty() || lists(f.model_types, type));
    if (fits) family = &f;
    for (auto& a : f.architectures) known += (known.empty() ? "" : ", ") + a;
  }
  if (family == nullptr)
    fail(Code::bad_file, "[{}] got architecture {} (model_type {}), want one of: {}", where,
         architecture.empty() ? "none" : architecture, type.empty() ? "none" : type, known);
  r.refuse_common(family->honoured);
  ModelConfig c;
  c.family = family->name;
  r.read_common(c);
  family->parse(r, c);
  check_config(c, where);
  return c;
}

}  // namespace plait
