// vec_portable.h with AVX2, FMA and F16C. i64 <-> f32 go through scalar conversions, which round once.
#pragma once
#include <immintrin.h>

#include "plait/tensor/dtype.h"

namespace plait::kernels {

struct Avx2 {
  static constexpr i64 kLanes = 16;
  static constexpr i64 kRowTile = 3, kPanelTile = 2;

  struct F {
    __m256 a, b;
  };
  struct D {
    __m256d v[4];
  };
  struct Pairs {
    F even, odd;
  };

  static __m256i first(i64 n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256i first_d(i64 n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
  static __m256 widen(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  static __m256i round_bf16(__m256 a) {
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q))), 16);
  }

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load(const float* p, i64 n) {
    return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
  }
  static F load(const bf16* p) {
    return {widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static F load(const bf16* p, i64 n) {
    alignas(32) bf16 x[16] = {};
    std::memcpy(x, p, static_cast<size_t>(n) * 2);
    return load(x);
  }
  static F load(const i64* p) { return load(p, 16); }
  static F load(const i64* p, i64 n) {
    alignas(32) float x[16] = {};
    for (i64 i = 0; i < n; i++) x[i] = static_cast<float>(p[i]);
    return load(x);
  }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  static void store(float* p, F x, i64 n) {
    _mm256_maskstore_ps(p, first(n), x.a);
    _mm256_maskstore_ps(p + 8, first(n - 8), x.b);
  }
  static void store(bf16* p, F x) {
    __m256i both = _mm256_packus_epi32(round_bf16(x.a), round_bf16(x.b));  // within halves of 128 bits
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(both, 0xd8));
  }
  static void store(bf16* p, F x, i64 n) {
    alignas(32) bf16 y[16];
    store(y, x);
    std::memcpy(p, y, static_cast<size_t>(n) * 2);
  }

  static F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
  static F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static __m256 scale(__m256 x, __m256 n) {
    __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1), bias = _mm256_set1_epi32(127);
    __m256 p = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 q = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, half), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, p), q);
  }
  static F scale(F x, F n) { return {scale(x.a, n.a), scale(x.b, n.b)}; }
  static F fill_from(F x, i64 n, float y) {
    __m256 f = _mm256_set1_ps(y);
    return {_mm256_blendv_ps(f, x.a, _mm256_castsi256_ps(first(n))),
            _mm256_blendv_ps(f, x.b, _mm256_castsi256_ps(first(n - 8)))};
  }
  static F fill_until(F x, i64 n, float y) {
    __m256 f = _mm256_set1_ps(y);
    return {_mm256_blendv_ps(x.a, f, _mm256_castsi256_ps(first(n))),
            _mm256_blendv_ps(x.b, f, _mm256_castsi256_ps(first(n - 8)))};
  }
  static bool any_nan(F x) { return _mm256_movemask_ps(_mm256_cmp_ps(x.a, x.b, _CMP_UNORD_Q)) != 0; }
  static bool all_below(F x, float limit) {
    __m256 l = _mm256_set1_ps(limit), sign = _mm256_set1_ps(-0.0f);
    __m256 a = _mm256_cmp_ps(_mm256_andnot_ps(sign, x.a), l, _CMP_NLT_UQ);
    __m256 b = _mm256_cmp_ps(_mm256_andnot_ps(sign, x.b), l, _CMP_NLT_UQ);
    return _mm256_movemask_ps(_mm256_or_ps(a, b)) == 0;
  }
  static float sum(F x) {
    __m256 y = _mm256_add_ps(x.a, x.b);
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
  }
  static float largest(F x) {
    __m256 y = _mm256_max_ps(x.a, x.b);
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
  }
  static void add_fixed(i64* sum, F x) {
    alignas(32) float y[16];
    store(y, x);
    for (int i = 0; i < 16; i++)
      sum[i] = static_cast<i64>(static_cast<u64>(sum[i]) + static_cast<u64>(_mm_cvtss_si64(_mm_load_ss(y + i))));
  }

  static __m256 even(__m256i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
  static __m256 odd(__m256i x) {
    return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static Pairs load_pairs(const bf16* p) {
    __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
    return {{even(x), even(y)}, {odd(x), odd(y)}};
  }
  static Pairs set_pair(const bf16* p) {
    int x;
    std::memcpy(&x, p, 4);
    __m256i y = _mm256_set1_epi32(x);
    return {{even(y), even(y)}, {odd(y), odd(y)}};
  }
  static F dot2(F acc, const Pairs& x, const Pairs& y) { return fma(x.even, y.even, fma(x.odd, y.odd, acc)); }

  template <class Op>
  static D each_d(Op op) {
    D r;
    for (int i = 0; i < 4; i++) r.v[i] = op(i);
    return r;
  }
  static D set_d(double x) {
    return each_d([&](int) { return _mm256_set1_pd(x); });
  }
  static D load(const double* p, i64 n) {
    return each_d([&](int i) { return _mm256_maskload_pd(p + 4 * i, first_d(n - 4 * i)); });
  }
  static D add(const D& x, const D& y) {
    return each_d([&](int i) { return _mm256_add_pd(x.v[i], y.v[i]); });
  }
  static D sub(const D& x, const D& y) {
    return each_d([&](int i) { return _mm256_sub_pd(x.v[i], y.v[i]); });
  }
  static D mul(const D& x, const D& y) {
    return each_d([&](int i) { return _mm256_mul_pd(x.v[i], y.v[i]); });
  }
  static D fma(const D& x, const D& y, const D& z) {
    return each_d([&](int i) { return _mm256_fmadd_pd(x.v[i], y.v[i], z.v[i]); });
  }
  static D select_bit0(const D& q, const D& x, const D& y) {
    return each_d([&](int i) {
      __m256d m = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(q.v[i]), 63));
      return _mm256_blendv_pd(x.v[i], y.v[i], m);
    });
  }
  static D negate_bit1(const D& q, const D& x) {
    return each_d([&](int i) {
      __m256i bit = _mm256_slli_epi64(_mm256_srli_epi64(_mm256_castpd_si256(q.v[i]), 1), 63);
      return _mm256_xor_pd(x.v[i], _mm256_castsi256_pd(bit));
    });
  }
  static F to_f32(const D& x) {
    auto pair = [](__m256d lo, __m256d hi) {
      return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(lo)), _mm256_cvtpd_ps(hi), 1);
    };
    return {pair(x.v[0], x.v[1]), pair(x.v[2], x.v[3])};
  }
};

}  // namespace plait::kernels
