// What a model is: sizes and the few values that change its meaning, read from a Hugging Face style config.
//
// Every number is checked against a range; a key that would change the meaning of the model and that Plait does not
// know how to honour is refused by its name; all other keys are ignored (initialisers, cache flags).
//
// D model, N query heads, K KV heads, H head, F ffn, V vocab.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait {

/// Llama 3.1: low frequencies are divided by `factor`, high ones kept, with a linear blend between.
struct RopeScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  i64 original_positions = 8192;
};

struct ModelConfig {
  std::string family;  // "llama", "gpt2", "gemma3"
  i64 D = 0, N = 0, K = 0, H = 0, F = 0, V = 0;
  i64 layers = 0;
  i64 max_positions = 0;
  double eps = 1e-5;
  double rope_base = 10000;
  std::optional<RopeScaling> rope_scaling = {};
  double rope_factor = 1;      // divides every frequency of the layers that attend to all positions
  double attention_scale = 0;  // of scores; 0: 1 / sqrt(H)
  // Local layers attend to the last `window` positions, the token's own included, with a rope base of their own.
  std::vector<bool> local = {};  // by layer; empty: none is
  i64 window = 0;
  double local_rope_base = 10000;
  bool tied = false;            // the output product reads the embedding
  bool attention_bias = false;  // of wq, wk, wv, wo; always in a GPT-2
  // In training alone: of the embeddings' sum, of what attention and FFN add to the residual, of attention's
  // probabilities.
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  std::optional<i64> bos = {};
  std::vector<i64> eos = {};
  std::string torch_dtype = {};  // as written; empty when absent

  bool is_local(i64 layer) const { return layer < static_cast<i64>(local.size()) && local[static_cast<size_t>(layer)]; }
};

/// The config of a supported model. `where` names the file in errors.
///   errors  bad_file: not an object, unknown architecture (lists the supported ones), a number out of range, a value
///           whose meaning is not supported
ModelConfig parse_config(const nlohmann::json& config, std::string_view where);

/// Ranges and relations that every config keeps, wherever it comes from (a GGUF's metadata too). Throws bad_file.
void check_config(const ModelConfig& c, std::string_view where);

/// Reads checked values of a config; the families' parsers are written with it.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& config, std::string_view where);

  /// An integer within [low, high]; without a default the key must be there. null counts as absent.
  i64 integer(const char* key, i64 low, i64 high, std::optional<i64> absent = {}) const;
  /// A finite number within [low, high].
  double number(const char* key, double low, double high, std::optional<double> absent = {}) const;
  /// The same, of dropout: from 0 to below 1.
  double dropout(const char* key, double absent) const;
  bool flag(const char* key, bool absent) const;
  std::string text(const char* key, const std::string& absent) const;
  bool has(const char* key) const;       // and is not null
  bool contains(const char* key) const;  // null or not
  const nlohmann::json& at(const char* key) const;

  /// Throws unless the key is absent, null or one of the values, each as JSON writes it: "false", "1", "\"silu\"".
  void only(const char* key, const std::vector<std::string>& allowed, const char* what) const;
  /// Refuses keys that would change any transformer's meaning: windows, caps, scales, experts, quantization ...; all
  /// but those that the family honours.
  void refuse_common(const std::vector<std::string>& honoured) const;
  /// bos_token_id, eos_token_id (a number or a list; 2^32 - 1 and null mean none), torch_dtype or dtype.
  void read_common(ModelConfig& c) const;
  /// rope_theta, rope_scaling or rope_parameters.
  void read_rope(ModelConfig& c) const;
  /// layer_types ("sliding_attention", "full_attention"), or sliding_window_pattern: every so many layers one attends
  /// to all positions, the others to a window.
  std::vector<bool> local_layers(i64 layers, i64 pattern) const;

  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& config_;
  std::string where_;
};

}  // namespace plait
