// Small random models through io/convert.h, against files that are written by hand as transformers and llama.cpp's
// converter write them (test_models.h): bit by bit, names, shapes and order of rows.
#include "plait/io/convert.h"

#include "plait/io/safetensors_writer.h"
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

class Convert : public testing::TestWithParam<const char*> {
 protected:
  RandomModel model() const { return RandomModel(reference(GetParam()).at("config")); }
  io::TempFolder folder;
  kernels::Team team{2};

  std::string gguf_from(const std::string& from, const std::string& name, std::optional<DType> dtype) {
    io::ModelFiles files(from);
    const ModelConfig config = parse_config(files.config(), from);
    io::GgufWriter w;
    io::write_config(w, config, "random", dtype);
    for (auto& t : io::convert_tensors(files, config, FileFormat::gguf, dtype, team))
      w.add(t.name, t.dtype, t.shape, t.data);
    w.write(folder / name);
    return folder / name;
  }

  std::string folder_from(const std::string& from, const std::string& name, std::optional<DType> dtype) {
    io::ModelFiles files(from);
    const ModelConfig config = parse_config(files.config(), from);
    const std::string out = folder / name;
    fs::create_directory(out);
    io::write_file(out + "/config.json", files.config().dump());
    io::SafetensorsWriter w;
    for (auto& t : io::convert_tensors(files, config, FileFormat::hf, dtype, team))
      w.add(t.name, t.dtype, t.shape, t.data);
    w.write_folder(out, i64{1} << 40);
    return out;
  }

  /// Every tensor of `want` is in `got` with its type, shape and bits, and nothing else is there.
  void expect_same(const std::string& got, const std::string& want, float tolerance = 0) {
    io::ModelFiles a(got), b(want);
    auto names = a.tensor_names(), wanted = b.tensor_names();
    std::sort(names.begin(), names.end());
    std::sort(wanted.begin(), wanted.end());
    ASSERT_EQ(names, wanted);
    for (auto& name : names) {
      const io::FileTensor x = a.tensor(name), y = b.tensor(name);
      EXPECT_EQ(x.dtype, y.dtype) << name;
      ASSERT_EQ(x.shape, y.shape) << name;
      if (tolerance == 0) {
        EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.bytes)), 0) << name;
        continue;
      }
      for (i64 i = 0; i < x.bytes / 4; i++) {
        float p, q;
        std::memcpy(&p, x.data + 4 * i, 4);
        std::memcpy(&q, y.data + 4 * i, 4);
        ASSERT_NEAR(p, q, tolerance) << name << " element " << i;
      }
    }
  }
};

TEST_P(Convert, BothWaysAsTheirProgramsWrite) {
  const RandomModel m = model();
  const std::string hf = folder / "hf", gguf = folder / "model.gguf";
  fs::create_directory(hf);
  write_hf(m, hf);
  write_gguf(m, gguf);
  // Gains that one of the files holds less one are rounded on the way.
  const float gains = m.gemma ? 1e-7f : 0;
  expect_same(gguf_from(hf, "there.gguf", DType::f32), gguf, gains);
  expect_same(folder_from(gguf, "there", DType::f32), hf, gains);
  expect_same(folder_from(folder / "there.gguf", "back", {}), hf, gains);
  // And the config says the same model.
  const ModelConfig a = parse_config(io::ModelFiles(hf).config(), hf),
                    b = parse_config(io::ModelFiles(folder / "there.gguf").config(), "there.gguf");
  EXPECT_EQ(std::tuple(a.family, a.D, a.N, a.K, a.H, a.F, a.V, a.layers, a.max_positions, a.tied, a.attention_bias),
            std::tuple(b.family, b.D, b.N, b.K, b.H, b.F, b.V, b.layers, b.max_positions, b.tied, b.attention_bias));
  EXPECT_EQ(std::tuple(float(a.eps), float(a.rope_base), a.window, a.local),
            std::tuple(float(b.eps), float(b.rope_base), b.window, b.local));
  EXPECT_EQ(a.rope_scaling.has_value(), b.rope_scaling.has_value());
}

TEST_P(Convert, HalfTypesAreKept) {
  const std::string hf = folder / "hf";
  fs::create_directory(hf);
  write_hf(model(), hf);
  // From bf16 on nothing is rounded any more, whichever way.
  const std::string once = folder_from(gguf_from(hf, "a.gguf", DType::bf16), "once", DType::bf16);
  const std::string gguf = gguf_from(once, "b.gguf", {});
  if (!model().gemma) expect_same(folder_from(gguf, "twice", {}), once);
  expect_same(gguf_from(gguf, "c.gguf", {}), gguf);
}

TEST_P(Convert, BlocksAndWhatStandsInForThem) {
  json c = reference(GetParam()).at("config");
  if (c.contains("n_embd"))
    c.update({{"n_embd", 256}, {"n_head", 4}});
  else
    c.update({{"hidden_size", 256},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 16},
              {"intermediate_size", 232}});
  const RandomModel m(c);
  const std::string gguf = folder / "model.gguf";
  write_gguf(m, gguf);
  io::ModelFiles files(gguf);
  const ModelConfig config = parse_config(files.config(), gguf);
  for (DType wanted : {DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    i64 quantized_tensors = 0;
    for (auto& t : io::convert_tensors(files, config, FileFormat::gguf, wanted, team)) {
      const bool vector = t.shape.size() < 2 || t.name == "position_embd.weight";
      EXPECT_EQ(vector, t.dtype == DType::f32) << t.name;
      if (vector) continue;
      EXPECT_EQ(t.shape.back() % info(t.dtype).block, 0) << t.name;
      if (t.shape.back() % 32 != 0) { EXPECT_EQ(t.dtype, DType::f16) << t.name; }
      EXPECT_EQ(t.instead_of.has_value(), t.instead_of && t.shape.back() % info(*t.instead_of).block != 0) << t.name;
      quantized_tensors += is_quantized(t.dtype) ? 1 : 0;
      // The bytes are those of the quantizer, row by row.
      std::string bytes;
      t.data([&](const void* data, i64 n) { bytes.append(static_cast<const char*>(data), static_cast<size_t>(n)); });
      const io::FileTensor from = files.tensor(t.name);
      std::string want(bytes.size(), 0);
      from_f32(t.dtype, reinterpret_cast<const float*>(from.data), want.data(), from.bytes / 4);
      EXPECT_EQ(bytes, want) << t.name << " " << name_of(t.dtype);
    }
    EXPECT_GT(quantized_tensors, 0) << name_of(wanted);
  }
  EXPECT_THROW(io::convert_tensors(files, config, FileFormat::hf, DType::q8_0, team), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, Convert, testing::Values("llama_small.json", "gpt2_small.json", "gemma3_small.json"),
                         [](const auto& p) { return std::string(p.param).substr(0, std::string(p.param).find('_')); });

}  // namespace
}  // namespace plait::serve
