#include "plait/io/gguf.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "plait/io/cursor.h"
#include "plait/io/file_tensor.h"
#include "plait/io/gguf_config.h"
#include "plait/io/gguf_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

std::vector<std::byte> some_bytes(i64 n, unsigned seed) {
  std::vector<std::byte> r(static_cast<size_t>(n));
  for (auto& b : r) b = static_cast<std::byte>((seed = seed * 1103515245u + 12345u) >> 24);
  return r;
}

class RoundTrip : public testing::TestWithParam<std::pair<int, i64>> {};

TEST_P(RoundTrip, every_value_and_type) {
  auto [version, alignment] = GetParam();
  GgufWriter w(version, alignment);
  w.set_text("text", std::string_view("a\0b\xff", 4));
  w.set_flag("flag", true);
  w.set_u32("u32", 4294967295u);
  w.set_i32("i32", -7);
  w.set_u64("u64", 18446744073709551615ull);
  w.set_i64("i64", -9'000'000'000);
  w.set_f32("f32", 1e-5f);
  w.set_f64("f64", 0.1);
  std::vector<std::string_view> texts = {"", "one", "two words"};
  w.set_texts("texts", texts);
  w.set_i32s("i32s", std::vector<std::int32_t>{-1, 2});
  w.set_f32s("f32s", std::vector<float>{0.5f, -2.f});
  w.set_flags("flags", std::array<bool, 3>{true, false, true});
  struct T {
    const char* name;
    DType dtype;
    std::vector<i64> shape;
    std::vector<std::byte> data;
  };
  std::vector<T> tensors = {{"f32", DType::f32, {3, 5}, {}},         {"f16", DType::f16, {7}, {}},
                            {"bf16", DType::bf16, {2, 3, 1, 5}, {}}, {"a.q4_0", DType::q4_0, {3, 64}, {}},
                            {"a.q4_1", DType::q4_1, {1, 32}, {}},    {"a.q8_0", DType::q8_0, {2, 2, 96}, {}},
                            {"scalar", DType::f32, {}, {}}};
  for (auto dtype : kBlockTypes) tensors.push_back({name_of(dtype), dtype, {3, 512}, {}});
  for (auto& t : tensors) {
    i64 n = 1;
    for (auto s : t.shape) n *= s;
    t.data = some_bytes(bytes_of(t.dtype, n), static_cast<unsigned>(n));
    w.add(t.name, t.dtype, t.shape, t.data.data());
  }
  TempFolder folder;
  w.write(folder / "a.gguf");
  EXPECT_EQ(read_file(folder / "a.gguf"), w.to_bytes());

  GgufFile f(folder / "a.gguf");
  EXPECT_EQ(f.version(), version);
  EXPECT_EQ(f.alignment(), alignment);
  EXPECT_EQ(*f.text("text"), std::string_view("a\0b\xff", 4));
  EXPECT_EQ(*f.flag("flag"), true);
  EXPECT_EQ(*f.integer("u32"), 4294967295);
  EXPECT_EQ(*f.integer("i32"), -7);
  EXPECT_EQ(*f.integer("i64"), -9'000'000'000);
  EXPECT_EQ(*f.number("i32"), -7.0);
  EXPECT_EQ(*f.number("f32"), static_cast<double>(1e-5f));
  EXPECT_EQ(*f.number("f64"), 0.1);
  EXPECT_EQ(*f.number("u64"), 18446744073709551616.0);
  EXPECT_EQ(*f.texts("texts"), texts);
  EXPECT_EQ(*f.integers("i32s"), (std::vector<i64>{-1, 2}));
  EXPECT_EQ(*f.numbers("f32s"), (std::vector<float>{0.5f, -2.f}));
  EXPECT_EQ(*f.numbers("i32s"), (std::vector<float>{-1.f, 2.f}));
  EXPECT_EQ(*f.flags("flags"), (std::vector<bool>{true, false, true}));
  EXPECT_FALSE(f.has("none"));
  EXPECT_FALSE(f.text("none").has_value());
  EXPECT_FALSE(f.texts("none").has_value());
  expect_bad_file([&] { f.integer("u64"); }, "a.gguf", "'u64' at offset", "got u64", "63 bits");
  expect_bad_file([&] { f.text("u32"); }, "got u32, want text");
  expect_bad_file([&] { f.integer("f32"); }, "got f32");
  expect_bad_file([&] { f.integer("flag"); }, "got bool");
  expect_bad_file([&] { f.number("text"); }, "got text");
  expect_bad_file([&] { f.flag("u32"); }, "want bool");
  expect_bad_file([&] { f.texts("i32s"); }, "got array of 2 i32");
  expect_bad_file([&] { f.integers("texts"); }, "got array of 3 text");
  expect_bad_file([&] { f.integers("u32"); }, "got u32");
  expect_bad_file([&] { f.numbers("flags"); }, "got array of 3 bool");
  expect_bad_file([&] { f.flags("i32s"); }, "want array of bool");

  ASSERT_EQ(f.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto& t = f.tensor(tensors[i].name);
    EXPECT_EQ(&t, &f.tensors()[i]);
    EXPECT_EQ(*t.type->dtype, tensors[i].dtype);
    EXPECT_EQ(t.shape, tensors[i].shape);
    EXPECT_EQ(t.offset % alignment, 0);
    ASSERT_EQ(t.bytes, static_cast<i64>(tensors[i].data.size()));
    EXPECT_EQ(std::memcmp(t.data, tensors[i].data.data(), tensors[i].data.size()), 0);
  }
  expect_bad_file([&] { f.tensor("none"); }, "no tensor 'none'");

  GgufWriter copy(version, alignment);
  for (auto key : f.keys())
    if (key != "general.alignment") copy.set(key, *f.find(key));
  for (const auto& t : f.tensors()) copy.add(t.name, *t.type->dtype, t.shape, t.data);
  EXPECT_EQ(copy.to_bytes(), w.to_bytes());
}
INSTANTIATE_TEST_SUITE_P(Gguf, RoundTrip,
                         testing::Values(std::pair(2, 32), std::pair(3, 32), std::pair(3, 8), std::pair(3, 4096)));

TEST(GgufWriter, refuses_what_the_format_cannot_hold) {
  GgufWriter w;
  float x[64] = {};
  w.set_u32("k", 1);
  w.add("t", DType::f32, {2}, x);
  EXPECT_THROW(w.set_text("k", "again"), Error);
  EXPECT_THROW(w.add("t", DType::f32, {2}, x), Error);
  EXPECT_THROW(w.add("i", DType::i128, {2}, x), Error);
  EXPECT_THROW(w.add("d", DType::f32, {1, 1, 1, 1, 1}, x), Error);
  EXPECT_THROW(w.add("z", DType::f32, {0}, x), Error);
  EXPECT_THROW(w.add("q", DType::q8_0, {33}, x), Error);
  EXPECT_THROW(w.add("o", DType::f32, {INT64_MAX, 2}, x), Error);
  EXPECT_THROW(GgufWriter(1), Error);
  EXPECT_THROW(GgufWriter(3, 24), Error);
  for (i64 bytes : {7, 9}) {
    GgufWriter v;
    v.add("p", DType::f32, {2}, Producer([&](const Sink& sink) { sink(x, bytes); }));
    EXPECT_THROW(v.to_bytes(), Error);
  }
}

TEST(Gguf, a_split_model_is_opened_by_any_of_its_files) {
  TempFolder t;
  float x[32];
  std::iota(x, x + 32, 1.f);
  auto part = [&](int no, int count, const std::string& file, int total) {
    GgufWriter w;
    if (no == 0) w.set_text("general.architecture", "llama");
    w.set_u32("split.no", static_cast<std::uint32_t>(no));
    w.set_u32("split.count", static_cast<std::uint32_t>(count));
    w.set_i32("split.tensors.count", total);
    w.add(fmt::format("t{}", no), DType::f32, {8}, x + 8 * no);
    w.write(t / file);
  };
  for (int i = 0; i < 3; i++) part(i, 3, fmt::format("m-0000{}-of-00003.gguf", i + 1), 3);
  for (int i = 0; i < 3; i++) {
    GgufFile f(t / fmt::format("m-0000{}-of-00003.gguf", i + 1));
    EXPECT_EQ(f.path(), t / "m-00001-of-00003.gguf");
    EXPECT_EQ(*f.text("general.architecture"), "llama");
    ASSERT_EQ(f.tensors().size(), 3u);
    EXPECT_EQ(std::memcmp(f.tensor("t2").data, x + 16, 32), 0);
    EXPECT_EQ(f.tensor("t2").file, 2u);
  }
  part(0, 3, "other.gguf", 3);
  expect_bad_file([&] { GgufFile(t / "other.gguf"); }, "part 1 of 3", "-00001-of-00003.gguf");
  part(0, 2, "n-00001-of-00002.gguf", 2);
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "got no ", "n-00002-of-00002.gguf", "all 2 parts");
  part(0, 2, "n-00002-of-00002.gguf", 2);  // the first again
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "n-00002-of-00002.gguf",
                  "got part 1 of 2 in this file, want part 2 of 2");
  expect_bad_file([&] { GgufFile(t / "n-00002-of-00002.gguf"); }, "part 1 of 2 under this name");
  part(1, 3, "n-00002-of-00002.gguf", 2);  // of another cut
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "got part 2 of 3 in this file, want part 2 of 2");
  part(1, 2, "n-00002-of-00002.gguf", 4);  // of another model
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "a model of 4 tensors, want one of 2");
  expect_bad_file([&] { GgufFile(t / "n-00002-of-00002.gguf"); }, "a model of 2 tensors, want one of 4");
  part(1, 2, "n-00002-of-00002.gguf", 3);
  part(0, 2, "n-00001-of-00002.gguf", 3);
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "got 2 tensors in 2 files, want 3");
  write_file(t / "n-00002-of-00002.gguf", "GGUF");
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "n-00002-of-00002.gguf", "version");
  GgufWriter same;
  same.set_u32("split.no", 1);
  same.set_u32("split.count", 2);
  same.add("t0", DType::f32, {8}, x);
  same.write(t / "n-00002-of-00002.gguf");
  expect_bad_file([&] { GgufFile(t / "n-00001-of-00002.gguf"); }, "n-00002-of-00002.gguf", "'t0' again");
}

TEST(Gguf, split_keys_that_lie) {
  TempFolder t;
  for (i64 count : {i64{-1}, i64{5000}, i64{1} << 40}) {
    GgufWriter w;
    w.set_i64("split.count", count);
    w.write(t / "a-00001-of-00002.gguf");
    expect_bad_file([&] { GgufFile(t / "a-00001-of-00002.gguf"); }, "'split.count'", std::to_string(count), "0..4096");
  }
  GgufWriter w;
  w.set_u32("split.count", 2);
  w.set_text("split.no", "0");
  w.write(t / "a-00001-of-00002.gguf");
  expect_bad_file([&] { GgufFile(t / "a-00001-of-00002.gguf"); }, "'split.no'", "text", "0..1");
}

TEST(Gguf, names_of_parts) {
  auto part = gguf_part("a/m-00002-of-00012.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "a/m");
  EXPECT_EQ(part->no, 1);
  EXPECT_EQ(part->count, 12);
  EXPECT_EQ(part_path(*part), "a/m-00002-of-00012.gguf");
  for (auto name : {"m.gguf", "-0001-of-0002.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf",
                    "m-00001-of-0000x.gguf", "m-00001-of-00002.ggu", "00001-of-00002.gguf"})
    EXPECT_FALSE(gguf_part(name)) << name;
}

TEST(Gguf, stories260K) {
  NEED_SHARED(path, "models/stories260K/stories260K.gguf");
  GgufFile f(path);
  EXPECT_EQ(f.version(), 3);
  EXPECT_EQ(f.texts("tokenizer.ggml.tokens")->size(), 512u);
  EXPECT_EQ((*f.texts("tokenizer.ggml.tokens"))[1], "<s>");
  EXPECT_EQ(f.numbers("tokenizer.ggml.scores")->size(), 512u);
  EXPECT_EQ((*f.integers("tokenizer.ggml.token_type"))[0], 2);
  EXPECT_EQ(f.tensors().size(), 48u);
  EXPECT_EQ(f.tensor("blk.0.ffn_gate.weight").shape, (std::vector<i64>{172, 64}));
  EXPECT_EQ(f.tensor("blk.0.attn_k.weight").shape, (std::vector<i64>{32, 64}));
  auto c = config_of(f);
  EXPECT_EQ(
      c, nlohmann::json::parse(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
    "attention_bias": false, "mlp_bias": false, "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 172, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false})"));
}

/// The same numbers as the llama2.c file of the same model: an independent reader of other bytes.
TEST(Gguf, stories260K_agrees_with_its_llama2c_file) {
  NEED_SHARED(path, "models/stories260K/stories260K.gguf");
  const auto bin = read_file(shared("models/stories260K/stories260K.bin"));
  GgufFile f(path);
  std::int32_t head[7];  // dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
  ASSERT_GT(bin.size(), sizeof head);
  std::memcpy(head, bin.data(), sizeof head);
  ASSERT_EQ(head[0], 64);
  const i64 layers = head[2];
  size_t at = sizeof head;
  auto next = [&](i64 rows, i64 columns) {
    std::vector<float> r(static_cast<size_t>(rows * columns));
    std::memcpy(r.data(), bin.data() + at, r.size() * 4);
    at += r.size() * 4;
    return r;
  };
  auto in_gguf = [&](const std::string& name) {
    const auto& t = f.tensor(name);
    std::vector<float> r(static_cast<size_t>(t.bytes / 4));
    std::memcpy(r.data(), t.data, r.size() * 4);
    return r;
  };
  EXPECT_EQ(next(512, 64), in_gguf("token_embd.weight"));
  std::vector<std::pair<const char*, std::pair<i64, i64>>> order = {
      {"attn_norm", {1, 64}},  {"attn_q", {64, 64}},      {"attn_k", {32, 64}},
      {"attn_v", {32, 64}},    {"attn_output", {64, 64}}, {"ffn_norm", {1, 64}},
      {"ffn_gate", {172, 64}}, {"ffn_down", {64, 172}},   {"ffn_up", {172, 64}}};
  for (const auto& [name, size] : order)
    for (i64 l = 0; l < layers; l++)
      EXPECT_EQ(next(size.first, size.second), in_gguf(fmt::format("blk.{}.{}.weight", l, name))) << name << l;
  EXPECT_EQ(next(1, 64), in_gguf("output_norm.weight"));
}

TEST(Gguf, vocabularies) {
  NEED_SHARED(folder, "tokenizers/llama.cpp-vocab");
  int n = 0;
  for (const auto& e : fs::directory_iterator(folder)) {
    if (e.path().extension() != ".gguf") continue;
    auto start = std::chrono::steady_clock::now();
    GgufFile f(e.path().string());
    auto tokens = *f.texts("tokenizer.ggml.tokens");
    auto ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    EXPECT_GT(tokens.size(), 30'000u);
    EXPECT_EQ(f.integers("tokenizer.ggml.token_type")->size(), tokens.size());
    EXPECT_TRUE(f.tensors().empty());
    EXPECT_EQ(config_of(f)["vocab_size"], tokens.size());
    RecordProperty(e.path().stem().string(), fmt::format("{:.2f} ms", ms));
    n++;
  }
  EXPECT_EQ(n, 5);
}

/// Prints nothing of its own: a whole model, opened in a few milliseconds.
TEST(Gguf, smollm2) {
  const char* file = std::getenv("PLAIT_MODEL");
  const std::string path =
      file != nullptr ? file
                      : std::string(std::getenv("HOME")) + "/.cache/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there: scripts/fetch_model.sh";
  GgufFile f(path);
  auto c = config_of(f);
  EXPECT_EQ(c["num_attention_heads"], 9);
  EXPECT_EQ(c["num_key_value_heads"], 3);
  EXPECT_EQ(c["rope_theta"], 100000.0);
  EXPECT_EQ(c["rms_norm_eps"], 1e-5);
  EXPECT_EQ(c["tie_word_embeddings"], true);
  EXPECT_EQ(c["vocab_size"], 49152);
  EXPECT_EQ(*f.tensor("token_embd.weight").type->dtype, DType::q8_0);
  EXPECT_EQ(*f.tensor("blk.29.attn_q.weight").type->dtype, DType::q4_1);
}

}  // namespace
}  // namespace plait::io
