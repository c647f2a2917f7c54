// 512-bit vectors for matmul_loops.h: a panel is one vector. See matmul_job.h for what may be included.
#pragma once
#include <immintrin.h>

#include "plait/kernels/cpu/matmul_job.h"

// GCC 12 takes the undefined operand inside its own AVX-512 intrinsics for a use of ours.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace plait::kernels {
namespace {

#define PLAIT_INLINE __attribute__((always_inline)) static inline

struct V512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kParts = 1;  // vectors of a panel
  static constexpr int kLanes = 16;
  static constexpr int kPanels = 4;       // panels of a tile of floats
  static constexpr int kRows = 6;         // rows of such a tile
  static constexpr int kBlockPanels = 2;  // panels and rows of a tile of quantized weights
  static constexpr int kBlockRows = 6;

  PLAIT_INLINE F zero() { return _mm512_setzero_ps(); }
  PLAIT_INLINE F load(const void* p) { return _mm512_loadu_ps(p); }
  PLAIT_INLINE void store(void* p, F v) { _mm512_storeu_ps(p, v); }
  PLAIT_INLINE F broadcast(const float* p) { return _mm512_set1_ps(*p); }
  PLAIT_INLINE F value(float v) { return _mm512_set1_ps(v); }
  PLAIT_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  PLAIT_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  // Pairs of bf16 -> f32.
  PLAIT_INLINE F odd(const void* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-0x10000)));
  }
  PLAIT_INLINE F even(const void* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }

  // 16 activations: bf16 -> f32; neighbours swapped.
  PLAIT_INLINE F widen(const void* p) {
    I v = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
  }
  PLAIT_INLINE F swap_pairs(F v) { return _mm512_permute_ps(v, 0xb1); }

  // f32 -> bf16, as plait::bf16 rounds: 16 columns.
  PLAIT_INLINE void store_bf16(void* out, const float* in) {
    F f = _mm512_loadu_ps(in);
    I u = _mm512_castps_si512(f), high = _mm512_srli_epi32(u, 16);
    I odd_bit = _mm512_and_si512(high, _mm512_set1_epi32(1));
    I rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd_bit), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
    I r = _mm512_mask_mov_epi32(rounded, nan, _mm512_or_si512(high, _mm512_set1_epi32(0x40)));
    _mm256_storeu_si256(static_cast<__m256i*>(out), _mm512_cvtepi32_epi16(r));
  }

  // Exact sums: sum += nearest(acc * scale); the largest |acc * scale| is kept as bits, so that NaN wins.
  PLAIT_INLINE void clear_sum(std::int64_t* sum) { _mm512_store_si512(sum, _mm512_setzero_si512()); }
  PLAIT_INLINE void add_leaf(F acc, F scale, I magnitude, std::int64_t* sum, I& largest) {
    F t = _mm512_mul_ps(acc, scale);
    largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(t), magnitude));
    I low = _mm512_cvtps_epi64(_mm512_castps512_ps256(t)), high = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(t, 1));
    _mm512_store_si512(sum, _mm512_add_epi64(low, _mm512_load_si512(sum)));
    _mm512_store_si512(sum + 8, _mm512_add_epi64(high, _mm512_load_si512(sum + 8)));
  }
  PLAIT_INLINE void add_sum(unsigned char* c, const std::int64_t* sum, bool first) {
    I v = _mm512_load_si512(sum);
    _mm512_storeu_si512(c, first ? v : _mm512_add_epi64(v, _mm512_loadu_si512(c)));
  }
  PLAIT_INLINE I zero_int() { return _mm512_setzero_si512(); }
  PLAIT_INLINE std::uint32_t largest_of(I v) { return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(v)); }

  // Bits of 32-bit lanes: all by one count, each by its own, and turned left by counts of 0 to 31.
  PLAIT_INLINE I left(I v, int by) { return reinterpret_cast<I>(reinterpret_cast<__v16su>(v) << by); }
  PLAIT_INLINE I right(I v, int by) { return reinterpret_cast<I>(reinterpret_cast<__v16su>(v) >> by); }
  PLAIT_INLINE I right(I v, I by) { return _mm512_srlv_epi32(v, by); }
  PLAIT_INLINE I turned(I v, I by) { return _mm512_rolv_epi32(v, by); }
  PLAIT_INLINE I bits(I v, std::int32_t mask) { return _mm512_and_si512(v, splat(mask)); }
  PLAIT_INLINE I bytes_of(I v, char mask) { return _mm512_and_si512(v, _mm512_set1_epi8(mask)); }
  PLAIT_INLINE I with_bytes_of(I low, I v, char mask) {
    return _mm512_ternarylogic_epi32(low, v, _mm512_set1_epi8(mask), 0xf8);
  }
  PLAIT_INLINE I signed_byte(I v, int i) { return _mm512_srai_epi32(left(v, 24 - 8 * i), 24); }

  // Blocks. dot*: acc += 4 products of unsigned bytes of w with the signed bytes x, in each lane.
  static constexpr bool kOffsetInSum = true;  // q8_0 enters as it lies, offset 128: the sum of x takes it back
  PLAIT_INLINE I splat(std::int32_t v) { return _mm512_set1_epi32(v); }
  PLAIT_INLINE I load_int(const void* p) { return _mm512_loadu_si512(p); }
  PLAIT_INLINE I low_nibbles(I v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
  PLAIT_INLINE I high_nibbles(I v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
  PLAIT_INLINE I dot4(I acc, I w, I x) { return _mm512_dpbusd_epi32(acc, w, x); }
  PLAIT_INLINE I dot8(I acc, I w, I x) { return _mm512_dpbusd_epi32(acc, w, x); }
  PLAIT_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  PLAIT_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  PLAIT_INLINE F halves(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }

  // Activations: 32 of a block (as two vectors) -> int8, scale, sums of both halves.
  PLAIT_INLINE void quantize(const float* in, std::int8_t* q, float* d, std::int32_t* sum) {
    F a = _mm512_loadu_ps(in), b = _mm512_loadu_ps(in + 16);
    const I mask = _mm512_set1_epi32(0x7fffffff);
    I m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                           _mm512_and_si512(_mm512_castps_si512(b), mask));
    const std::int32_t bits = _mm512_reduce_max_epi32(m);
    const bool finite = bits < 0x7f800000;
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))), scale = amax / 127.0f;
    *d = scale;
    if (!(scale > 0) || !finite) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
      sum[0] = sum[1] = 0;
      return;
    }
    F inverse = _mm512_set1_ps(127.0f / amax);
    I qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)), qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(qb));
    sum[0] = _mm512_reduce_add_epi32(qa);
    sum[1] = _mm512_reduce_add_epi32(qb);
  }
};

}  // namespace
}  // namespace plait::kernels
