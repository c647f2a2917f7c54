#include "plait/tensor/dtype.h"

#include "plait/tensor/blocks.h"

namespace plait {

namespace {
constexpr DTypeInfo kInfo[] = {
    {"f32", 1, 4},     {"bf16", 1, 2},     {"f16", 1, 2},      {"f64", 1, 8},      {"i32", 1, 4},     {"i64", 1, 8},
    {"i128", 1, 16},   {"q4_0", 32, 18},   {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},  {"q8_0", 32, 34},
    {"q2_k", 256, 84}, {"q3_k", 256, 110}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}};
static_assert(std::size(kInfo) == static_cast<size_t>(DType::q6_k) + 1);
}  // namespace

const DTypeInfo& info(DType t) { return kInfo[static_cast<int>(t)]; }

std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kInfo)); i++)
    if (name == kInfo[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

float f16_to_f32(std::uint16_t h) {
  std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  int shift = std::countl_zero(mantissa) - 21;  // denormal of f16 is normal in f32
  mantissa = (mantissa << shift) & 0x3ffu;
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) | (mantissa << 13));
}

std::uint16_t f32_to_f16(float f) {
  auto u = std::bit_cast<std::uint32_t>(f);
  std::uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (a >= 0x38800000u) {
    std::uint32_t r = a + 0xfffu + ((a >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((r - 0x38000000u) >> 13));
  }
  if (a < 0x33000000u) return static_cast<std::uint16_t>(sign);
  std::uint32_t shift = 126 - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;  // denormal result
  std::uint32_t half = 1u << (shift - 1), q = m >> shift, rest = m & ((1u << shift) - 1);
  if (rest > half || (rest == half && (q & 1u))) q++;
  return static_cast<std::uint16_t>(sign | q);
}

void to_f32(DType from, const void* in, float* out, i64 count) {
  PLAIT_CHECK(count % info(from).block == 0, "{} elements of {}", count, name_of(from));
  switch (from) {
    case DType::f32:
      std::memcpy(out, in, static_cast<size_t>(count) * 4);
      return;
    case DType::bf16:
      for (i64 i = 0; i < count; i++) out[i] = static_cast<float>(static_cast<const bf16*>(in)[i]);
      return;
    case DType::f16:
      for (i64 i = 0; i < count; i++) out[i] = f16_to_f32(static_cast<const std::uint16_t*>(in)[i]);
      return;
    case DType::f64:
      for (i64 i = 0; i < count; i++) out[i] = static_cast<float>(static_cast<const double*>(in)[i]);
      return;
    default:
      PLAIT_CHECK(is_quantized(from), "no conversion from {}", name_of(from));
      dequantize(from, in, out, count);
  }
}

void from_f32(DType to, const float* in, void* out, i64 count) {
  PLAIT_CHECK(count % info(to).block == 0, "{} elements of {}", count, name_of(to));
  switch (to) {
    case DType::f32:
      std::memcpy(out, in, static_cast<size_t>(count) * 4);
      return;
    case DType::bf16:
      for (i64 i = 0; i < count; i++) static_cast<bf16*>(out)[i] = bf16(in[i]);
      return;
    case DType::f16:
      for (i64 i = 0; i < count; i++) static_cast<std::uint16_t*>(out)[i] = f32_to_f16(in[i]);
      return;
    case DType::f64:
      for (i64 i = 0; i < count; i++) static_cast<double*>(out)[i] = in[i];
      return;
    default:
      PLAIT_CHECK(is_quantized(to), "no conversion to {}", name_of(to));
      quantize_blocks(to, in, out, count);
  }
}

}  // namespace plait
