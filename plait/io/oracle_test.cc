// Files made by the formats' own Python packages (scripts/oracles/io_formats.py): the same values are read, and our
// writers make the same bytes.
#include <nlohmann/json.hpp>

#include "plait/io/file_tensor.h"
#include "plait/io/gguf_writer.h"
#include "plait/io/json_text.h"
#include "plait/io/safetensors_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

const std::string kFolder = "plait/io/testdata/";

void expect_values(const FileTensor& t, const nlohmann::json& expected) {
  std::vector<float> got(static_cast<size_t>(volume(whole(t))));
  read_slice(t, whole(t), DType::f32, got.data());
  std::vector<std::uint32_t> bits(got.size());
  if (!got.empty()) std::memcpy(bits.data(), got.data(), got.size() * 4);
  EXPECT_EQ(bits, expected.at(t.name).get<std::vector<std::uint32_t>>()) << t.name;
}

TEST(Oracle, gguf) {
  GgufFile f(kFolder + "oracle.gguf");
  const auto expected = read_json(kFolder + "oracle.json");
  EXPECT_EQ(*f.text("general.architecture"), "llama");
  EXPECT_EQ(*f.integer("llama.block_count"), 2);
  EXPECT_EQ(*f.number("a.f64"), 0.1);
  EXPECT_EQ(*f.integer("a.i64"), -5);
  EXPECT_EQ(*f.flag("a.flag"), true);
  EXPECT_THAT(*f.texts("tokenizer.ggml.tokens"), testing::ElementsAre("<s>", "a", "\xc3\xa9"));
  EXPECT_THAT(*f.numbers("tokenizer.ggml.scores"), testing::ElementsAre(0.f, -1.f, -2.5f));
  ASSERT_EQ(f.tensors().size(), 6u);
  GgufWriter w(f.version(), f.alignment());
  for (auto key : f.keys()) w.set(key, *f.find(key));
  for (const auto& t : f.tensors()) {
    EXPECT_EQ(t.shape, (std::vector<i64>{3, 64}));
    expect_values({std::string(t.name), *t.type->dtype, t.shape, t.data, t.bytes, nullptr}, expected);
    w.add(t.name, *t.type->dtype, t.shape, t.data);
  }
  EXPECT_EQ(w.to_bytes(), read_file(f.path()));
}

TEST(Oracle, safetensors) {
  Safetensors f(kFolder + "oracle.safetensors");
  const auto expected = read_json(kFolder + "oracle.json");
  ASSERT_EQ(f.tensors().size(), 6u);
  SafetensorsWriter w;
  for (const auto& [key, value] : f.metadata()) w.set_metadata(key, value);
  for (const auto& t : f.tensors()) {
    if (*t.type->dtype != DType::i64)
      expect_values({t.name, *t.type->dtype, t.shape, t.data, t.bytes, nullptr}, expected);
    w.add(t.name, *t.type->dtype, t.shape, t.data);
  }
  EXPECT_EQ(w.to_bytes(), read_file(kFolder + "oracle.safetensors"));
}

}  // namespace
}  // namespace plait::io
