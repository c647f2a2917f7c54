#include <cmath>

#include "plait/kernels/cpu/test_support.h"

namespace plait::kernels {
namespace {

using test::at;
using Rope = test::Kernels;

double llama3(double f) {  // factor 8, low 1, high 4, original 8192, as Hugging Face's modeling_rope_utils describes it
  double wave = 2 * M_PI / f;
  if (wave < 8192 / 4.0) return f;
  if (wave > 8192 / 1.0) return f / 8;
  double smooth = (8192 / wave - 1) / (4 - 1);
  return (1 - smooth) * f / 8 + smooth * f;
}

void check(DType t, i64 h, i64 dims, bool scaled, double tolerance) {
  std::vector<i64> positions = {0, 1, 2, 77, 4095, 8191, 131071};
  auto tokens = static_cast<i64>(positions.size());
  Tensor x = test::random_tensor(DType::f32, {{2, 2 + tokens}, {0, 7}, {0, h}}, 1),
         y(t, {{2, 2 + tokens}, {3, 7}, {0, h}});
  Args a = test::args_of("rope", "t n h, t -> t n h", {x, test::indices({2, 2 + tokens}, positions)}, {y});
  Tensor p = test::indices({2, 2 + tokens}, positions);
  a.in[1] = p;
  a.attrs["base"] = 500000;
  if (dims != h) a.attrs["dims"] = static_cast<double>(dims);
  if (scaled) a.attrs.insert({{"factor", 8}, {"low", 1}, {"high", 4}, {"original", 8192}});
  test::expect_same_everywhere(prepare_rope, a);
  for_each(y.box, [&](const std::vector<i64>& i) {
    i64 k = i[2];
    double want = x.as<float>()[x.at(i)];
    if (k < dims) {
      i64 pair = k % (dims / 2);
      double f = std::pow(500000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
      double w = static_cast<double>(positions[static_cast<size_t>(i[0] - 2)]) * (scaled ? llama3(f) : f);
      double u = x.as<float>()[x.at({i[0], i[1], pair})], v = x.as<float>()[x.at({i[0], i[1], pair + dims / 2})];
      want = k < dims / 2 ? u * std::cos(w) - v * std::sin(w) : v * std::cos(w) + u * std::sin(w);
    }
    EXPECT_NEAR(at(y, y.at(i)), want, tolerance) << k << " " << i[0];
  });
}

TEST_F(Rope, IsCloseAndTheSameEverywhere) {
  for (i64 h : {2, 8, 34, 64, 128}) {
    check(DType::f32, h, h, false, 1e-6);
    check(DType::f32, h, h, true, 1e-6);
    check(DType::bf16, h, h, true, 0.02);
  }
  check(DType::f32, 64, 24, false, 1e-6);
  check(DType::bf16, 34, 2, false, 0.02);
}

TEST_F(Rope, AFactorAloneDividesEveryFrequency) {
  const Box box{{0, 4}, {0, 3}, {0, 32}};
  Tensor x = test::random_tensor(DType::f32, box, 1), y(DType::f32, box), z(DType::f32, box);
  Tensor p = test::indices({0, 4}, {0, 8, 800, 131064}), q = test::indices({0, 4}, {0, 1, 100, 16383});
  Args a = test::args_of("rope", "t n h, t -> t n h", {x, p}, {y});
  a.attrs = {{"base", 1e6}, {"factor", 8}};
  test::expect_same_everywhere(prepare_rope, a);
  Args b = test::args_of("rope", "t n h, t -> t n h", {x, q}, {z});
  b.attrs = {{"base", 1e6}};
  test::expect_same_everywhere(prepare_rope, b);
  EXPECT_EQ(std::memcmp(y.data, z.data, static_cast<size_t>(y.elements()) * 4), 0);
}

TEST_F(Rope, InverseTurnsBack) {
  Tensor x = test::random_tensor(DType::f32, {{0, 3}, {0, 2}, {0, 64}}, 1), y(DType::f32, x.box), z(DType::f32, x.box);
  Tensor p = test::indices({0, 3}, {0, 5, 1000});
  Args a = test::args_of("rope", "t n h, t -> t n h", {x, p}, {y});
  a.attrs["base"] = 10000;
  test::expect_same_everywhere(prepare_rope, a);
  a = test::args_of("rope", "t n h, t -> t n h", {y, p}, {z});
  a.attrs.insert({{"base", 10000}, {"inverse", 1}});
  test::expect_same_everywhere(prepare_rope, a);
  for (i64 i = 0; i < x.elements(); i++) EXPECT_NEAR(z.as<float>()[i], x.as<float>()[i], 1e-6);
}

}  // namespace
}  // namespace plait::kernels
