// ExactSquares against a sum of bits: numbers of every magnitude, in any order, in parts.
#include "plait/base/exact_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "plait/base/random.h"

namespace plait {
namespace {

using u128 = unsigned __int128;

/// A whole number of up to 5,120 bits, lowest word first.
struct Whole {
  std::array<std::uint32_t, 160> word{};
  void add(u128 x, int shift) {
    u64 carry = 0;
    for (size_t i = static_cast<size_t>(shift / 32); i < word.size(); i++) {
      const int at = static_cast<int>(i) * 32 - shift;  // of the word in x
      const u128 part = at < 0 ? x << -at : at < 128 ? x >> at : 0;
      carry += u64{word[i]} + static_cast<std::uint32_t>(part);
      word[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  bool operator<=(const Whole& o) const {
    return !std::lexicographical_compare(o.word.rbegin(), o.word.rend(), word.rbegin(), word.rend());
  }
};

template <class R>
class Squares : public testing::Test {
 protected:
  using S = ExactSquares<R>;
  using Limits = std::numeric_limits<R>;
  using Lanes = std::vector<typename S::Lane>;

  /// x as m * 2^e with a whole m.
  static std::pair<u128, int> parts(R x) {
    int e = 0;
    const R m = std::frexp(std::fabs(x), &e);
    return {static_cast<u128>(std::ldexp(m, Limits::digits)), e - Limits::digits};
  }
  static void add(Whole& w, u128 root, int e) {
    const int shift = 2 * e - S::kUnit + 256;  // bits below the unit, for halves and the zeros of denormals
    ASSERT_GE(shift, 0);
    w.add(root * root, shift);
  }
  static Lanes sum(const std::vector<R>& x) {
    Lanes lanes(S::kLanes, 0);
    for (R v : x) EXPECT_TRUE(S::add(lanes.data(), v));
    return lanes;
  }
  /// root is the number nearest to the true one: it lies between the squares of the neighbours half way.
  static void expect_nearest(const std::vector<R>& x, R root) {
    Whole exact, low, high;
    for (R v : x)
      if (v != 0) add(exact, parts(v).first, parts(v).second);
    auto [m, e] = parts(root);
    add(low, 2 * m - 1, e - 1);
    add(high, 2 * m + 1, e - 1);
    EXPECT_TRUE(low <= exact) << root;
    EXPECT_TRUE(exact <= high) << root;
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Squares, Types);

TYPED_TEST(Squares, EveryMagnitudeInAnyOrderAndInParts) {
  using R = TypeParam;
  using Limits = std::numeric_limits<R>;
  u64 draw = 0;
  auto random = [&](u64 below) { return random_bits(7, draw++) % below; };
  for (int trial = 0; trial < 200; trial++) {
    // From the smallest denormal to the largest number, or within a narrower span somewhere in it.
    const int least = Limits::min_exponent - Limits::digits, most = Limits::max_exponent - 4;
    const int base = trial % 2 == 0 ? least : Limits::min_exponent + static_cast<int>(random(200));
    const int span = trial % 2 == 0 ? most - least : 30;
    std::vector<R> x;
    for (u64 n = 1 + random(60); x.size() < n;)
      x.push_back(
          std::ldexp(R(random(1u << 24)) / R(1u << 23) - 1, base + static_cast<int>(random(static_cast<u64>(span)))));
    const auto lanes = this->sum(x);
    const R root = ExactSquares<R>::root(lanes.data());
    if (root > 0) this->expect_nearest(x, root);
    // Halves of the numbers, backwards, then their lanes.
    std::vector<R> back(x.rbegin(), x.rend());
    const auto cut = back.begin() + static_cast<std::ptrdiff_t>(random(x.size() + 1));
    auto first = this->sum({back.begin(), cut}), second = this->sum({cut, back.end()});
    for (size_t i = 0; i < first.size(); i++) first[i] += second[i];
    EXPECT_TRUE(first == lanes);
  }
}

TYPED_TEST(Squares, Edges) {
  using R = TypeParam;
  using Limits = std::numeric_limits<R>;
  auto norm = [&](const std::vector<R>& x) { return ExactSquares<R>::root(this->sum(x).data()); };
  const R most = Limits::max(), least = Limits::min();
  EXPECT_EQ(norm({}), 0);
  EXPECT_EQ(norm({R(0), R(-0.0)}), 0);
  EXPECT_EQ(norm({R(-3), R(4)}), 5);
  EXPECT_EQ(norm({most}), most);
  EXPECT_EQ(norm({-most, Limits::denorm_min()}), most);
  EXPECT_EQ(norm({most, most}), Limits::infinity());
  EXPECT_EQ(norm({least}), least);
  EXPECT_EQ(norm({Limits::denorm_min()}), 0);
  EXPECT_EQ(norm(std::vector<R>(4, least / 2)), least);  // of denormals, itself none
  // Half way between 1 and the next number, to even; and a hair more.
  const R ulp = Limits::epsilon(), half = ulp / 2;
  std::vector<R> middle{R(1), half};  // (1 + ulp / 2)^2 = 1 + ulp + (ulp / 2)^2
  if (Limits::digits == 24)
    middle.insert(middle.end(), 2, std::sqrt(half));
  else
    middle.push_back(std::sqrt(ulp));
  EXPECT_EQ(norm(middle), 1);
  middle.push_back(Limits::denorm_min());
  EXPECT_EQ(norm(middle), 1 + ulp);
  for (R bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    auto lanes = this->sum({R(3)});
    EXPECT_FALSE(ExactSquares<R>::add(lanes.data(), bad));
    EXPECT_TRUE(lanes == this->sum({R(3)}));
  }
}

TYPED_TEST(Squares, ManyTermsCarry) {
  using R = TypeParam;
  auto lanes = this->sum({std::nextafter(R(2), R(1))});
  for (auto& lane : lanes) lane *= 1 << 30;  // as many equal numbers
  EXPECT_EQ(ExactSquares<R>::root(lanes.data()), std::nextafter(R(2), R(1)) * (1 << 15));
}

}  // namespace
}  // namespace plait
