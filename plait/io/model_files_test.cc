#include <nlohmann/json.hpp>

#include "plait/io/model_files.h"

#include "plait/io/gguf_writer.h"
#include "plait/io/model_path.h"
#include "plait/io/safetensors_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

/// Sets variables of the environment for one test.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<const char*, std::string>> values) {
    for (auto name : {"XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HOME"}) {
      const char* v = std::getenv(name);
      before_.emplace_back(name, v != nullptr ? std::optional<std::string>(v) : std::nullopt);
      ::unsetenv(name);
    }
    for (auto& [name, value] : values) ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (auto& [name, value] : before_) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

const float kNumbers[512] = {1, 2, 3, 4, 5, 6, 7, 8};

void write_gguf(const std::string& path) {
  GgufWriter w;
  w.set_text("general.architecture", "llama");
  w.set_u32("llama.block_count", 3);
  w.add("token_embd.weight", DType::q8_0, {4, 64}, kNumbers);
  w.add("blk.0.attn_q.weight", DType::q4_1, {8, 64}, kNumbers);
  w.add("output_norm.weight", DType::f32, {64}, kNumbers);
  fs::create_directories(fs::path(path).parent_path());
  w.write(path);
}

void write_folder(const std::string& folder, i64 max_shard_bytes) {
  SafetensorsWriter w;
  w.add("a.weight", DType::bf16, {2, 3}, kNumbers);
  w.add("b.weight", DType::f32, {4}, kNumbers);
  write_file(folder + "/config.json", R"({"model_type": "llama", "hidden_size": 3})");
  w.write_folder(folder, max_shard_bytes);
}

TEST(ModelFiles, folder_of_safetensors) {
  for (i64 shard : {1000, 16}) {
    TempFolder t;
    write_folder(t.path(), shard);
    write_file(t / "tokenizer.json", "{}");
    ModelFiles m(t.path());
    EXPECT_EQ(m.format(), ModelFiles::Format::safetensors);
    EXPECT_EQ(m.config()["hidden_size"], 3);
    EXPECT_TRUE(m.has_weights());
    EXPECT_THAT(m.tensor_names(), testing::UnorderedElementsAre("a.weight", "b.weight"));
    EXPECT_TRUE(m.has_tensor("a.weight"));
    EXPECT_FALSE(m.has_tensor("c.weight"));
    EXPECT_EQ(*m.shape_of("a.weight"), (std::vector<i64>{2, 3}));
    auto b = m.tensor("b.weight");
    will_need(b);
    EXPECT_EQ(b.name, "b.weight");
    EXPECT_EQ(b.dtype, DType::f32);
    ASSERT_EQ(b.bytes, 16);
    EXPECT_EQ(std::memcmp(b.data, kNumbers, 16), 0);
    done_with(b);
    float out[2];
    read_slice(b, {{1, 3}}, DType::f32, out);
    EXPECT_EQ(out[0], 2.f);
    EXPECT_EQ(m.total_bytes(), 28);
    EXPECT_FALSE(m.dominant_quantization().has_value());
    EXPECT_EQ(m.types()[0].type, "F32");
    EXPECT_EQ(m.gguf(), nullptr);
    EXPECT_EQ(*m.tokenizer_json(), t / "tokenizer.json");
    EXPECT_FALSE(m.generation_config().has_value());
    expect_bad_file([&] { m.tensor("c.weight"); }, "c.weight");
  }
}

TEST(ModelFiles, configuration_alone) {
  TempFolder t;
  write_file(t / "config.json", R"({"model_type": "llama"})");
  write_file(t / "other.json", R"({"model_type": "gpt2"})");
  write_file(t / "list.json", "[1]");
  for (const auto& path : {t.path(), t / "config.json", t / "other.json"}) {
    ModelFiles m(path);
    EXPECT_EQ(m.format(), ModelFiles::Format::config);
    EXPECT_FALSE(m.has_weights());
    EXPECT_TRUE(m.tensor_names().empty());
    EXPECT_EQ(m.total_bytes(), 0);
    expect_bad_file([&] { m.tensor("a"); }, path, "no weights for 'a'", "model.safetensors");
  }
  write_file(t / "pytorch_model.bin", "x");
  expect_bad_file([&] { ModelFiles(t.path()).tensor("a"); }, "pytorch_model.bin");
  expect_bad_file([&] { ModelFiles(t / "list.json"); }, "list.json", "got array");
}

TEST(ModelFiles, gguf) {
  TempFolder t;
  write_gguf(t / "m.gguf");
  fs::copy_file(t / "m.gguf", t / "without_ending");
  for (const auto& path : {t / "m.gguf", t / "without_ending", t.path()}) {
    ModelFiles m(path);
    EXPECT_EQ(m.format(), ModelFiles::Format::gguf);
    EXPECT_STREQ(m.format_name(), "GGUF");
    EXPECT_EQ(m.config()["model_type"], "llama");
    EXPECT_EQ(m.config()["num_hidden_layers"], 3);
    EXPECT_EQ(m.config()["vocab_size"], 4);
    EXPECT_THAT(m.tensor_names(),
                testing::ElementsAre("token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"));
    EXPECT_EQ(m.tensor("blk.0.attn_q.weight").dtype, DType::q4_1);
    EXPECT_EQ(*m.dominant_quantization(), DType::q4_1);
    EXPECT_EQ(m.total_bytes(), 8 * 34 + 16 * 20 + 256);
    EXPECT_EQ(m.types()[0].type, "Q4_1");
    EXPECT_EQ(m.types()[1].type, "Q8_0");
    EXPECT_NE(m.gguf(), nullptr);
    EXPECT_FALSE(m.tokenizer_json().has_value());
  }
  write_gguf(t / "n.gguf");
  expect_bad_file([&] { ModelFiles m(t.path()); }, "2 GGUF files");
}

TEST(ModelFiles, names_what_it_cannot_open) {
  TempFolder t;
  write_file(t / "weights.bin", "abc");
  expect_bad_file([&] { ModelFiles(t / "weights.bin"); }, "weights.bin", "unknown kind");
  expect_bad_file([&] { ModelFiles(t.path()); }, "without config.json", "0 GGUF files");
  expect_bad_file([&] { ModelFiles(""); }, "empty name");
  expect_bad_file([&] { ModelFiles(std::string("a\0b", 3)); }, "a\\x00b");
  write_file(t / "bad/config.json", "{");
  expect_bad_file([&] { ModelFiles(t / "bad"); }, "bad/config.json");
}

TEST(ModelPath, names_in_the_cache) {
  TempFolder t;
  Environment e({{"XDG_CACHE_HOME", t / "xdg"}});
  write_gguf(t / "xdg/plait/models/Small.gguf");
  write_gguf(t / "xdg/plait/models/Tiny.Q4_1.gguf");
  write_gguf(t / "xdg/plait/models/Two.Q4_0.gguf");
  write_gguf(t / "xdg/plait/models/Two.Q8_0.gguf");
  write_folder(t / "xdg/plait/models/org/Folder", 1000);
  EXPECT_EQ(find_model("Small"), t / "xdg/plait/models/Small.gguf");
  EXPECT_EQ(find_model("Small.gguf"), t / "xdg/plait/models/Small.gguf");
  EXPECT_EQ(find_model("Tiny"), t / "xdg/plait/models/Tiny.Q4_1.gguf");
  EXPECT_EQ(find_model("Two.Q8_0"), t / "xdg/plait/models/Two.Q8_0.gguf");
  EXPECT_EQ(find_model("org/Folder"), t / "xdg/plait/models/org/Folder");
  EXPECT_EQ(ModelFiles("org/Folder").tensor_names().size(), 2u);
  expect_bad_file([] { find_model("Two"); }, "Two.Q4_0.gguf", "Two.Q8_0.gguf");
  for (auto part : {"Split.Q8_0-00001-of-00002.gguf", "Split.Q8_0-00002-of-00002.gguf", "Cut-00001-of-00001.gguf"})
    write_gguf(t / (std::string("xdg/plait/models/") + part));
  EXPECT_EQ(find_model("Split"), t / "xdg/plait/models/Split.Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(find_model("Split.Q8_0"), t / "xdg/plait/models/Split.Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(find_model("Cut"), t / "xdg/plait/models/Cut-00001-of-00001.gguf");
  expect_bad_file([] { find_model("None"); }, "'None'", "models/None.gguf", "models/None.*.gguf");
  write_file(t / "xdg/secret.gguf", "x");
  for (auto name : {"../../secret", "org/../../../secret", "/../secret.gguf", "Sma*", ".hidden"})
    expect_bad_file([&] { find_model(name); }, name);
}

TEST(ModelPath, home_without_xdg) {
  TempFolder t;
  Environment e({{"HOME", t.path()}});
  write_gguf(t / ".cache/plait/models/Small.gguf");
  EXPECT_EQ(find_model("Small"), t / ".cache/plait/models/Small.gguf");
}

TEST(ModelPath, hugging_face_cache) {
  for (const char* variable : {"HF_HUB_CACHE", "HF_HOME", "HOME"}) {
    TempFolder t;
    Environment e({{variable, t.path()}});
    const std::string at = std::string(variable) == "HF_HUB_CACHE" ? ""
                           : std::string(variable) == "HF_HOME"    ? "hub/"
                                                                   : ".cache/huggingface/hub/";
    const auto repository = t / (at + "models--org--Name");
    expect_bad_file([] { find_model("org/Name"); }, "models--org--Name/snapshots/*");
    write_folder(repository + "/snapshots/aaa", 1000);
    write_folder(repository + "/snapshots/bbb", 1000);
    fs::last_write_time(repository + "/snapshots/aaa", fs::file_time_type::clock::now() - std::chrono::hours(1));
    EXPECT_EQ(find_model("org/Name"), repository + "/snapshots/bbb");
    write_file(repository + "/refs/main", "aaa\n");
    EXPECT_EQ(find_model("org/Name"), repository + "/snapshots/aaa");
    write_file(repository + "/refs/main", "../..");
    EXPECT_EQ(find_model("org/Name"), repository + "/snapshots/bbb");
  }
}

TEST(ModelFiles, real_models) {
  NEED_SHARED(folder, "models");
  ModelFiles stories(folder + "/stories260K/stories260K.gguf");
  EXPECT_EQ(stories.num_tensors(), 48);
  EXPECT_EQ(stories.total_bytes(), 1171200);
  EXPECT_FALSE(stories.dominant_quantization().has_value());
  ModelFiles gpt2(folder + "/tiny_gpt2");
  EXPECT_EQ(gpt2.config()["n_embd"], 2);
  EXPECT_TRUE(gpt2.has_weights());
  auto wte = gpt2.tensor("wte.weight");
  EXPECT_EQ(wte.shape, (std::vector<i64>{21, 2}));
  EXPECT_TRUE(gpt2.beside("vocab.json").has_value());
  EXPECT_TRUE(gpt2.tokenizer_config().has_value());
}

TEST(ModelFiles, every_configuration_of_the_shared_data) {
  NEED_SHARED(folder, "configs");
  int n = 0;
  for (const auto& e : fs::recursive_directory_iterator(folder)) {
    if (e.path().extension() != ".json") continue;
    ModelFiles m(e.path().string());
    EXPECT_GT(m.config().size(), 3u) << e.path();
    EXPECT_FALSE(m.has_weights());
    n++;
  }
  EXPECT_GT(n, 40);
}

}  // namespace
}  // namespace plait::io
