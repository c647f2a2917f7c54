#include "plait/kernels/cpu/math.h"

#include <bit>
#include <cmath>

namespace plait::kernels {

namespace {
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Rest = 0x1.abc9e3b39803fp-56;

double two_to(i64 n) { return std::bit_cast<double>(static_cast<u64>(n + 1023) << 52); }
}  // namespace

double natural_log(double x) {
  auto bits = std::bit_cast<u64>(x);
  i64 e = static_cast<i64>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  double t = (m - 1) / (m + 1), z = t * t, series = 0;  // ln m = 2 (t + t^3/3 + t^5/5 + ...), |t| < 0.172
  for (int k = 23; k >= 3; k -= 2) series = std::fma(series, z, 1.0 / k);
  double n = static_cast<double>(e);
  return std::fma(n, kLn2, std::fma(n, kLn2Rest, 2 * std::fma(series * z, t, t)));
}

double power(double x, double y) {
  double a = y * natural_log(x);
  double n = std::nearbyint(a / kLn2), r = std::fma(n, -kLn2Rest, std::fma(n, -kLn2, a));
  double series = 1;  // exp(r) by Horner: 1 + r (1 + r/2 (1 + r/3 ...))
  for (int k = 16; k >= 1; k--) series = std::fma(series, r / k, 1.0);
  i64 e = static_cast<i64>(n);
  return series * two_to(e / 2) * two_to(e - e / 2);
}

}  // namespace plait::kernels
