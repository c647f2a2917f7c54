// The loops of every instruction set against one element at a time; places, lengths and special values.
#include "plait/comm/join.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plait/base/random.h"

namespace plait::comm {
namespace {

const char* const kSets[] = {"avx512", "avx2", "base"};

template <class T>
const std::byte* bytes(const T* p) {
  return reinterpret_cast<const std::byte*>(p);
}

// Random bits of a float, among them NaN, infinities, denormals.
std::vector<float> any_floats(size_t n, u64 seed) {
  std::vector<float> v;
  for (size_t i = 0; i < n; i++) v.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(seed, i))));
  return v;
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(Join, SumOfFloatsInRankOrderAtAnyPlace) {
  for (auto isa : kSets)
    for (size_t ranks : {2, 3, 5})
      for (size_t n : {1, 15, 16, 17, 63, 64, 65, 4096, 4097, 20001})
        for (size_t shift : {0, 1}) {
          std::vector<std::vector<float>> parts;
          std::vector<const std::byte*> in;
          for (size_t r = 0; r < ranks; r++) {
            parts.push_back(any_floats(n + shift, 10 * r + n));
            in.push_back(bytes(parts[r].data() + shift));
          }
          std::vector<float> out(n + 2, 5.0f);
          if (!join_parts_with(isa, out.data() + 1, in, static_cast<i64>(n), DType::f32, Join::sum)) continue;
          for (size_t i = 0; i < n; i++) {
            float s = parts[0][i + shift];
            for (size_t r = 1; r < ranks; r++) s += parts[r][i + shift];
            ASSERT_TRUE(same(out[i + 1], s)) << isa << " ranks " << ranks << " n " << n << " at " << i;
          }
          ASSERT_EQ(out[0], 5.0f);
          ASSERT_EQ(out[n + 1], 5.0f);
        }
}

TEST(Join, BFloatsAddInF32AndRoundOnce) {
  for (auto isa : kSets)
    for (size_t ranks : {1, 2, 4})
      for (size_t n : {1, 15, 16, 33, 512, 1000, 5001}) {
        std::vector<std::vector<bf16>> parts(ranks);
        std::vector<const std::byte*> in;
        for (size_t r = 0; r < ranks; r++) {
          for (size_t i = 0; i < n; i++) {
            bf16 b;
            b.bits = static_cast<std::uint16_t>(random_bits(r, i));
            parts[r].push_back(b);
          }
          in.push_back(bytes(parts[r].data()));
        }
        std::vector<bf16> out(n);
        if (!join_parts_with(isa, out.data(), in, static_cast<i64>(n), DType::bf16, Join::sum)) continue;
        for (size_t i = 0; i < n; i++) {
          auto s = static_cast<float>(parts[0][i]);
          for (size_t r = 1; r < ranks; r++) s += static_cast<float>(parts[r][i]);
          bf16 want(s);
          if (ranks == 1) want = parts[0][i];
          if (std::isnan(s))
            ASSERT_TRUE(std::isnan(static_cast<float>(out[i])));
          else
            ASSERT_EQ(out[i].bits, want.bits) << isa << " ranks " << ranks << " n " << n << " at " << i;
        }
      }
}

// The order of the ranks does not matter to a maximum: NaN wins, +0 is above -0.
TEST(Join, MaximumHasNoOrder) {
  const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> values{-0.0f, 0.0f, -1.0f, 2.5f, kNan, -kInf, kInf, 1e-42f};
  for (auto isa : kSets)
    for (float a : values)
      for (float b : values) {
        // Once in a vector and once in the rest.
        std::vector<float> x(17, a), y(17, b), out(17);
        for (bool turned : {false, true}) {
          std::vector<const std::byte*> in{bytes(turned ? y.data() : x.data()), bytes(turned ? x.data() : y.data())};
          if (!join_parts_with(isa, out.data(), in, 17, DType::f32, Join::max)) continue;
          float want = std::isnan(a) || std::isnan(b) ? kNan : a > b ? a : b > a ? b : std::signbit(a) ? b : a;
          for (float o : out) ASSERT_TRUE(same(o, want)) << isa << " max of " << a << " and " << b << ": " << o;
        }
      }
}

TEST(Join, IntegersWrapAndOneKeepsBits) {
  for (auto isa : kSets) {
    std::vector<std::int64_t> a(9, std::numeric_limits<std::int64_t>::max()), b(9, 1), out(9);
    std::vector<const std::byte*> in{bytes(a.data()), bytes(b.data())};
    if (!join_parts_with(isa, out.data(), in, 9, DType::i64, Join::sum)) continue;
    EXPECT_EQ(out, std::vector<std::int64_t>(9, std::numeric_limits<std::int64_t>::min())) << isa;
    std::vector<float> none(5, 0.0f), own(5, -0.0f), kept(5);
    in = {bytes(none.data()), bytes(own.data()), bytes(none.data())};
    ASSERT_TRUE(join_parts_with(isa, kept.data(), in, 5, DType::f32, Join::one));
    for (float k : kept) EXPECT_TRUE(std::signbit(k)) << isa;
    i128 big = static_cast<i128>(1) << 100, sum = 0;
    u64 low[2] = {~0ull, 0};
    in = {bytes(&big), bytes(low)};
    ASSERT_TRUE(join_parts_with(isa, &sum, in, 1, DType::i128, Join::sum));
    EXPECT_TRUE(sum == big + static_cast<i128>(~0ull)) << isa;
  }
}

TEST(Join, InPlaceInEveryPart) {
  for (auto isa : kSets)
    for (size_t place = 0; place < 4; place++) {
      std::vector<std::vector<double>> parts;
      std::vector<const std::byte*> in;
      for (size_t r = 0; r < 4; r++) {
        parts.emplace_back();
        for (u64 i = 0; i < 3001; i++) parts[r].push_back(normal(r, i) * std::exp2(static_cast<double>(i % 40)));
      }
      for (auto& p : parts) in.push_back(bytes(p.data()));
      std::vector<double> want;
      for (size_t i = 0; i < 3001; i++) want.push_back(((parts[0][i] + parts[1][i]) + parts[2][i]) + parts[3][i]);
      if (!join_parts_with(isa, parts[place].data(), in, 3001, DType::f64, Join::sum)) continue;
      EXPECT_EQ(parts[place], want) << isa << " over part " << place;
    }
}

// One of two parts gives its place to `next`; of the other sizes and types the plain loops are the reference.
TEST(Join, SwapsTheirPartForTheNext) {
  for (DType t : {DType::f32, DType::f64, DType::i32, DType::i64, DType::i128, DType::bf16})
    for (Join join : {Join::sum, Join::max, Join::one})
      for (i64 n : {1, 16, 63, 1000, 20001})
        for (bool keep : {false, true}) {
          if (!can_join(t, join)) continue;
          const auto size = static_cast<size_t>(bytes_of(t, n));
          std::vector<std::byte> own(size), theirs(size + 8), next(size), want(size);
          for (size_t i = 0; i < size; i++) {
            own[i] = static_cast<std::byte>(random_bits(1, i) & 0x3f);
            theirs[i] = static_cast<std::byte>(random_bits(2, i) & 0x3f);
            next[i] = static_cast<std::byte>(random_bits(3, i));
          }
          const auto before = theirs;
          const std::byte* parts[2] = {own.data(), theirs.data()};
          join_parts(want.data(), parts, n, t, join);
          swap_function()(own.data(), parts, theirs.data(), keep ? nullptr : next.data(), n, t, join);
          ASSERT_EQ(own, want) << name_of(t) << " " << name_of(join) << " " << n;
          auto expected = before;
          if (!keep) std::copy(next.begin(), next.end(), expected.begin());
          ASSERT_EQ(theirs, expected) << name_of(t) << " " << name_of(join) << " " << n;
        }
}

TEST(Join, CopiesInStreams) {
  for (i64 n : {0, 1, 63, 64, 255, 256, 257, 4096, 32768, 100003})
    for (i64 shift : {0, 5}) {
      std::vector<std::byte> from(static_cast<size_t>(n + 8)), to(static_cast<size_t>(n + 8));
      for (size_t i = 0; i < from.size(); i++) from[i] = static_cast<std::byte>(random_bits(3, i) | 1);
      copy_streams(to.data() + shift, from.data(), n);
      EXPECT_EQ(std::memcmp(to.data() + shift, from.data(), static_cast<size_t>(n)), 0) << n;
      for (i64 i = 0; i < shift; i++) EXPECT_EQ(to[static_cast<size_t>(i)], std::byte{0}) << n;
      for (i64 i = n + shift; i < n + 8; i++) EXPECT_EQ(to[static_cast<size_t>(i)], std::byte{0}) << n;
    }
}

TEST(Join, OnlyWhatIsDefined) {
  EXPECT_FALSE(can_join(DType::f16, Join::sum));
  EXPECT_FALSE(can_join(DType::q8_0, Join::max));
  EXPECT_FALSE(can_join(DType::i128, Join::max));
  EXPECT_TRUE(can_join(DType::q8_0, Join::one));
  EXPECT_FALSE(join_parts_with("nonesuch", nullptr, {}, 0, DType::f32, Join::sum));
}

}  // namespace
}  // namespace plait::comm
