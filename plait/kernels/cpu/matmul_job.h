// What a product is to the code of one instruction set. Files compiled for a wider instruction set include this and
// <immintrin.h> and nothing else of ours or of the library: an inline function compiled there must never be the copy
// that the linker keeps for everybody.
#pragma once
#include <cstdint>

namespace plait::kernels {

struct MatmulJob {
  enum Type : std::uint8_t { kF32, kBf16, kI64, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K };
  Type x_type, w_type, out_type;
  bool native_bf16;        // the bf16 dot product of the processor is the faster way here
  const unsigned char* x;  // row 0 of the call
  const unsigned char* w;  // panel 0
  unsigned char* out;
  std::int64_t x_stride, out_stride;  // bytes from row to row
  std::int64_t n, k;                  // with bf16 weights k is rounded up to whole pairs:
  std::int64_t x_k;                   // a row of x holds this many, the missing partner is zero
  std::int64_t panel_bytes;
  const std::int64_t* edges;  // leaves + 1 edges of leaves in k, from 0 to k;
  std::int64_t leaves;        // 0 when the output is no exact sum
  std::int64_t longest_leaf;
  float scale;  // 2^exponent
};

/// Panels of one job, and what to do with rows of them once they are made (on the same thread; null: nothing).
struct MatmulPart {
  const MatmulJob* job;
  std::int64_t panel_begin, panel_end;
  void (*after)(const void* context, const MatmulPart&, std::int64_t row_begin, std::int64_t row_end) = nullptr;
  const void* context = nullptr;
};

/// Computes some rows of the parts; returns the bits of the largest |leaf * scale| (NaN is larger than everything).
/// Rows of x are prepared once for all parts, so parts of several jobs must have x, k and the type of w in common, and
/// no leaves.
using MatmulProduct = std::uint32_t (*)(const MatmulPart* parts, std::int64_t count, std::int64_t row_begin,
                                        std::int64_t row_end);

std::uint32_t matmul_reference(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);
std::uint32_t matmul_avx2(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);
std::uint32_t matmul_avx512(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);
std::uint32_t matmul_avx512bf16(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);
// Weights in blocks of 256 (from kQ2_K on); the others call these.
std::uint32_t matmul_k_avx2(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);
std::uint32_t matmul_k_avx512(const MatmulPart*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace plait::kernels
