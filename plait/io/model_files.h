// One source of configuration and tensors, whatever the format: a Hugging Face folder, its config.json alone, or a GGUF
// file. Names of tensors stay those of the file; the models room maps them.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "plait/io/file_tensor.h"
#include "plait/io/gguf.h"
#include "plait/io/safetensors.h"

namespace plait::io {

class ModelFiles {
 public:
  enum class Format {
    safetensors,  // a folder with config.json and model.safetensors (or its shards and index)
    config,       // config.json alone: a model without weights
    gguf,
  };

  /// path_or_name: a folder, a config.json, a .gguf, or a name in a cache (see model_path.h).
  /// errors  bad_file: not found; neither format; whatever the files get wrong
  explicit ModelFiles(const std::string& path_or_name);

  Format format() const { return format_; }
  const char* format_name() const;
  /// The folder or file that was opened.
  const std::string& path() const { return path_; }

  /// Key names of Hugging Face; of a GGUF file translated (gguf_config.h).
  const nlohmann::json& config() const { return *config_; }

  bool has_weights() const { return num_tensors() > 0; }
  i64 num_tensors() const;
  /// In the file's order.
  std::vector<std::string> tensor_names() const;
  bool has_tensor(std::string_view name) const;
  /// errors  bad_file: absent, or of a type that is not read (tensor, type and file named)
  FileTensor tensor(std::string_view name) const;
  /// Its shape, whatever its type; nullopt when absent.
  std::optional<std::vector<i64>> shape_of(std::string_view name) const;

  /// The GGUF file, with its tokenizer; nullptr for the other formats.
  const GgufFile* gguf() const { return gguf_.get(); }
  /// Bytes of all tensors.
  i64 total_bytes() const;
  /// Gives all pages back, for when a rank has read what it keeps: those that its neighbours' reading mapped again too.
  void dont_need() const;

  struct TypeShare {
    std::string type;  // as the format names it
    i64 tensors = 0, bytes = 0;
  };
  /// By bytes, the most first.
  std::vector<TypeShare> types() const;
  /// The block type that most bytes are of, if any.
  std::optional<DType> dominant_quantization() const;

  /// Files beside a folder's config.json; nullopt when absent, and for GGUF.
  std::optional<std::string> beside(std::string_view file_name) const;
  std::optional<std::string> generation_config() const { return beside("generation_config.json"); }
  std::optional<std::string> tokenizer_json() const { return beside("tokenizer.json"); }
  std::optional<std::string> tokenizer_config() const { return beside("tokenizer_config.json"); }

 private:
  void open_folder(const std::string& folder);
  void open_gguf(const std::string& path);
  void open_config(const std::string& path);

  Format format_ = Format::config;
  std::string path_, folder_;
  std::shared_ptr<const nlohmann::json> config_;
  std::unique_ptr<GgufFile> gguf_;
  std::unique_ptr<Safetensors> safetensors_;
};

}  // namespace plait::io
