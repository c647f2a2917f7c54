// Sixteen lanes of f32 and what the kernels do with them, in plain C++. vec_avx2.h and vec_avx512.h have the same
// members with the same bits. Kernels are templates over one of these classes, so there is one source for every
// instruction set; lanes are always sixteen because the order of sums inside a row is a contract (docs/numerics.md).
//
//   F      16 x f32        D      16 x f64        Pairs  16 x (even, odd) of bf16
// Loads and stores with a count touch the first n elements only (0 < n <= 16); lanes that were not loaded are +0.
#pragma once
#include <cmath>
#include <limits>

#include "plait/tensor/dtype.h"

namespace plait::kernels {

struct Portable {
  static constexpr i64 kLanes = 16;
  static constexpr i64 kRowTile = 2, kPanelTile = 2;  // accumulators of the attention block: rows x vectors

  struct F {
    float v[16];
  };
  struct D {
    double v[16];
  };
  struct Pairs {
    float even[16], odd[16];
  };

  template <class Op>
  static F each(Op op) {
    F r;
    for (int i = 0; i < 16; i++) r.v[i] = op(i);
    return r;
  }
  template <class Op>
  static D each_d(Op op) {
    D r;
    for (int i = 0; i < 16; i++) r.v[i] = op(i);
    return r;
  }

  static F zero() { return set(0); }
  static F set(float x) {
    return each([&](int) { return x; });
  }
  static F load(const float* p) { return load(p, 16); }
  static F load(const float* p, i64 n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static F load(const bf16* p) { return load(p, 16); }
  static F load(const bf16* p, i64 n) {
    return each([&](int i) { return i < n ? static_cast<float>(p[i]) : 0.0f; });
  }
  /// Rounded once.
  static F load(const i64* p) { return load(p, 16); }
  static F load(const i64* p, i64 n) {
    return each([&](int i) { return i < n ? static_cast<float>(p[i]) : 0.0f; });
  }
  static void store(float* p, F a) { store(p, a, 16); }
  static void store(float* p, F a, i64 n) {
    for (int i = 0; i < n; i++) p[i] = a.v[i];
  }
  static void store(bf16* p, F a) { store(p, a, 16); }
  static void store(bf16* p, F a, i64 n) {
    for (int i = 0; i < n; i++) p[i] = bf16(a.v[i]);
  }

  static F add(F a, F b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  /// The second operand where one is NaN (as the processor's).
  static F min(F a, F b) {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F max(F a, F b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  /// a * 2^n for integers n in [-252, 254], rounded once.
  static F scale(F a, F n) {
    return each([&](int i) {
      if (!(std::fabs(n.v[i]) <= 254)) return n.v[i] + a.v[i];
      int e = static_cast<int>(n.v[i]), half = e >> 1;
      auto power = [](int k) { return std::bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23); };
      return a.v[i] * power(half) * power(e - half);
    });
  }
  /// Lanes >= n become x.
  static F fill_from(F a, i64 n, float x) {
    return each([&](int i) { return i < n ? a.v[i] : x; });
  }
  /// Lanes < n become x.
  static F fill_until(F a, i64 n, float x) {
    return each([&](int i) { return i < n ? x : a.v[i]; });
  }
  static bool any_nan(F a) {
    bool nan = false;
    for (float x : a.v) nan |= x != x;
    return nan;
  }
  /// |a| < limit in every lane.
  static bool all_below(F a, float limit) {
    bool all = true;
    for (float x : a.v) all &= std::fabs(x) < limit;
    return all;
  }
  /// Lane j + lane j+8, then +4, +2, +1.
  static float sum(F a) {
    for (int step = 8; step > 0; step /= 2)
      for (int i = 0; i < step; i++) a.v[i] += a.v[i + step];
    return a.v[0];
  }
  static float largest(F a) {
    for (int step = 8; step > 0; step /= 2)
      for (int i = 0; i < step; i++) a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
    return a.v[0];
  }
  /// sum[i] += nearest integer (even on ties) of a[i], modulo 2^64; any integer where a[i] is not within 2^63.
  static void add_fixed(i64* sum, F a) {
    for (int i = 0; i < 16; i++)
      sum[i] = static_cast<i64>(static_cast<u64>(sum[i]) + static_cast<u64>(std::llrint(a.v[i])));
  }

  static Pairs load_pairs(const bf16* p) {
    Pairs r;
    for (int i = 0; i < 16; i++) {
      r.even[i] = static_cast<float>(p[2 * i]);
      r.odd[i] = static_cast<float>(p[2 * i + 1]);
    }
    return r;
  }
  static Pairs set_pair(const bf16* p) {
    Pairs r;
    for (int i = 0; i < 16; i++) {
      r.even[i] = static_cast<float>(p[0]);
      r.odd[i] = static_cast<float>(p[1]);
    }
    return r;
  }
  /// fma(odd), then fma(even): what the processor's bf16 dot product does.
  static F dot2(F acc, const Pairs& a, const Pairs& b) {
    return each([&](int i) { return std::fma(a.even[i], b.even[i], std::fma(a.odd[i], b.odd[i], acc.v[i])); });
  }

  static D set_d(double x) {
    return each_d([&](int) { return x; });
  }
  static D load(const double* p, i64 n) {
    return each_d([&](int i) { return i < n ? p[i] : 0.0; });
  }
  static D add(const D& a, const D& b) {
    return each_d([&](int i) { return a.v[i] + b.v[i]; });
  }
  static D sub(const D& a, const D& b) {
    return each_d([&](int i) { return a.v[i] - b.v[i]; });
  }
  static D mul(const D& a, const D& b) {
    return each_d([&](int i) { return a.v[i] * b.v[i]; });
  }
  static D fma(const D& a, const D& b, const D& c) {
    return each_d([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  /// b where the lowest bit of the pattern of q is set, else a.
  static D select_bit0(const D& q, const D& a, const D& b) {
    return each_d([&](int i) { return (std::bit_cast<u64>(q.v[i]) & 1) != 0 ? b.v[i] : a.v[i]; });
  }
  /// -a where bit 1 of the pattern of q is set, else a.
  static D negate_bit1(const D& q, const D& a) {
    return each_d([&](int i) {
      return std::bit_cast<double>(std::bit_cast<u64>(a.v[i]) ^ ((std::bit_cast<u64>(q.v[i]) >> 1 & 1) << 63));
    });
  }
  static F to_f32(const D& a) {
    return each([&](int i) { return static_cast<float>(a.v[i]); });
  }
};

}  // namespace plait::kernels
