// The tensor types of GGUF, and the names of split files.
#include "plait/io/gguf.h"

namespace plait::io {

namespace {

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::f32},
    {1, "F16", 1, 2, DType::f16},
    {2, "Q4_0", 32, 18, DType::q4_0},
    {3, "Q4_1", 32, 20, DType::q4_1},
    {6, "Q5_0", 32, 22, DType::q5_0},
    {7, "Q5_1", 32, 24, DType::q5_1},
    {8, "Q8_0", 32, 34, DType::q8_0},
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, DType::q2_k},
    {11, "Q3_K", 256, 110, DType::q3_k},
    {12, "Q4_K", 256, 144, DType::q4_k},
    {13, "Q5_K", 256, 176, DType::q5_k},
    {14, "Q6_K", 256, 210, DType::q6_k},
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, {}},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    {30, "BF16", 1, 2, DType::bf16},
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
};

}  // namespace

const GgmlType* ggml_type(std::uint32_t id) {
  for (const auto& t : kTypes)
    if (t.id == id) return &t;
  return nullptr;
}

const GgmlType* ggml_type_of(DType dtype) {
  for (const auto& t : kTypes)
    if (t.dtype == dtype) return &t;
  return nullptr;
}

std::optional<GgufPart> gguf_part(std::string_view path) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (path.size() < kForm.size()) return std::nullopt;
  const auto name = path.substr(path.size() - kForm.size());
  i64 numbers[2] = {};
  for (size_t i = 0, digits = 0; i < kForm.size(); i++) {
    if (kForm[i] != '0' && name[i] != kForm[i]) return std::nullopt;
    if (kForm[i] != '0') continue;
    if (name[i] < '0' || name[i] > '9') return std::nullopt;
    i64& n = numbers[digits++ / 5];
    n = n * 10 + (name[i] - '0');
  }
  if (numbers[0] < 1 || numbers[0] > numbers[1]) return std::nullopt;
  return GgufPart{std::string(path.substr(0, path.size() - kForm.size())), numbers[0] - 1, numbers[1]};
}

std::string part_path(const GgufPart& part) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", part.stem, part.no + 1, part.count);
}

}  // namespace plait::io
