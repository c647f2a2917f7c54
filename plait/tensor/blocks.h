// Quantized blocks as GGUF stores them (source: ggml, docs and ggml-common.h of the format).
//
//   y[i] = scale * q[i] - minimum     scale, minimum: of the sub-block of i
//
// type   block  sub  bytes  q           scale             minimum
// q4_0      32   32     18  nibble-8    d                 none
// q4_1      32   32     20  nibble      d                 -m
// q5_0      32   32     22  5 bits-16   d                 none
// q5_1      32   32     24  5 bits      d                 -m
// q8_0      32   32     34  int8        d                 none
// q2_k     256   16     84  2 bits      d * 4 bits        dmin * 4 bits
// q3_k     256   16    110  3 bits-4    d * (6 bits-32)   none
// q4_k     256   32    144  nibble      d * 6 bits        dmin * 6 bits
// q5_k     256   32    176  5 bits      d * 6 bits        dmin * 6 bits
// q6_k     256   16    210  6 bits-32   d * int8          none
// d, m and dmin are f16; scale and minimum are exact in f32 (11 bits by at most 8).
#pragma once
#include "plait/tensor/dtype.h"

namespace plait {

/// In the four types of 32: element i < 16 in the low nibbles, i + 16 in the high ones; bit i of qh is bit 4 of
/// element i.
struct BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t q[16];
};
struct BlockQ4_1 {
  std::uint16_t d, m;
  std::uint8_t q[16];
};
struct BlockQ5_0 {
  std::uint16_t d;
  std::uint8_t qh[4], q[16];
};
struct BlockQ5_1 {
  std::uint16_t d, m;
  std::uint8_t qh[4], q[16];
};
struct BlockQ8_0 {
  std::uint16_t d;
  std::int8_t q[32];
};
/// Sub-block s of 32 (a half s / 4 of the block, j = s % 4): bits 2j of q[32 (s / 4) ...]; `scales`: of each 16, the
/// scale in the low nibble, the minimum in the high one.
struct BlockQ2_K {
  std::uint8_t scales[16], q[64];
  std::uint16_t d, dmin;
};
/// q as in q2_k; bit s of hmask[i % 32] is bit 2 of element i. `scales`: low nibbles in bytes 0-7 (high nibbles: scale
/// 8 on), bits 4 and 5 of scale j in bits 2 (j / 4) of byte 8 + j % 4.
struct BlockQ3_K {
  std::uint8_t hmask[32], q[64], scales[12];
  std::uint16_t d;
};
/// Sub-blocks 2j and 2j + 1 are the low and high nibbles of q[32 j ...]. `scales`: 6 bits of scale j < 4 in byte j, of
/// minimum j in byte 4 + j; of j >= 4 the low nibbles in byte 4 + j (scale low, minimum high), their bits 4 and 5 at
/// the top of bytes j - 4 and j.
struct BlockQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12], q[128];
};
/// q4_k, and bit s of qh[i % 32] is bit 4 of element i of sub-block s.
struct BlockQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12], qh[32], q[128];
};
/// Of each half of 128 elements: sub-blocks of 32 j = 0, 1 in the low nibbles of 64 bytes of q, j = 2, 3 in the high
/// ones; bits 4 and 5 of sub-block j in bits 2j of 32 bytes of qh.
struct BlockQ6_K {
  std::uint8_t q[128], qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 &&
              sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 &&
              sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
constexpr i64 kLargestBlock = 256, kLargestBlockBytes = 210;

/// Whether y has a minimum: q4_1, q5_1, q2_k, q4_k, q5_k.
bool has_minimum(DType t);
/// Elements that share a scale: 16 or 32.
i64 sub_block(DType t);

/// A block taken apart.
struct BlockParts {
  std::int8_t q[kLargestBlock];
  float scale[16], minimum[16];  // by sub-block; minimum only where the type has one
};
void take_apart(DType t, const void* block, BlockParts& out);

/// Blocks -> f32 and back; count is a multiple of the block. to_f32 and from_f32 come here.
void dequantize(DType from, const void* in, float* out, i64 count);
void quantize_blocks(DType to, const float* in, void* out, i64 count);

/// Bytes 0-7 scales, 8-15 minima of a q4_k or q5_k block, and how they are stored.
void unpack_scales_q4_k(const std::uint8_t (&packed)[12], std::uint8_t (&out)[16]);
void pack_scales_q4_k(const std::uint8_t (&scales)[16], std::uint8_t (&out)[12]);

}  // namespace plait
