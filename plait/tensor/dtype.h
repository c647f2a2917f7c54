// Element types. Block types (GGUF; blocks.h) hold 32 or 256 elements a block along the innermost dim.
#pragma once
#include <bit>
#include <cstring>
#include <optional>

#include "plait/base/base.h"

namespace plait {

enum class DType : std::uint8_t {
  f32,
  bf16,
  f16,
  f64,
  i32,
  i64,
  i128,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
};
/// The block types, by their place in DType.
constexpr DType kBlockTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                                 DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k};

struct DTypeInfo {
  const char* name;
  i64 block;        // elements of a block (1 for plain types)
  i64 block_bytes;  // bytes of a block
};
const DTypeInfo& info(DType t);
inline const char* name_of(DType t) { return info(t).name; }
std::optional<DType> dtype_named(std::string_view name);
inline bool is_quantized(DType t) { return info(t).block > 1; }
/// Bytes of `count` elements in a row; count is a multiple of the block.
inline i64 bytes_of(DType t, i64 count) { return count / info(t).block * info(t).block_bytes; }

/// bf16 <-> f32: nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float f) {
    auto u = std::bit_cast<std::uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);
    else
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(bf16) == 2);

/// IEEE half, as bits.
float f16_to_f32(std::uint16_t h);
std::uint16_t f32_to_f16(float f);

/// Any float or block type -> f32, `count` elements (a multiple of the block).
void to_f32(DType from, const void* in, float* out, i64 count);
/// f32 -> f32, bf16, f16, f64 or a block type, `count` elements (a multiple of the block). How blocks are chosen: see
/// tensor/quantize.cc. A block with an element that is not finite reads back as NaN.
void from_f32(DType to, const float* in, void* out, i64 count);

}  // namespace plait
