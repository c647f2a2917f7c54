// vec_portable.h with AVX-512 (F, BW, VL, DQ); Avx512Bf16 has the processor's bf16 dot product.
#pragma once
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own _mm512_undefined_*
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "plait/tensor/dtype.h"

namespace plait::kernels {

struct Avx512 {
  static constexpr i64 kLanes = 16;
  static constexpr i64 kRowTile = 6, kPanelTile = 4;

  using F = __m512;
  struct D {
    __m512d a, b;
  };
  struct Pairs {
    __m512 even, odd;
  };

  static __mmask16 first(i64 n) { return static_cast<__mmask16>((1u << n) - 1); }
  static __m512 widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  static __m256i narrow(F a) {
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
  }
  static F join(__m256 lo, __m256 hi) { return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1); }

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const float* p, i64 n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static F load(const bf16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F load(const bf16* p, i64 n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
  static F load(const i64* p) {
    return join(_mm512_cvtepi64_ps(_mm512_loadu_si512(p)), _mm512_cvtepi64_ps(_mm512_loadu_si512(p + 8)));
  }
  static F load(const i64* p, i64 n) {
    __mmask16 m = first(n);
    return join(_mm512_cvtepi64_ps(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(m), p)),
                _mm512_cvtepi64_ps(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(m >> 8), p + 8)));
  }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void store(float* p, F a, i64 n) { _mm512_mask_storeu_ps(p, first(n), a); }
  static void store(bf16* p, F a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(a)); }
  static void store(bf16* p, F a, i64 n) { _mm256_mask_storeu_epi16(p, first(n), narrow(a)); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F scale(F a, F n) { return _mm512_scalef_ps(a, n); }
  static F fill_from(F a, i64 n, float x) { return _mm512_mask_mov_ps(set(x), first(n), a); }
  static F fill_until(F a, i64 n, float x) { return _mm512_mask_mov_ps(a, first(n), set(x)); }
  static bool any_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
  static bool all_below(F a, float limit) { return _mm512_cmp_ps_mask(_mm512_abs_ps(a), set(limit), _CMP_NLT_UQ) == 0; }
  static float sum(F a) {
    __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
  static float largest(F a) {
    __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static void add_fixed(i64* sum, F a) {
    __m512i lo = _mm512_cvtps_epi64(_mm512_castps512_ps256(a)), hi = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a, 1));
    _mm512_storeu_si512(sum, _mm512_add_epi64(_mm512_loadu_si512(sum), lo));
    _mm512_storeu_si512(sum + 8, _mm512_add_epi64(_mm512_loadu_si512(sum + 8), hi));
  }

  static Pairs split(__m512i x) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  static Pairs load_pairs(const bf16* p) { return split(_mm512_loadu_si512(p)); }
  static Pairs set_pair(const bf16* p) {
    int x;
    std::memcpy(&x, p, 4);
    return split(_mm512_set1_epi32(x));
  }
  static F dot2(F acc, const Pairs& a, const Pairs& b) { return fma(a.even, b.even, fma(a.odd, b.odd, acc)); }

  static D set_d(double x) { return {_mm512_set1_pd(x), _mm512_set1_pd(x)}; }
  static D load(const double* p, i64 n) {
    __mmask16 m = first(n);
    return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(m), p),
            _mm512_maskz_loadu_pd(static_cast<__mmask8>(m >> 8), p + 8)};
  }
  static D add(D x, D y) { return {_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)}; }
  static D sub(D x, D y) { return {_mm512_sub_pd(x.a, y.a), _mm512_sub_pd(x.b, y.b)}; }
  static D mul(D x, D y) { return {_mm512_mul_pd(x.a, y.a), _mm512_mul_pd(x.b, y.b)}; }
  static D fma(D x, D y, D z) { return {_mm512_fmadd_pd(x.a, y.a, z.a), _mm512_fmadd_pd(x.b, y.b, z.b)}; }
  static __m512d select_bit0(__m512d q, __m512d x, __m512d y) {
    return _mm512_mask_mov_pd(x, _mm512_test_epi64_mask(_mm512_castpd_si512(q), _mm512_set1_epi64(1)), y);
  }
  static D select_bit0(D q, D x, D y) { return {select_bit0(q.a, x.a, y.a), select_bit0(q.b, x.b, y.b)}; }
  static __m512d negate_bit1(__m512d q, __m512d x) {
    __m512i bit = _mm512_slli_epi64(_mm512_srli_epi64(_mm512_castpd_si512(q), 1), 63);
    return _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(x), bit));
  }
  static D negate_bit1(D q, D x) { return {negate_bit1(q.a, x.a), negate_bit1(q.b, x.b)}; }
  static F to_f32(D x) { return join(_mm512_cvtpd_ps(x.a), _mm512_cvtpd_ps(x.b)); }
};

#ifdef __AVX512BF16__
struct Avx512Bf16 : Avx512 {
  using Pairs = __m512bh;
  static Pairs load_pairs(const bf16* p) { return reinterpret_cast<Pairs>(_mm512_loadu_si512(p)); }
  static Pairs set_pair(const bf16* p) {
    int x;
    std::memcpy(&x, p, 4);
    return reinterpret_cast<Pairs>(_mm512_set1_epi32(x));
  }
  static F dot2(F acc, Pairs a, Pairs b) { return _mm512_dpbf16_ps(acc, a, b); }
};
#endif

}  // namespace plait::kernels
