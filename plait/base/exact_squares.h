// The sum of squares of any finite numbers, exactly, and its root rounded once.
//
// A fixed-point number that spans the squares of a type's whole range (Kulisch's accumulator), as digits in lanes with
// room to spare: parts of a sum add lane by lane, in any order, and carries are taken only when it is read. No scale to
// choose, so nothing overflows or underflows.
//
//            lanes       digit     digit 0 is     squares before a lane is full
//   float    24 of i64   24 bits   2^-298 times   2^39
//   double   66 of i128  64 bits   2^-2148 times  2^63
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "plait/base/base.h"

namespace plait {

template <class R>
struct ExactSquares {
  static constexpr bool kSingle = sizeof(R) == 4;
  using Lane = std::conditional_t<kSingle, i64, i128>;
  static constexpr int kLanes = kSingle ? 24 : 66, kBits = kSingle ? 24 : 64, kUnit = kSingle ? -298 : -2148;

  /// Adds x^2 to lanes[kLanes]. False where x is not finite: nothing is added.
  static bool add(Lane* lanes, R x) {
    using Bits = std::conditional_t<kSingle, std::uint32_t, u64>;
    using Square = std::conditional_t<kSingle, u64, unsigned __int128>;
    constexpr int kMantissa = std::numeric_limits<R>::digits - 1, kTop = 2 * std::numeric_limits<R>::max_exponent - 1;
    const auto bits = std::bit_cast<Bits>(x);
    const int e = static_cast<int>(bits >> kMantissa) & kTop;
    if (e == kTop) return false;
    const Bits low = bits & ((Bits{1} << kMantissa) - 1);
    const Square m = e > 0 ? low | Bits{1} << kMantissa : low;
    const int at = e > 0 ? 2 * (e - 1) : 0, shift = at % kBits;
    Square p = m * m;
    Lane* lane = lanes + at / kBits;
    lane[0] += static_cast<Lane>(p << shift & kDigit);
    p >>= kBits - shift;
    lane[1] += static_cast<Lane>(p & kDigit);
    lane[2] += static_cast<Lane>(p >> kBits);
    return true;
  }

  /// The root of the sum, to nearest even; zero below the normal numbers, infinite above.
  static R root(const Lane* lanes) {
    constexpr int kDigits = kLanes + 2, kTaken = 126;  // two more for the last carry; so many bits of the sum
    u64 digit[kDigits];
    Lane carry = 0;
    int last = -1;
    for (int i = 0; i < kDigits; i++) {
      carry += i < kLanes ? lanes[i] : 0;
      digit[i] = static_cast<u64>(carry) & kDigit;
      carry >>= kBits;
      if (digit[i] != 0) last = i;
    }
    if (last < 0) return 0;
    // sum = (m + a rest below 1) * 2^drop, an even drop.
    int drop = last * kBits + std::bit_width(digit[last]) - kTaken;
    drop += drop & 1;
    unsigned __int128 m = 0;
    bool rest = false;
    for (int i = 0; i <= last; i++) {
      const int at = i * kBits - drop;
      if (at <= -kBits) {
        rest |= digit[i] != 0;
      } else if (at < 0) {
        m |= digit[i] >> -at;
        rest |= (digit[i] & ((u64{1} << -at) - 1)) != 0;
      } else {
        m |= static_cast<unsigned __int128>(digit[i]) << at;
      }
    }
    u64 r = 0;
    for (int bit = 62; bit >= 0; bit--)
      if (const u64 t = r | u64{1} << bit; static_cast<unsigned __int128>(t) * t <= m) r = t;
    rest |= static_cast<unsigned __int128>(r) * r != m;
    const R y = std::ldexp(static_cast<R>(2 * r + (rest ? 1 : 0)), (drop + kUnit) / 2 - 1);
    return y < std::numeric_limits<R>::min() ? R(0) : y;
  }

 private:
  static constexpr u64 kDigit = kSingle ? (u64{1} << kBits % 64) - 1 : ~u64{0};
};

}  // namespace plait
