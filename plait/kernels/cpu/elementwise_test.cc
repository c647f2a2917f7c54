#include <cmath>

#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/test_support.h"
#include "plait/kernels/reference/math.h"

namespace plait::kernels {
namespace {

using test::at;
using Elementwise = test::Kernels;

std::vector<float> sweep() {
  std::vector<float> x;
  for (std::uint32_t sign : {0u, 0x80000000u})
    for (std::uint32_t b = 0x30000000u; b < 0x42e00000u; b += 601) x.push_back(std::bit_cast<float>(b | sign));
  for (float edge : {-87.33655f, -87.336f, 88.72283f, 88.7229f, -103.9f, -104.1f, 0.0f, -0.0f})
    for (int i = -3; i <= 3; i++) {
      float y = edge;
      for (int k = 0; k < std::abs(i); k++) y = std::nextafter(y, i < 0 ? -1000.0f : 1000.0f);
      x.push_back(y);
    }
  for (float s : {INFINITY, -INFINITY, 1e30f, -1e30f}) x.push_back(s);
  return x;
}

TEST_F(Elementwise, ExpIsCloseAndTheSameEverywhere) {
  auto x = sweep();
  std::vector<float> want(x.size()), got(x.size());
  auto n = static_cast<i64>(x.size());
  functions(Isa::portable).exp_from(x.data(), 0, 1, want.data(), n);
  double worst = 0;
  for (size_t i = 0; i < x.size(); i++) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(want[i]), std::bit_cast<std::uint32_t>(reference::exp(x[i]))) << x[i];
    double y = std::exp(static_cast<double>(x[i]));
    if (y < 0x1p-126 || y > 0x1.fffffep127) {
      EXPECT_EQ(want[i], y < 1 ? 0.0f : INFINITY) << x[i];
      continue;
    }
    double ulp = std::ldexp(1.0, std::ilogb(y) - 23);
    worst = std::max(worst, std::fabs(want[i] - y) / ulp);
  }
  EXPECT_LT(worst, 2);
  for (Isa isa : test::all_isas()) {
    functions(isa).exp_from(x.data(), 0, 1, got.data(), n);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0) << name_of(isa);
    float nan = NAN, y = 0;
    functions(isa).exp_from(&nan, 0, 1, &y, 1);
    EXPECT_TRUE(std::isnan(y)) << name_of(isa);
  }
}

TEST_F(Elementwise, LargestSeesEveryElementAndNan) {
  for (Isa isa : test::all_isas())
    for (i64 n : {1, 2, 15, 16, 17, 33, 100}) {
      std::vector<float> x(static_cast<size_t>(n), -5.0f);
      for (i64 i = 0; i < n; i++) {
        auto u = static_cast<size_t>(i);
        x[u] = -1;
        EXPECT_EQ(functions(isa).largest(x.data(), n), -1);
        x[u] = NAN;
        EXPECT_TRUE(std::isnan(functions(isa).largest(x.data(), n)));
        x[u] = -5;
      }
    }
}

/// Rounds to the type of the result, as the kernels do last.
double rounded(DType t, double x) {
  return t == DType::bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
}

template <class F>
void unary(const char* op, F f, double tolerance) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 d : {1, 7, 16, 40, 601}) {
      Tensor x = test::random_tensor(DType::f32, {{3, 40}, {0, d}}, 1, 3), y(t, {{3, 40}, {0, d}});
      Args a = test::args_of(op, "t d -> t d", {x}, {y});
      test::expect_same_everywhere(prepare_elementwise, a);
      for (i64 i = 0; i < x.elements(); i++)
        EXPECT_NEAR(at(y, i), rounded(t, f(x.as<float>()[i])),
                    tolerance + (t == DType::bf16 ? std::fabs(at(y, i)) / 128 : 0));
      a.ranges["t"] = {7, 9};
      test::expect_same_everywhere(prepare_elementwise, a);
    }
}

TEST_F(Elementwise, Gelu) {
  unary(
      "gelu", [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
      2e-6);
}

TEST_F(Elementwise, GeluMulAndScale) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 d : {1, 19, 64, 700}) {
      Box box{{2, 30}, {5, 5 + d}};
      Tensor g = test::random_tensor(DType::f32, box, 1, 3), u = test::random_tensor(DType::f32, box, 2), y(t, box);
      test::expect_same_everywhere(prepare_elementwise, test::args_of("gelu_mul", "t f, t f -> t f", {g, u}, {y}));
      for (i64 i = 0; i < y.elements(); i++) {
        const double x = g.as<float>()[i];
        const double want = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) *
                            static_cast<double>(u.as<float>()[i]);
        EXPECT_NEAR(at(y, i), rounded(t, want),
                    2e-6 * (1 + std::fabs(want)) + (t == DType::bf16 ? std::fabs(want) / 128 : 0));
      }
      Args a = test::args_of("scale", "t f -> t f", {g}, {y});
      a.attrs["by"] = 25.25;
      test::expect_same_everywhere(prepare_elementwise, a);
      for (i64 i = 0; i < y.elements(); i++)
        EXPECT_EQ(at(y, i), static_cast<float>(rounded(t, static_cast<double>(g.as<float>()[i] * 25.25f))));
    }
}

TEST_F(Elementwise, Cast) {
  unary(
      "cast", [](double x) { return x; }, 0);
}

TEST_F(Elementwise, AddAndSiluMul) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 d : {1, 19, 64, 700}) {
      Box box{{2, 30}, {5, 5 + d}};
      Tensor g = test::random_tensor(DType::f32, box, 1, 3),
             u = test::random_tensor(DType::f32, {{0, 40}, {0, 5 + d}}, 2);
      Tensor y(t, box);
      for (const char* op : {"add", "silu_mul"}) {
        Args a = test::args_of(op, "t f, t f -> t f", {g, u}, {y});
        test::expect_same_everywhere(prepare_elementwise, a);
        for_each(box, [&](const std::vector<i64>& i) {
          double x = g.as<float>()[g.at(i)], z = u.as<float>()[u.at(i)];
          double want = a.op == "add" ? x + z : x / (1 + std::exp(-x)) * z;
          EXPECT_NEAR(at(y, y.at(i)), rounded(t, want),
                      1e-6 * (1 + std::fabs(want)) + (t == DType::bf16 ? std::fabs(want) / 128 : 0));
        });
      }
    }
}

TEST_F(Elementwise, BiasOverSeveralDims) {
  Tensor x = test::random_tensor(DType::f32, {{0, 9}, {4, 7}, {0, 20}}, 1);
  Tensor b = test::random_tensor(DType::f32, {{0, 9}, {0, 20}}, 2);
  Tensor y(DType::f32, {{0, 9}, {4, 7}, {0, 20}});
  Args a = test::args_of("bias", "t n h, n h -> t n h", {x, b}, {y});
  test::expect_same_everywhere(prepare_elementwise, a, false);
  for_each(y.box, [&](const std::vector<i64>& i) {
    EXPECT_EQ(y.as<float>()[y.at(i)], x.as<float>()[x.at(i)] + b.as<float>()[b.at({i[1], i[2]})]);
  });
}

TEST_F(Elementwise, LargeCallsSplitOverTheTeam) {
  Tensor g = test::random_tensor(DType::f32, {{0, 50}, {0, 601}}, 1),
         u = test::random_tensor(DType::f32, {{0, 50}, {0, 700}}, 2);
  Tensor y(DType::f32, g.box), b = test::random_tensor(DType::f32, {{0, 601}}, 3);
  test::expect_same_everywhere(prepare_elementwise, test::args_of("silu_mul", "t f, t f -> t f", {g, u}, {y}));
  test::expect_same_everywhere(prepare_elementwise, test::args_of("gelu", "t f -> t f", {g}, {y}));
  test::expect_same_everywhere(prepare_elementwise, test::args_of("bias", "t f, f -> t f", {g, b}, {y}), false);
}

TEST_F(Elementwise, FinishRoundsOnce) {
  Tensor q(DType::i64, {{0, 5}, {0, 21}});
  for (i64 i = 0; i < q.elements(); i++) {
    u64 r = random_bits(9, static_cast<u64>(i));
    q.as<i64>()[i] = static_cast<i64>(r) >> (r % 50);
  }
  i64 half = (i64{1} << 62) + (i64{1} << 38);  // halfway between two floats; one more rounds up, but not via double
  i64 special[] = {half, half + 1, half - 1, -half - 1, 0, 1, -1};
  std::memcpy(q.data, special, sizeof special);
  for (DType t : {DType::f32, DType::bf16}) {
    Tensor y(t, q.box);
    Args a = test::args_of("finish", "t d -> t d", {q}, {y});
    a.exponent = 40;
    test::expect_same_everywhere(prepare_elementwise, a);
    if (t == DType::f32) {
      EXPECT_EQ(y.as<float>()[0], 0x1p22f);
      EXPECT_EQ(y.as<float>()[1], 0x1.000002p22f);
      EXPECT_EQ(y.as<float>()[2], 0x1p22f);
      EXPECT_EQ(y.as<float>()[3], -0x1.000002p22f);
      EXPECT_EQ(y.as<float>()[6], -0x1p-40f);
    }
  }
  Tensor x = test::random_tensor(DType::f32, q.box, 4), y(DType::f32, q.box);
  Args a = test::args_of("finish", "t d -> t d", {x}, {y});
  a.exponent = 40;
  test::expect_same_everywhere(prepare_elementwise, a);
  EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.elements()) * 4), 0);
}

TEST_F(Elementwise, ReadCopiesBits) {
  Tensor x = test::indices({2, 8}, {1, -2, 3, 4, 5, 6}), y(DType::i32, {{2, 8}});
  test::expect_same_everywhere(prepare_elementwise, test::args_of("read", "t -> t", {x}, {y}));
  EXPECT_EQ(y.as<std::int32_t>()[1], -2);
}

TEST_F(Elementwise, DeclinesWithAReason) {
  Tensor x(DType::bf16, {{0, 4}, {0, 4}}), y(DType::f32, x.box);
  auto r = prepare_elementwise(test::args_of("gelu", "t d -> t d", {x}, {y}), isa());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.why(), "an operand of bf16");
}

TEST_F(Elementwise, BiasOfARow) {
  Tensor x = test::random_tensor(DType::f32, {{0, 4}, {0, 5}}, 1), b = test::random_tensor(DType::f32, {{0, 4}}, 2);
  Tensor y(DType::f32, x.box);
  test::expect_same_everywhere(prepare_elementwise, test::args_of("bias", "t d, t -> t d", {x, b}, {y}), false);
  for (i64 i = 0; i < 20; i++) EXPECT_EQ(y.as<float>()[i], x.as<float>()[i] + b.as<float>()[i / 5]);
}

}  // namespace
}  // namespace plait::kernels
