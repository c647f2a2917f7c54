// exp, log, sigmoid, sin and cos with the same bits on every processor: IEEE adds, products, quotients and fma in the
// order written here. exp, sigmoid and sin_cos are the steps of kernels/cpu/math.h, one lane at a time.
//
//   exp  n = nearest integer of x log2 e, r = x - n ln 2 in two fma steps, a polynomial of degree 6, times 2^n in two
//        halves; results below 2^-126 are zero only where denormals are flushed
//   log  x = m 2^e with m in [sqrt 1/2, sqrt 2), s = (m - 1) / (m + 1), 2 s (1 + s^2/3 + ... + s^8/9) + e ln 2;
//        within 1.2 units in the last place
//   sin  double; quarter turns removed in three fma steps (|x| < 2^31), Taylor to r^13 and r^14 (2e-14)
//
// The double versions of exp and log are the library's: only tests run in f64, and they compare runs of one machine.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

#include "plait/base/base.h"

namespace plait::kernels::reference {

constexpr float kLog2e = 0x1.715476p+0f, kLn2High = 0x1.62e43p-1f, kLn2Low = -0x1.05c61p-29f;

inline float exp(float x) {
  constexpr float kRound = 0x1.8p23f;
  x = std::isnan(x) ? x : std::max(-150.0f, std::min(150.0f, x));
  float n = std::fma(x, kLog2e, kRound) - kRound;
  float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float q = std::fma(0x1.6a23dp-10f, r, 0x1.123a2p-7f);
  q = std::fma(q, r, 0x1.5558f2p-5f);
  q = std::fma(q, r, 0x1.555492p-3f);
  q = std::fma(q, r, 0x1.fffffcp-2f);
  float y = std::fma(q, r * r, r) + 1;
  if (std::isnan(x)) return n + y;
  auto k = static_cast<std::int32_t>(n), half = k >> 1;
  auto two_to = [](std::int32_t e) { return std::bit_cast<float>((e + 127) << 23); };
  return y * two_to(half) * two_to(k - half);
}

/// x > 0 and normal; log(0) = -infinity.
inline float log(float x) {
  if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
  if (x == INFINITY) return x;
  auto bits = std::bit_cast<std::int32_t>(x);
  std::int32_t e = (bits - 0x3f3504f3) >> 23;  // sqrt 1/2
  float m = std::bit_cast<float>(bits - (e << 23)), k = static_cast<float>(e);
  float f = m - 1.0f, s = f / (m + 1.0f), z = s * s;
  float p = 2.0f / 9;
  p = std::fma(p, z, 2.0f / 7);
  p = std::fma(p, z, 2.0f / 5);
  p = std::fma(p, z, 2.0f / 3);
  // 2 s = f - s f, which keeps the bits of f
  float tail = std::fma(s * z, p, std::fma(k, kLn2Low, -(s * f)));
  return std::fma(k, kLn2High, f + tail);
}

inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }

template <class R>
R sigmoid(R x) {
  return R(1) / (R(1) + exp(-x));
}

struct SinCos {
  double sin, cos;
};

inline SinCos sin_cos(double x) {
  constexpr double kRound = 0x1.8p52;
  double q = std::fma(x, 0x1.45f306dc9c883p-1, kRound), n = q - kRound;
  double r = std::fma(n, -0x1.921fb54442d18p+0, x);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  r = std::fma(n, 0x1.f1976b7ed8fbcp-110, r);
  double z = r * r, s = std::fma(1.0 / 6227020800, z, -1.0 / 39916800);
  for (double k : {1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}) s = std::fma(s, z, k);
  s = std::fma(s * z, r, r);
  double c = std::fma(-1.0 / 87178291200, z, 1.0 / 479001600);
  for (double k : {-1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0}) c = std::fma(c, z, k);
  switch (static_cast<i64>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

/// Sum of n terms in a fixed order that vectors have too: 16 lanes, each over the terms of its place modulo 16 in
/// order, then lane i + lane i + 8, + 4, + 2, + 1. f(sum so far, i) adds term i.
template <class R, class F>
R lane_sum(i64 n, F f) {
  R lane[16] = {};
  for (i64 i = 0; i < n; i++) lane[i & 15] = f(lane[i & 15], i);
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; i++) lane[i] += lane[i + w];
  return lane[0];
}

}  // namespace plait::kernels::reference
