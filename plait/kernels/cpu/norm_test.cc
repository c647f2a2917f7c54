#include <cmath>

#include "plait/kernels/cpu/test_support.h"

namespace plait::kernels {
namespace {

using test::at;
using Norms = test::Kernels;

void check(const char* op, DType t, i64 d, i64 tokens) {
  bool layer = std::string_view(op) == "layer_norm";
  Tensor x = test::random_tensor(DType::f32, {{5, 5 + tokens}, {0, d}}, 1, 2),
         gain = test::random_tensor(DType::f32, {{0, d}}, 2);
  Tensor bias = test::random_tensor(DType::f32, {{0, d}}, 3), y(t, x.box);
  std::vector<View> in{x, gain};
  if (layer) in.push_back(bias);
  Args a = test::args_of(op, layer ? "t d, d, d -> t d" : "t d, d -> t d", in, {y});
  a.attrs["eps"] = 1e-5;
  test::expect_same_everywhere(prepare_norm, a);
  for (i64 row = 0; row < tokens; row++) {
    const float* p = x.as<float>() + row * d;
    double mean = 0, square = 0;
    for (i64 i = 0; i < d && layer; i++) mean += p[i] / static_cast<double>(d);
    for (i64 i = 0; i < d; i++) square += (p[i] - mean) * (p[i] - mean) / static_cast<double>(d);
    for (i64 i = 0; i < d; i++) {
      double v = (p[i] - mean) / std::sqrt(square + 1e-5) * gain.as<float>()[i] + (layer ? bias.as<float>()[i] : 0.0f);
      EXPECT_NEAR(at(y, row * d + i), v, t == DType::bf16 ? std::fabs(v) / 200 + 1e-6 : 2e-6 * (1 + std::fabs(v)))
          << op << d;
    }
  }
}

TEST_F(Norms, AreCloseAndTheSameEverywhere) {
  for (const char* op : {"rms_norm", "layer_norm"})
    for (DType t : {DType::f32, DType::bf16}) {
      for (i64 d : {1, 15, 16, 33, 64, 100}) check(op, t, d, 3);
      check(op, t, 576, 31);
    }
}

TEST_F(Norms, OfHeads) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 h : {1, 8, 20, 256})
      for (i64 tokens : {1, 3, 70}) {
        const Box box{{5, 5 + tokens}, {2, 7}, {0, h}};
        Tensor x = test::random_tensor(DType::f32, box, 1, 2), gain = test::random_tensor(DType::f32, {{0, h}}, 2);
        Tensor y(t, box);
        Args a = test::args_of("head_rms_norm", "t n h, h -> t n h", {x, gain}, {y});
        a.attrs["eps"] = 1e-6;
        test::expect_same_everywhere(prepare_head_norm, a);
        for (i64 row = 0; row < tokens * 5; row++) {
          double square = 0;
          for (i64 i = 0; i < h; i++) square += std::pow(static_cast<double>(x.as<float>()[row * h + i]), 2);
          const double r = 1 / std::sqrt(square / static_cast<double>(h) + 1e-6);
          for (i64 i = 0; i < h; i++) {
            const double v = x.as<float>()[row * h + i] * r * static_cast<double>(gain.as<float>()[i]);
            EXPECT_NEAR(at(y, row * h + i), v,
                        t == DType::bf16 ? std::fabs(v) / 200 + 1e-6 : 2e-6 * (1 + std::fabs(v)));
          }
        }
        a.ranges["n"] = {3, 5};  // some of the heads that are held
        test::expect_same_everywhere(prepare_head_norm, a);
      }
}

TEST_F(Norms, ARowIsTheSameAlone) {
  i64 d = 100;
  Tensor x = test::random_tensor(DType::f32, {{0, 512}, {0, d}}, 1),
         gain = test::random_tensor(DType::f32, {{0, d}}, 2), y(DType::bf16, x.box);
  Args a = test::args_of("rms_norm", "t d, d -> t d", {x, gain}, {y});
  a.attrs["eps"] = 1e-6;
  auto all = test::bytes_after(test::prepared(prepare_norm, a, isa()), a, 2);
  for (i64 t : {0, 1, 200, 511}) {
    a.ranges["t"] = {t, t + 1};
    auto alone = test::bytes_after(test::prepared(prepare_norm, a, isa()), a);
    EXPECT_EQ(std::memcmp(&alone[static_cast<size_t>(t * d * 2)], &all[static_cast<size_t>(t * d * 2)],
                          static_cast<size_t>(d) * 2),
              0);
    EXPECT_EQ(alone[static_cast<size_t>((t + 1) % 512 * d * 2)], std::byte{0x5a});  // nothing else is written
  }
}

}  // namespace
}  // namespace plait::kernels
