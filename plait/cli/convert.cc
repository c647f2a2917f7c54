// plait convert: a model from a Hugging Face folder to a GGUF file and back, or from one type of weights to another.
//
// Tensors are read, converted and written some rows at a time. What is written lies aside until it is whole, and is
// then renamed: an interrupted run, or a full disk, leaves what was there before.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"
#include "plait/io/convert.h"
#include "plait/io/safetensors_writer.h"
#include "plait/text/from_gguf.h"
#include "plait/text/tokenizer_json.h"
#include "plait/text/write_tokenizer.h"

namespace plait::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr i64 kShardBytes = i64{5} * 1000 * 1000 * 1000;

struct Options {
  std::string in, out, dtype = "auto";
  i64 threads = 0;
};

/// A folder that is made aside and takes its name when it is whole.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path) : path_(path) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
    std::error_code e;
    if (fs::exists(path_, e) && !(fs::is_directory(path_, e) && fs::is_empty(path_, e)))
      fail(Code::usage, "{} is there already: want a new folder, or a name that ends with .gguf", path_);
    aside_ = fmt::format("{}.{}.part", path_, ::getpid());
    if (!fs::create_directory(aside_, e))
      fail(Code::bad_file, "[{}] cannot create: {}", aside_, e ? e.message() : "it is there already");
  }
  ~OutputFolder() {
    std::error_code e;
    if (!aside_.empty()) fs::remove_all(aside_, e);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& aside() const { return aside_; }
  void write(const std::string& name, const std::string& text) const {
    io::OutputFile file((fs::path(aside_) / name).string());
    file.write(text.data(), static_cast<i64>(text.size()));
    file.commit();
  }
  void commit() {
    std::error_code e;
    fs::rename(aside_, path_, e);
    if (e) fail(Code::bad_file, "[{}] cannot rename: {}", aside_, e.message());
    aside_.clear();
  }

 private:
  std::string path_, aside_;
};

std::optional<text::Vocabulary> vocabulary_of(const io::ModelFiles& files) {
  if (const auto* gguf = files.gguf()) {
    const auto model = gguf->text("tokenizer.ggml.model");
    if (!model || *model == "no_vocab" || *model == "none") return {};
    return text::vocabulary_from_gguf(*gguf);
  }
  if (!files.tokenizer_json()) return {};
  return text::vocabulary_from_folder(files.path());
}

std::string name_of(const io::ModelFiles& files) {
  fs::path p = fs::absolute(files.path()).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  return files.gguf() != nullptr ? p.stem().string() : p.filename().string();
}

/// The type that most bytes of the matrices are of.
DType main_type(const std::vector<io::ConvertedTensor>& tensors) {
  std::map<DType, i64> bytes;
  for (auto& t : tensors) {
    i64 n = 1;
    for (i64 size : t.shape) n *= size;
    bytes[t.dtype] += n;
  }
  return std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

void write_gguf(const io::ModelFiles& files, const ModelConfig& config, const Options& o,
                const std::vector<io::ConvertedTensor>& tensors, std::optional<DType> dtype) {
  io::GgufWriter w;
  if (const auto* from = files.gguf()) {
    for (auto key : from->keys())
      if (!key.starts_with("split.") && key != "general.alignment" && key != "general.file_type")
        w.set(key, *from->find(key));
    if (const auto* factors = from->find_tensor("rope_freqs.weight"))
      w.add(factors->name, DType::f32, factors->shape, factors->data);
  } else {
    io::write_config(w, config, name_of(files), dtype.value_or(main_type(tensors)));
    if (const auto v = vocabulary_of(files)) {
      text::write_tokenizer(*v, config.V, w);
    } else {
      w.set_text("tokenizer.ggml.model", "no_vocab");
      std::fprintf(stderr, "plait: %s has no tokenizer.json: the file gets no tokenizer\n", files.path().c_str());
    }
  }
  for (auto& t : tensors) w.add(t.name, t.dtype, t.shape, t.data);
  w.write(o.out);
}

void write_folder(const io::ModelFiles& files, const ModelConfig& config, const Options& o,
                  const std::vector<io::ConvertedTensor>& tensors) {
  Json c = Json::parse(files.config().dump());
  if (c.contains("rope_scaling") && c["rope_scaling"].value("rope_type", "") == "factors")
    fail(Code::usage,
         "[{}] rope_freqs.weight: got factors that no published scaling gives; config.json has no key for them",
         files.path());
  OutputFolder folder(o.out);
  c["torch_dtype"] =
      std::map<DType, std::string>{{DType::f32, "float32"}, {DType::f16, "float16"}, {DType::bf16, "bfloat16"}}.at(
          main_type(tensors));
  folder.write("config.json", c.dump(2) + "\n");
  if (const auto v = vocabulary_of(files)) {
    const text::TokenizerFiles t = text::tokenizer_files(*v, config.max_positions);
    folder.write("tokenizer.json", t.tokenizer);
    folder.write("tokenizer_config.json", t.config);
    std::vector<i64> ends = v->ends;
    if (v->eos && std::find(ends.begin(), ends.end(), *v->eos) == ends.end()) ends.insert(ends.begin(), *v->eos);
    Json g = {{"eos_token_id", ends}};
    if (v->bos) g["bos_token_id"] = *v->bos;
    folder.write("generation_config.json", g.dump(2) + "\n");
  } else {
    std::fprintf(stderr, "plait: %s has no tokenizer: the folder gets none\n", files.path().c_str());
  }
  io::SafetensorsWriter w;
  w.set_metadata("format", "pt");
  for (auto& t : tensors) w.add(t.name, t.dtype, t.shape, t.data);
  w.write_folder(folder.aside(), kShardBytes);
  folder.commit();
}

std::string summary(const std::vector<io::ConvertedTensor>& tensors) {
  std::map<std::pair<DType, std::optional<DType>>, std::pair<i64, i64>> kinds;  // tensors, bytes
  for (auto& t : tensors) {
    i64 n = 1;
    for (i64 size : t.shape) n *= size;
    auto& [count, bytes] = kinds[{t.dtype, t.instead_of}];
    count++;
    bytes += bytes_of(t.dtype, n);
  }
  std::string s;
  for (auto& [kind, sum] : kinds) {
    s += fmt::format("  {:<5} {:>5} tensors {:>12}", plait::name_of(kind.first), sum.first, human_bytes(sum.second));
    if (kind.second)
      s += fmt::format("  instead of {}: their rows are no multiple of {}", plait::name_of(*kind.second),
                       info(*kind.second).block);
    s += "\n";
  }
  return s;
}

int convert(const Options& o) {
  std::optional<DType> dtype;
  if (o.dtype != "auto") {
    dtype = dtype_named(o.dtype);
    if (!dtype || *dtype == DType::f64 || *dtype == DType::i32 || *dtype == DType::i64 || *dtype == DType::i128)
      fail(Code::usage, "--dtype {}: want auto, f32, f16, bf16, q8_0, q5_0, q5_1, q4_0, q4_1 or q2_k to q6_k", o.dtype);
  }
  if (o.threads < 0 || o.threads > 4096) fail(Code::usage, "--threads {}: want 0 (all cores) to 4096", o.threads);
  io::ModelFiles files(o.in);
  if (!files.has_weights()) fail(Code::bad_file, "[{}] a config without weights: nothing to convert", files.path());
  const FileFormat to = o.out.ends_with(".gguf") ? FileFormat::gguf : FileFormat::hf;
  if (to == FileFormat::hf && files.gguf() == nullptr)
    fail(Code::usage, "{} and {}: want a GGUF file on one side at least", o.in, o.out);
  const ModelConfig config = parse_config(files.config(), files.path());
  const i64 cores = static_cast<i64>(serve::allowed_cpus().size());
  kernels::Team team(o.threads > 0 ? o.threads : cores);
  const auto tensors = io::convert_tensors(files, config, to, dtype, team);
  if (to == FileFormat::gguf)
    write_gguf(files, config, o, tensors, dtype);
  else
    write_folder(files, config, o, tensors);
  std::fprintf(stderr, "plait: wrote %s: %s, %zu tensors\n%s", o.out.c_str(), config.family.c_str(), tensors.size(),
               summary(tensors).c_str());
  return 0;
}

}  // namespace

void add_convert(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options =
      p.parser.command("convert", "A Hugging Face folder to a GGUF file, and back; other types of weights");
  options.required("MODEL", o->in, "Hugging Face folder, GGUF file, or a name in the cache");
  options.required("-o,--output", o->out, "NAME.gguf, or a new folder");
  options.add("--dtype", o->dtype,
              "Type of matrices: auto (as they are; of blocks in a folder f32), f32, f16, bf16; in GGUF q8_0, q5_0, "
              "q5_1, q4_0, q4_1, q2_k to q6_k too");
  options.add("-t,--threads", o->threads, "Threads; 0: all cores");
  options.footer(
      "Rows of a matrix that are no whole blocks of the type get another of about as many bits, which is told.\n\n"
      "Examples:\n"
      "  plait convert Llama-3.2-1B -o Llama-3.2-1B.q4_k.gguf --dtype q4_k\n"
      "  plait convert SmolLM2-135M-Instruct.Q4_1 -o SmolLM2-135M-Instruct --dtype bf16");
  options.chosen([&p, o] { p.chosen = [o] { return convert(*o); }; });
}

}  // namespace plait::cli
