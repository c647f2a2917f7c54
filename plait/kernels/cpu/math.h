// exp, sigmoid, sine and cosine of our own: the same bits on every instruction set and with every C library.
//   exp      x = n ln2 + r, |r| <= ln2/2; a polynomial of degree 6 in r (minimax in relative error, 3.1e-9, found by a
//            Remez exchange); within 2 ulp. NaN stays NaN; under FTZ results below 2^-126 are 0.
//   sin_cos  f64: x = n pi/2 + r by three constants and fma, Taylor series of degree 13 and 14 in r (2e-14); for
//            |x| < 2^31.
//   log, pow f64, scalar, once at prepare.
// V is one of the classes of vec_portable.h, vec_avx2.h, vec_avx512.h.
#pragma once
#include "plait/base/base.h"

namespace plait::kernels {

template <class V>
typename V::F exp(typename V::F x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  x = V::max(V::set(-150.0f), V::min(V::set(150.0f), x));
  auto n = V::sub(V::fma(x, V::set(0x1.715476p+0f), V::set(kRound)), V::set(kRound));
  auto r = V::fma(n, V::set(-0x1.62e43p-1f), x);
  r = V::fma(n, V::set(0x1.05c61p-29f), r);
  auto q = V::fma(V::set(0x1.6a23dp-10f), r, V::set(0x1.123a2p-7f));
  q = V::fma(q, r, V::set(0x1.5558f2p-5f));
  q = V::fma(q, r, V::set(0x1.555492p-3f));
  q = V::fma(q, r, V::set(0x1.fffffcp-2f));
  return V::scale(V::add(V::fma(q, V::mul(r, r), r), V::set(1)), n);
}

/// 1 / (1 + exp(-x)).
template <class V>
typename V::F sigmoid(typename V::F x) {
  return V::div(V::set(1), V::add(V::set(1), exp<V>(V::sub(V::zero(), x))));
}

template <class V>
void sin_cos(const typename V::D& x, typename V::D& sine, typename V::D& cosine) {
  constexpr double kRound = 0x1.8p52;
  auto q = V::fma(x, V::set_d(0x1.45f306dc9c883p-1), V::set_d(kRound));  // its low bits count quarter turns
  auto n = V::sub(q, V::set_d(kRound));
  auto r = V::fma(n, V::set_d(-0x1.921fb54442d18p+0), x);
  r = V::fma(n, V::set_d(-0x1.1a62633145c07p-54), r);
  r = V::fma(n, V::set_d(0x1.f1976b7ed8fbcp-110), r);
  auto z = V::mul(r, r);
  auto s = V::fma(V::set_d(1.0 / 6227020800), z, V::set_d(-1.0 / 39916800));
  for (double c : {1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}) s = V::fma(s, z, V::set_d(c));
  s = V::fma(V::mul(s, z), r, r);
  auto c = V::fma(V::set_d(-1.0 / 87178291200), z, V::set_d(1.0 / 479001600));
  for (double k : {-1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0}) c = V::fma(c, z, V::set_d(k));
  sine = V::negate_bit1(q, V::select_bit0(q, s, c));
  cosine = V::negate_bit1(V::add(q, V::set_d(1)), V::select_bit0(q, c, s));
}

/// x > 0, normal; within 1e-15.
double natural_log(double x);
/// |y ln x| < 700; within |y ln x| 1e-15.
double power(double x, double y);

}  // namespace plait::kernels
