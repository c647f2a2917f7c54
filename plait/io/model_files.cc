#include "plait/io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plait/io/cursor.h"
#include "plait/io/gguf_config.h"
#include "plait/io/json_text.h"
#include "plait/io/model_path.h"

namespace plait::io {

namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& p) {
  std::error_code e;
  return fs::is_regular_file(p, e);
}

bool is_folder(const fs::path& p) {
  std::error_code e;
  return fs::is_directory(p, e);
}

/// The GGUF files of a folder that can be opened: of a split model one.
std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<std::string> r;
  std::error_code e;
  for (fs::directory_iterator it(folder, e), end; !e && it != end; it.increment(e))
    if (it->path().extension() == ".gguf") r.push_back(it->path().string());
  r = without_further_parts(std::move(r));
  return {r.begin(), r.end()};
}

}  // namespace

ModelFiles::ModelFiles(const std::string& path_or_name) : path_(find_model(path_or_name)) {
  if (is_folder(path_)) {
    open_folder(path_);
  } else if (path_.ends_with(".gguf")) {
    open_gguf(path_);
  } else if (path_.ends_with(".json")) {
    open_config(path_);
  } else if (MappedFile file(path_); file.text().starts_with("GGUF")) {
    open_gguf(path_);
  } else {
    fail(Code::bad_file, "[{}] got an unknown kind of file, want a .gguf, a config.json or a folder with one", path_);
  }
}

void ModelFiles::open_config(const std::string& path) {
  config_ = std::make_shared<nlohmann::json>(read_json(path));
  if (!config_->is_object())
    fail(Code::bad_file, "[{}] got {}, want an object of settings", path, config_->type_name());
  if (fs::path(path).filename() == "config.json") folder_ = fs::absolute(path).parent_path().string();
}

void ModelFiles::open_gguf(const std::string& path) {
  format_ = Format::gguf;
  gguf_ = std::make_unique<GgufFile>(path);
  config_ = std::make_shared<nlohmann::json>(config_of(*gguf_));
}

void ModelFiles::open_folder(const std::string& folder) {
  const fs::path base(folder);
  if (!is_file(base / "config.json")) {
    auto files = gguf_files(base);
    if (files.size() != 1)
      fail(Code::bad_file,
           "[{}] got a folder without config.json and with {} GGUF files, want config.json or one GGUF file", folder,
           files.size());
    return open_gguf(path_ = files[0].string());
  }
  open_config((base / "config.json").string());
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!is_file(base / name)) continue;
    format_ = Format::safetensors;
    safetensors_ = std::make_unique<Safetensors>((base / name).string());
    return;
  }
}

const char* ModelFiles::format_name() const {
  constexpr const char* kNames[] = {"safetensors", "config", "GGUF"};
  return kNames[static_cast<int>(format_)];
}

i64 ModelFiles::num_tensors() const {
  return static_cast<i64>(gguf_ ? gguf_->tensors().size() : safetensors_ ? safetensors_->tensors().size() : 0);
}

std::vector<std::string> ModelFiles::tensor_names() const {
  std::vector<std::string> r;
  if (gguf_)
    for (const auto& t : gguf_->tensors()) r.emplace_back(t.name);
  if (safetensors_)
    for (const auto& t : safetensors_->tensors()) r.push_back(t.name);
  return r;
}

bool ModelFiles::has_tensor(std::string_view name) const { return shape_of(name).has_value(); }

std::optional<std::vector<i64>> ModelFiles::shape_of(std::string_view name) const {
  if (gguf_)
    if (const auto* t = gguf_->find_tensor(name)) return t->shape;
  if (safetensors_)
    if (const auto* t = safetensors_->find_tensor(name)) return t->shape;
  return std::nullopt;
}

FileTensor ModelFiles::tensor(std::string_view name) const {
  if (gguf_) {
    const auto& t = gguf_->tensor(name);
    return {std::string(name), *t.type->dtype, t.shape, t.data, t.bytes, &gguf_->files()[t.file]};
  }
  if (safetensors_) {
    const auto& t = safetensors_->tensor(name);
    return {t.name, *t.type->dtype, t.shape, t.data, t.bytes, &safetensors_->files()[t.file]};
  }
  const bool pickled = beside("pytorch_model.bin") || beside("pytorch_model.bin.index.json");
  fail(Code::bad_file,
       "[{}] got no weights for {}, want model.safetensors or model.safetensors.index.json beside config.json{}", path_,
       shown(name), pickled ? " (pytorch_model.bin holds programs and is not read)" : "");
}

std::vector<ModelFiles::TypeShare> ModelFiles::types() const {
  std::vector<TypeShare> r;
  auto count = [&](const std::string& type, i64 bytes) {
    auto it = std::find_if(r.begin(), r.end(), [&](auto& s) { return s.type == type; });
    if (it == r.end()) it = r.insert(it, {type, 0, 0});
    it->tensors++;
    it->bytes += bytes;
  };
  if (gguf_)
    for (const auto& t : gguf_->tensors()) count(t.type ? t.type->name : fmt::format("type {}", t.type_id), t.bytes);
  if (safetensors_)
    for (const auto& t : safetensors_->tensors()) count(t.type->name, t.bytes);
  std::stable_sort(r.begin(), r.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return r;
}

i64 ModelFiles::total_bytes() const {
  i64 sum = 0;
  for (const auto& t : types()) sum = checked_add(sum, t.bytes, path_);
  return sum;
}

void ModelFiles::dont_need() const {
  auto all = [](const std::vector<MappedFile>& files) {
    for (const auto& f : files) f.dont_need(0, f.size());
  };
  if (gguf_) all(gguf_->files());
  if (safetensors_) all(safetensors_->files());
}

std::optional<DType> ModelFiles::dominant_quantization() const {
  for (const auto& t : types())
    for (auto dtype : kBlockTypes)
      if (gguf_ && t.type == ggml_type_of(dtype)->name) return dtype;
  return std::nullopt;
}

std::optional<std::string> ModelFiles::beside(std::string_view file_name) const {
  if (folder_.empty()) return std::nullopt;
  auto p = fs::path(folder_) / file_name;
  return is_file(p) ? std::optional(p.string()) : std::nullopt;
}

}  // namespace plait::io
