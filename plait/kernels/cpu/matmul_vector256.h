// 256-bit vectors for matmul_loops.h: a panel is two vectors. See matmul_job.h for what may be included.
#pragma once
#include <immintrin.h>

#include "plait/kernels/cpu/matmul_job.h"

namespace plait::kernels {
namespace {

#define PLAIT_INLINE __attribute__((always_inline)) static inline

struct V256 {
  using F = __m256;
  using I = __m256i;
  static constexpr int kParts = 2;  // vectors of a panel
  static constexpr int kLanes = 8;
  static constexpr int kPanels = 1;  // panels and rows of a tile of floats
  static constexpr int kRows = 6;
  static constexpr int kBlockPanels = 1;  // panels and rows of a tile of quantized weights
  static constexpr int kBlockRows = 3;

  PLAIT_INLINE F zero() { return _mm256_setzero_ps(); }
  PLAIT_INLINE F load(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  PLAIT_INLINE void store(void* p, F v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
  PLAIT_INLINE F broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  PLAIT_INLINE F value(float v) { return _mm256_set1_ps(v); }
  PLAIT_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  PLAIT_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

  // Pairs of bf16 -> f32.
  PLAIT_INLINE F odd(const void* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(load_int(p), _mm256_set1_epi32(-0x10000)));
  }
  PLAIT_INLINE F even(const void* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(load_int(p), 16)); }

  // 8 activations: bf16 -> f32; neighbours swapped.
  PLAIT_INLINE F widen(const void* p) {
    I v = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
  }
  PLAIT_INLINE F swap_pairs(F v) { return _mm256_permute_ps(v, 0xb1); }

  // f32 -> bf16, as plait::bf16 rounds.
  PLAIT_INLINE I bf16_bits(const float* in) {
    F f = _mm256_loadu_ps(in);
    I u = _mm256_castps_si256(f), high = _mm256_srli_epi32(u, 16);
    I odd_bit = _mm256_and_si256(high, _mm256_set1_epi32(1));
    I rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd_bit), 16);
    I nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
  }
  PLAIT_INLINE void store_bf16(void* out, const float* in) {
    I both = _mm256_packus_epi32(bf16_bits(in), bf16_bits(in + 8));
    _mm256_storeu_si256(static_cast<__m256i*>(out), _mm256_permute4x64_epi64(both, 0xd8));
  }

  // 4 f32 of magnitude < 2^62 -> i64, nearest even: the part above 2^32 and the rest, which is exact and whose rounding
  // has the parity of the whole; each made an integer by adding 1.5 * 2^52.
  PLAIT_INLINE I to_i64(__m128 t) {
    const __m256d magic = _mm256_set1_pd(0x1.8p52), two32 = _mm256_set1_pd(0x1p32);
    __m256d d = _mm256_cvtps_pd(t);
    __m256d high = _mm256_add_pd(_mm256_mul_pd(d, _mm256_set1_pd(0x1p-32)), magic);
    __m256d low = _mm256_add_pd(_mm256_sub_pd(d, _mm256_mul_pd(_mm256_sub_pd(high, magic), two32)), magic);
    const I bits = _mm256_castpd_si256(magic);
    I h = _mm256_sub_epi64(_mm256_castpd_si256(high), bits), l = _mm256_sub_epi64(_mm256_castpd_si256(low), bits);
    return _mm256_add_epi64(_mm256_slli_epi64(h, 32), l);
  }

  // Exact sums: sum += nearest(acc * scale); the largest |acc * scale| is kept as bits, so that NaN wins.
  PLAIT_INLINE void clear_sum(std::int64_t* sum) { _mm256_store_si256(reinterpret_cast<I*>(sum), zero_int()); }
  PLAIT_INLINE void add_leaf(F acc, F scale, I magnitude, std::int64_t* sum, I& largest) {
    F t = _mm256_mul_ps(acc, scale);
    largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(t), magnitude));
    auto* to = reinterpret_cast<I*>(sum);
    _mm256_store_si256(to, _mm256_add_epi64(to_i64(_mm256_castps256_ps128(t)), _mm256_load_si256(to)));
    _mm256_store_si256(to + 1, _mm256_add_epi64(to_i64(_mm256_extractf128_ps(t, 1)), _mm256_load_si256(to + 1)));
  }
  PLAIT_INLINE void add_sum(unsigned char* c, const std::int64_t* sum, bool first) {
    I v = load_int(sum);
    if (!first) v = _mm256_add_epi64(v, load_int(c));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), v);
  }
  PLAIT_INLINE I zero_int() { return _mm256_setzero_si256(); }
  PLAIT_INLINE std::int32_t largest_lane(I v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
  }
  PLAIT_INLINE std::uint32_t largest_of(I v) { return static_cast<std::uint32_t>(largest_lane(v)); }

  // Bits of 32-bit lanes: all by one count, each by its own, and turned left by counts of 0 to 31.
  PLAIT_INLINE I left(I v, int by) { return reinterpret_cast<I>(reinterpret_cast<__v8su>(v) << by); }
  PLAIT_INLINE I right(I v, int by) { return reinterpret_cast<I>(reinterpret_cast<__v8su>(v) >> by); }
  PLAIT_INLINE I right(I v, I by) { return _mm256_srlv_epi32(v, by); }
  PLAIT_INLINE I turned(I v, I by) {
    return _mm256_or_si256(_mm256_sllv_epi32(v, by), _mm256_srlv_epi32(v, _mm256_sub_epi32(splat(32), by)));
  }
  PLAIT_INLINE I bits(I v, std::int32_t mask) { return _mm256_and_si256(v, splat(mask)); }
  PLAIT_INLINE I bytes_of(I v, char mask) { return _mm256_and_si256(v, _mm256_set1_epi8(mask)); }
  PLAIT_INLINE I with_bytes_of(I low, I v, char mask) { return _mm256_or_si256(low, bytes_of(v, mask)); }
  PLAIT_INLINE I signed_byte(I v, int i) { return _mm256_srai_epi32(left(v, 24 - 8 * i), 24); }

  // Blocks. dot*: acc += 4 products of bytes of w with the signed bytes x, in each lane.
  static constexpr bool kOffsetInSum = false;
  PLAIT_INLINE I splat(std::int32_t v) { return _mm256_set1_epi32(v); }
  PLAIT_INLINE I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  PLAIT_INLINE I low_nibbles(I v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
  PLAIT_INLINE I high_nibbles(I v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
  PLAIT_INLINE I dot4(I acc, I w, I x) {  // w < 128: two products fit into 16 bits
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
  }
  PLAIT_INLINE I dot8(I acc, I w, I x) {  // w has offset 128; |w| * x with w's sign: 2 * 128 * 127 fits
    w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    I two = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
  }
  PLAIT_INLINE F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  PLAIT_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  PLAIT_INLINE F halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }

  // Activations: 32 of a block -> int8, scale, sums of both halves.
  PLAIT_INLINE void quantize(const float* in, std::int8_t* q, float* d, std::int32_t* sum) {
    const I mask = _mm256_set1_epi32(0x7fffffff);
    I m = zero_int();
    for (int i = 0; i < 32; i += 8) m = _mm256_max_epi32(m, _mm256_and_si256(load_int(in + i), mask));
    const std::int32_t bits = largest_lane(m);
    const bool finite = bits < 0x7f800000;
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))), scale = amax / 127.0f;
    *d = scale;
    sum[0] = sum[1] = 0;
    F inverse = _mm256_set1_ps(scale > 0 && finite ? 127.0f / amax : 0.0f);
    for (int i = 0; i < 32; i++) q[i] = 0;
    if (!finite) return;
    for (int i = 0; i < 32; i += 8) {
      alignas(32) std::int32_t lane[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(lane), _mm256_cvtps_epi32(_mm256_mul_ps(load(in + i), inverse)));
      for (int j = 0; j < 8; j++) {
        q[i + j] = static_cast<std::int8_t>(lane[j]);
        sum[i / 16] += lane[j];
      }
    }
  }
};

}  // namespace
}  // namespace plait::kernels
