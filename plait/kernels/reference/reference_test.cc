// The references against formulas written out in double: what they compute, and how sums are rounded, flagged and
// split. That their parts give the bits of the whole and that gradients are right: exec/registry_test.cc.
#include "plait/kernels/reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "plait/base/exact_squares.h"
#include "plait/kernels/cpu/test_support.h"
#include "plait/kernels/reference/loop.h"

namespace plait::kernels {
namespace {

using test::args_of;
using test::indices;

/// Runs the reference; true if it raised the flag.
bool run(const Args& a, DType real = DType::f32) {
  auto all = reference_kernels(a.op, real);
  PLAIT_CHECK(!all.empty(), "no reference of {}", a.op);
  auto prepared = all.back().prepare(a);
  PLAIT_CHECK(static_cast<bool>(prepared), "{}", prepared.why());
  Team team(1);
  Context c{team};
  (*prepared)(c);
  return c.overflow;
}

Tensor doubles(Box box, u64 seed, double scale = 1) {
  Tensor t(DType::f64, std::move(box));
  for (i64 i = 0; i < t.elements(); i++) t.as<double>()[i] = scale * normal(seed, static_cast<u64>(i));
  return t;
}

double distance_in_ulps(float got, double want) {
  auto w = static_cast<float>(want);
  double ulp = std::fabs(static_cast<double>(std::nextafter(w, INFINITY)) - w);
  return std::fabs(got - want) / ulp;
}

TEST(ReferenceMath, ExpAndLogAreNearTheLibrary) {
  double worst_exp = 0, worst_log = 0;
  for (int i = 0; i < 200000; i++) {
    float x = static_cast<float>(-87 + 175 * uniform(1, static_cast<u64>(i)));
    worst_exp = std::max(worst_exp, distance_in_ulps(reference::exp(x), std::exp(static_cast<double>(x))));
    float y = std::exp2(static_cast<float>(-120 + 240 * uniform(2, static_cast<u64>(i))));
    if (i % 2 == 0) y = static_cast<float>(0.5 + uniform(3, static_cast<u64>(i)));  // around 1
    worst_log = std::max(worst_log, distance_in_ulps(reference::log(y), std::log(static_cast<double>(y))));
  }
  EXPECT_LT(worst_exp, 2.0);
  EXPECT_LT(worst_log, 1.5);
  EXPECT_EQ(reference::exp(0.0f), 1.0f);
  EXPECT_EQ(reference::exp(-200.0f), 0.0f);
  EXPECT_EQ(reference::exp(-INFINITY), 0.0f);
  EXPECT_EQ(reference::exp(100.0f), INFINITY);
  EXPECT_TRUE(std::isnan(reference::exp(NAN)));
  EXPECT_EQ(reference::log(1.0f), 0.0f);
  EXPECT_EQ(reference::log(0.0f), -INFINITY);
  EXPECT_EQ(reference::log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(reference::log(-1.0f)));
}

TEST(ReferenceMath, SineAndCosine) {
  for (int i = 0; i < 50000; i++) {
    double x = 2e6 * uniform(4, static_cast<u64>(i)) - 1e6;
    if (i % 3 == 0) x = std::floor(x);
    auto [s, c] = reference::sin_cos(x);
    EXPECT_NEAR(s, std::sin(x), 5e-14) << x;
    EXPECT_NEAR(c, std::cos(x), 5e-14) << x;
    EXPECT_EQ(reference::sin_cos(-x).sin, -s);
  }
}

TEST(ReferenceMath, LaneSumAddsLanesAsATree) {
  std::vector<float> x(37);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(normal(5, i));
  float got = reference::lane_sum<float>(37, [&](float s, i64 i) { return s + x[static_cast<size_t>(i)]; });
  float lane[16] = {};
  for (size_t i = 0; i < x.size(); i++) lane[i % 16] += x[i];
  for (int i = 0; i < 8; i++) lane[i] += lane[i + 8];
  float pairs[2] = {(lane[0] + lane[4]) + (lane[2] + lane[6]), (lane[1] + lane[5]) + (lane[3] + lane[7])};
  EXPECT_EQ(got, pairs[0] + pairs[1]);
}

TEST(ReferenceSums, RoundToNearestEvenAndFlag) {
  Team team(1);
  Context c{team};
  reference::Sums<float> sums(true, 2, 4);
  EXPECT_EQ(sums.fixed(1.0f, c.overflow), 4);
  EXPECT_EQ(sums.fixed(0.125f, c.overflow), 0);  // 0.5
  EXPECT_EQ(sums.fixed(0.375f, c.overflow), 2);  // 1.5
  EXPECT_EQ(sums.fixed(-0.375f, c.overflow), -2);
  EXPECT_EQ(sums.number(5), 1.25f);
  EXPECT_EQ(sums.fixed(std::nextafter(0x1p58f, 0.0f), c.overflow), static_cast<i64>(std::nextafter(0x1p60f, 0.0f)));
  EXPECT_FALSE(c.overflow);
  sums.fixed(0x1p58f, c.overflow);  // times 2^2, times 4 leaves: 2^62
  EXPECT_TRUE(c.overflow);
  for (float x : {INFINITY, -INFINITY, NAN}) {
    Context fresh{team};
    sums.fixed(x, fresh.overflow);
    EXPECT_TRUE(fresh.overflow) << x;
  }
  EXPECT_EQ(sums.number((i64{1} << 62) + (i64{1} << 38) + 1), 0x1p60f + 0x1p37f);  // rounded once, not through double
  reference::Sums<double> wide(true, 40, 1);
  EXPECT_EQ(wide.number(wide.fixed(1.0 / 3, c.overflow)), std::nearbyint(0x1p80 / 3) * 0x1p-80);
  EXPECT_EQ(wide.number(wide.fixed(1e9, c.overflow)), 1e9);
}

TEST(ReferenceSums, ProductsCutIntoLeaves) {
  const i64 rows = 3, width = 21, columns = 5;
  Tensor x = test::random_tensor(DType::f32, {{0, rows}, {0, width}}, 1);
  Tensor w = test::random_tensor(DType::f32, {{0, columns}, {0, width}}, 2);
  Tensor exact(DType::i64, {{0, rows}, {0, columns}}), plain(DType::f32, exact.box);
  Args a = args_of("matmul", "t f, d f -> t d", {x, w}, {exact});
  a.contracted = "f";
  a.exponent = 40;
  a.leaves['f'] = {0, 8, 16, 21};
  a.model_leaves = 3;
  EXPECT_FALSE(run(a));
  a.out = {plain};
  EXPECT_FALSE(run(a));  // sums that are not exact: one chain
  for (i64 t = 0; t < rows; t++)
    for (i64 d = 0; d < columns; d++) {
      i64 want = 0;
      float whole = 0;
      for (auto [begin, end] : {std::pair<i64, i64>{0, 8}, {8, 16}, {16, 21}}) {
        float s = 0;
        for (i64 f = begin; f < end; f++) {
          s = std::fma(x.as<float>()[t * width + f], w.as<float>()[d * width + f], s);
          whole = std::fma(x.as<float>()[t * width + f], w.as<float>()[d * width + f], whole);
        }
        want += std::llrint(s * 0x1p40f);
      }
      EXPECT_EQ(exact.as<i64>()[t * columns + d], want);
      EXPECT_EQ(plain.as<float>()[t * columns + d], whole);
    }
}

TEST(ReferenceProducts, Bf16InPairsTheOddFirst) {
  for (i64 width : {6, 7}) {
    Tensor x = test::random_tensor(DType::bf16, {{0, 1}, {0, width}}, 1);
    Tensor w = test::random_tensor(DType::bf16, {{0, 1}, {0, width}}, 2), out(DType::f32, {{0, 1}, {0, 1}});
    Args a = args_of("matmul", "t d, f d -> t f", {x, w}, {out});
    a.contracted = "d";
    run(a);
    float s = 0;
    for (i64 k = 0; k < width; k += 2)
      for (i64 i : {k + 1, k})
        if (i < width) s = std::fma(test::at(x, i), test::at(w, i), s);
    EXPECT_EQ(out.as<float>()[0], s) << width;
  }
}

// The order of each result is the same, so are its bits: every rule and type, more than one pack of rows, odd sizes.
TEST(ReferenceProducts, TilesHaveTheBitsOfTheReference) {
  struct Case {
    const char *rule, *contracted;
    Box x, y, out;
    std::vector<i64> leaves;
  };
  const Range t{3, 40}, d{0, 21}, f{5, 38}, n{2, 7}, h{0, 6};
  const Case cases[] = {{"t d, f d -> t f", "d", {t, d}, {f, d}, {t, f}, {}},
                        {"t d, n h d -> t n h", "d", {t, d}, {n, h, d}, {t, n, h}, {}},
                        {"t n h, d n h -> t d", "nh", {t, n, h}, {d, n, h}, {t, d}, {0, 2, 3, 6, 7}},
                        {"t h n, d n h -> t d", "hn", {t, h, n}, {d, n, h}, {t, d}, {0, 2, 3, 6, 7}},
                        {"t f, t d -> f d", "t", {t, f}, {t, d}, {f, d}, {0, 3, 11, 30, 40}},
                        {"t f, d f -> t d", "f", {t, f}, {d, f}, {t, d}, {0, 5, 20, 38}}};
  for (const Case& c : cases)
    for (DType x_type : {DType::f32, DType::bf16})
      for (DType y_type : {DType::f32, DType::bf16})
        for (bool exact : {false, true}) {
          if (exact && c.leaves.empty()) continue;
          Tensor x = test::random_tensor(x_type, c.x, 1), y = test::random_tensor(y_type, c.y, 2);
          Tensor out[2];
          for (size_t k : {0u, 1u}) {
            out[k] = Tensor(exact ? DType::i64 : DType::f32, c.out);
            Args a = args_of("matmul", c.rule, {x, y}, {out[k]});
            a.contracted = c.contracted;
            a.exponent = 40;
            if (!c.leaves.empty())
              a.leaves[std::string(c.contracted).find('n') != std::string::npos ? 'n' : c.contracted[0]] = c.leaves;
            auto run = reference_kernels("matmul", DType::f32)[k].prepare(a);
            ASSERT_TRUE(run) << run.why();
            Team team(k == 0 ? 3 : 1);
            Context context{team};
            (*run)(context);
            EXPECT_FALSE(context.overflow);
          }
          EXPECT_EQ(std::memcmp(out[0].data, out[1].data, static_cast<size_t>(out[0].buffer.bytes())), 0)
              << c.rule << " " << name_of(x_type) << " " << name_of(y_type) << " " << exact;
        }
  Tensor x(DType::f64, {{0, 300}, {0, 5000}}), y(DType::f64, {{0, 2}, {0, 5000}});
  for (i64 i = 0; i < x.elements(); i++) x.as<double>()[i] = normal(1, static_cast<u64>(i));
  for (i64 i = 0; i < y.elements(); i++) y.as<double>()[i] = normal(2, static_cast<u64>(i));
  Tensor out[2] = {Tensor(DType::f64, {{0, 300}, {0, 2}}), Tensor(DType::f64, {{0, 300}, {0, 2}})};
  for (size_t k : {0u, 1u}) {  // rows in several packs
    Args a = args_of("matmul", "t d, f d -> t f", {x, y}, {out[k]});
    a.contracted = "d";
    auto run = reference_kernels("matmul", DType::f64)[k].prepare(a);
    ASSERT_TRUE(run) << run.why();
    Team team(2);
    Context context{team};
    (*run)(context);
  }
  EXPECT_EQ(std::memcmp(out[0].data, out[1].data, static_cast<size_t>(out[0].buffer.bytes())), 0);
  Args none = args_of("matmul", "a b, a b -> o", {x, x}, {out[0]});
  EXPECT_THAT(reference_kernels("matmul", DType::f64)[0].prepare(none).why(),
              testing::HasSubstr("no factor of one operand"));
}

TEST(ReferenceAttention, TrainingHasTheBitsOfServing) {
  const i64 lengths[] = {300, 40, 1, 129}, heads = 6, kv = 2, h = 8, page = 16;
  const i64 tokens = 470;
  const Box q_box{{0, tokens}, {0, heads}, {0, h}}, kv_box{{0, tokens}, {0, kv}, {0, h}};
  Tensor q = test::random_tensor(DType::f32, q_box, 1, 2), k = test::random_tensor(DType::f32, kv_box, 2);
  Tensor v = test::random_tensor(DType::f32, kv_box, 3), o(DType::f32, q_box), paged(DType::f32, q_box);
  Tensor lse(DType::f32, {{0, tokens}, {0, heads}}), table(DType::i32, {{0, 4}, {0, 20}});
  std::vector<i64> position, sequence, slot;
  for (i64 s = 0; s < 4; s++)
    for (i64 p = 0; p < 20; p++)
      table.as<std::int32_t>()[s * 20 + p] = static_cast<std::int32_t>((s * 20 + p) * 7 % 80);
  for (i64 s = 0; s < 4; s++)
    for (i64 p = 0; p < lengths[s]; p++) {
      position.push_back(p);
      sequence.push_back(s);
      slot.push_back(table.as<std::int32_t>()[s * 20 + p / page] * page + p % page);
    }
  const Range all{0, tokens};
  Tensor at = indices(all, position), of = indices(all, sequence), where = indices(all, slot);
  Args a = args_of("attention", "t kg h, s k h, s k h, s, s -> t kg h, t kg", {q, k, v, at, of}, {o, lse});
  a.group = 3;
  a.attrs["scale"] = 0.35;
  EXPECT_FALSE(run(a));

  const Box cache{{0, 80 * page}, {0, kv}, {0, h}};
  Tensor keys(DType::f32, cache), values(DType::f32, cache);
  for (i64 i = 0; i < keys.elements(); i++) keys.as<float>()[i] = values.as<float>()[i] = NAN;
  run(args_of("kv_write", "c k h, t k h, t -> c k h", {keys, k, where}, {keys}));
  run(args_of("kv_write", "c k h, t k h, t -> c k h", {values, v, where}, {values}));
  Args b = args_of("attention_paged", "t kg h, c k h, c k h, t, t, b p -> t kg h", {q, keys, values, at, of, table},
                   {paged});
  b.group = 3;
  b.attrs = {{"scale", 0.35}, {"page", 16}};
  EXPECT_FALSE(run(b));
  EXPECT_EQ(std::memcmp(o.data, paged.data, static_cast<size_t>(o.buffer.bytes())), 0);

  for (i64 t : {0, 131, 299, 300, 340, 341, 469})
    for (i64 n = 0; n < heads; n++) {
      double sum = 0, want[8] = {};
      for (i64 s = t - position[static_cast<size_t>(t)]; s <= t; s++) {
        double dot = 0;
        for (i64 i = 0; i < h; i++)
          dot += static_cast<double>(q.as<float>()[q.at({t, n, i})]) * k.as<float>()[k.at({s, n / 3, i})];
        double p = std::exp(0.35 * dot);
        sum += p;
        for (i64 i = 0; i < h; i++) want[i] += p * v.as<float>()[v.at({s, n / 3, i})];
      }
      EXPECT_NEAR(lse.as<float>()[t * heads + n], std::log(sum), 2e-6 * (1 + std::fabs(std::log(sum))));
      for (i64 i = 0; i < h; i++) EXPECT_NEAR(o.as<float>()[o.at({t, n, i})], want[i] / sum, 2e-6);
    }
}

TEST(ReferenceAttention, WindowLooksAtTheLastPositionsOnly) {
  const i64 length = 200, h = 4;
  const Box box{{0, length}, {0, 1}, {0, h}};
  Tensor q = doubles(box, 1), k = doubles(box, 2), v = doubles(box, 3), o(DType::f64, box);
  std::vector<i64> position(length), zero(length, 0), table(13);
  std::iota(position.begin(), position.end(), 0);
  std::iota(table.begin(), table.end(), 0);
  Tensor at = indices({0, length}, position), of = indices({0, length}, zero), pages(DType::i32, {{0, 1}, {0, 13}});
  for (int i = 0; i < 13; i++) pages.as<std::int32_t>()[i] = i;
  const Box cache{{0, 208}, {0, 1}, {0, h}};
  Tensor keys(DType::f64, cache), values(DType::f64, cache);
  std::memcpy(keys.data, k.data, static_cast<size_t>(k.buffer.bytes()));
  std::memcpy(values.data, v.data, static_cast<size_t>(v.buffer.bytes()));
  Args a =
      args_of("attention_paged", "t kg h, c k h, c k h, t, t, b p -> t kg h", {q, keys, values, at, of, pages}, {o});
  a.attrs = {{"scale", 0.5}, {"page", 16}, {"window", 70}};
  run(a, DType::f64);
  for (i64 t : {0, 69, 70, 150, 199}) {
    double sum = 0, want = 0;
    for (i64 s = std::max<i64>(0, t - 69); s <= t; s++) {
      double dot = 0;
      for (i64 i = 0; i < h; i++) dot += q.as<double>()[t * h + i] * k.as<double>()[s * h + i];
      sum += std::exp(0.5 * dot);
      want += std::exp(0.5 * dot) * v.as<double>()[s * h];
    }
    EXPECT_NEAR(o.as<double>()[t * h], want / sum, 1e-13);
  }
}

TEST(ReferenceNorms, AreTheFormulas) {
  const i64 d = 37;
  Tensor x = doubles({{5, 8}, {0, d}}, 1), gain = doubles({{0, d}}, 2), bias = doubles({{0, d}}, 3);
  Tensor rms(DType::f64, x.box), layer(DType::f64, x.box);
  Args a = args_of("rms_norm", "t d, d -> t d", {x, gain}, {rms});
  a.attrs["eps"] = 1e-3;
  run(a, DType::f64);
  Args b = args_of("layer_norm", "t d, d, d -> t d", {x, gain, bias}, {layer});
  b.attrs["eps"] = 1e-3;
  run(b, DType::f64);
  for (i64 t = 0; t < 3; t++) {
    double mean = 0, square = 0, var = 0;
    for (i64 i = 0; i < d; i++)
      mean += x.as<double>()[t * d + i] / d, square += std::pow(x.as<double>()[t * d + i], 2) / d;
    for (i64 i = 0; i < d; i++) var += std::pow(x.as<double>()[t * d + i] - mean, 2) / d;
    for (i64 i = 0; i < d; i++) {
      double v = x.as<double>()[t * d + i], g = gain.as<double>()[i];
      EXPECT_NEAR(rms.as<double>()[t * d + i], v / std::sqrt(square + 1e-3) * g, 1e-13);
      EXPECT_NEAR(layer.as<double>()[t * d + i], (v - mean) / std::sqrt(var + 1e-3) * g + bias.as<double>()[i], 1e-13);
    }
  }
}

TEST(ReferenceRope, TurnsByDistanceAndBack) {
  const i64 h = 16;
  Tensor x(DType::f64, {{0, 4}, {0, 1}, {0, h}}), y(DType::f64, x.box), back(DType::f64, x.box);
  for (i64 i = 0; i < x.elements(); i++) x.as<double>()[i] = normal(1, static_cast<u64>(i % h));  // four times one row
  Tensor position = indices({0, 4}, {3, 10, 1003, 1010});
  Args a = args_of("rope", "t n h, t -> t n h", {x, position}, {y});
  a.attrs = {{"base", 500}};
  run(a, DType::f64);
  auto dot = [&](i64 s, i64 t) {
    double d = 0;
    for (i64 i = 0; i < h; i++) d += y.as<double>()[s * h + i] * y.as<double>()[t * h + i];
    return d;
  };
  EXPECT_NEAR(dot(0, 1), dot(2, 3), 1e-11);  // 7 apart
  EXPECT_GT(std::fabs(dot(0, 1) - dot(0, 0)), 1e-3);
  for (i64 i = 0; i < h / 2; i++) {
    double angle = 10 * std::pow(500, -2.0 * static_cast<double>(i) / h);
    double u = x.as<double>()[i], v = x.as<double>()[i + h / 2];
    EXPECT_NEAR(y.as<double>()[h + i], u * std::cos(angle) - v * std::sin(angle), 1e-12);
    EXPECT_NEAR(y.as<double>()[h + i + h / 2], v * std::cos(angle) + u * std::sin(angle), 1e-12);
  }
  a.in[0] = y;
  a.out = {back};
  a.attrs["inverse"] = 1;
  run(a, DType::f64);
  for (i64 i = 0; i < x.elements(); i++) EXPECT_NEAR(back.as<double>()[i], x.as<double>()[i], 1e-12);
}

TEST(ReferenceRope, Llama3ScalingAndPartialTurns) {
  const i64 h = 128;
  Tensor x(DType::f64, {{0, 1}, {0, 1}, {0, h}}), y(DType::f64, x.box);
  for (i64 i = 0; i < h; i++) x.as<double>()[i] = i < h / 2 ? 1 : 0;  // y = (cos, sin)
  Tensor position = indices({0, 1}, {777});
  Args a = args_of("rope", "t n h, t -> t n h", {x, position}, {y});
  a.attrs = {{"base", 500000}, {"factor", 8}, {"low", 1}, {"high", 4}, {"original", 8192}};
  run(a, DType::f64);
  int kept = 0, slowed = 0, between = 0;
  for (i64 i = 0; i < h / 2; i++) {
    double f = std::pow(500000.0, -2.0 * static_cast<double>(i) / h), wave = 2 * M_PI / f, want = f;
    if (wave > 8192) {
      want = f / 8;
      slowed++;
    } else if (wave > 8192.0 / 4) {
      double smooth = (8192 / wave - 1) / 3;
      want = (1 - smooth) * f / 8 + smooth * f;
      between++;
    } else {
      kept++;
    }
    EXPECT_NEAR(y.as<double>()[i], std::cos(777 * want), 1e-10) << i;
    EXPECT_NEAR(y.as<double>()[i + h / 2], std::sin(777 * want), 1e-10) << i;
  }
  EXPECT_TRUE(kept > 0 && slowed > 0 && between > 0);
  a.attrs = {{"base", 100}, {"dims", 32}};
  run(a, DType::f64);
  for (i64 i = 32; i < h; i++) EXPECT_EQ(y.as<double>()[i], x.as<double>()[i]);
  EXPECT_NEAR(y.as<double>()[0], std::cos(777.0) - std::sin(777.0), 1e-12);
}

TEST(ReferenceLoss, IsTheCrossEntropy) {
  const i64 tokens = 9, words = 41;
  Tensor x = doubles({{0, tokens}, {0, words}}, 1, 5), max(DType::f64, {{0, tokens}}), picked(DType::f64, max.box);
  Tensor sum(DType::i128, max.box), read(DType::f64, max.box), nll(DType::f64, max.box), loss(DType::i128, {{0, 1}});
  std::vector<i64> target = {0, 40, -1, 7, 13, 13, -1, 2, 39};
  Tensor y = indices({0, tokens}, target), total(DType::f64, {{0, 1}});
  const std::vector<i64> leaves = {0, 16, 32, 41};
  run(args_of("row_max", "t v -> t", {x}, {max}), DType::f64);
  Args s = args_of("sum_exp", "t v, t -> t", {x, max}, {sum});
  s.exponent = 40;
  s.leaves['v'] = leaves;
  run(s, DType::f64);
  Args f = args_of("finish", "a -> a", {sum}, {read});
  f.exponent = 40;
  run(f, DType::f64);
  run(args_of("pick", "t v, t -> t", {x, y}, {picked}), DType::f64);
  run(args_of("nll", "t, t, t, t -> t", {max, read, picked, y}, {nll}), DType::f64);
  Args l = args_of("sum_tokens", "t -> o", {nll}, {loss});
  l.exponent = 40;
  run(l, DType::f64);
  f.in = {loss};
  f.out = {total};
  f.ranges["a"] = {0, 1};
  run(f, DType::f64);
  double want = 0;
  for (i64 t = 0; t < tokens; t++) {
    double z = 0;
    for (i64 v = 0; v < words; v++) z += std::exp(x.as<double>()[t * words + v]);
    double one = target[static_cast<size_t>(t)] < 0
                     ? 0
                     : std::log(z) - x.as<double>()[t * words + target[static_cast<size_t>(t)]];
    EXPECT_NEAR(nll.as<double>()[t], one, 1e-12);
    want += one;
  }
  EXPECT_NEAR(total.as<double>()[0], want, 1e-11);
}

TEST(ReferenceRows, EmbeddingAndItsGradient) {
  Tensor table = test::random_tensor(DType::f32, {{10, 20}, {0, 3}}, 1),
         ids = indices({4, 10}, {12, -1, 19, 12, 5, 12});
  Tensor out(DType::f32, {{4, 10}, {0, 3}});
  Args a = args_of("embedding", "t, v d -> t d", {ids, table}, {out});
  run(a);
  for (i64 t = 0; t < 6; t++)
    for (i64 d = 0; d < 3; d++) {
      i64 id = ids.as<std::int32_t>()[t];
      float want = id < 10 ? 0 : table.as<float>()[(id - 10) * 3 + d];
      EXPECT_EQ(out.as<float>()[t * 3 + d], want);
    }
  Tensor dw(DType::i64, table.box);
  Args b = args_of("embedding_dw", "t, t d -> v d", {ids, out}, {dw});
  b.exponent = 36;
  b.leaves['t'] = {0, 4, 8, 12};
  b.ranges["t"] = {4, 8};  // a leaf; the last two tokens are another rank's
  run(b);
  for (i64 v = 0; v < 10; v++)
    for (i64 d = 0; d < 3; d++) {
      double n = v == 2 ? 2 : v == 9 ? 1 : 0;
      EXPECT_EQ(dw.as<i64>()[v * 3 + d], std::llrint(static_cast<float>(n) * table.as<float>()[v * 3 + d] * 0x1p36f));
    }
}

TEST(ReferenceOptimizer, NormOfGradients) {
  constexpr float kMost = std::numeric_limits<float>::max();
  Tensor x = test::random_tensor(DType::f32, {{0, 5}, {0, 3}}, 1),
         lanes(DType::i64, {{0, ExactSquares<float>::kLanes}});
  Tensor norm(DType::f32, {{0, 1}});
  const Args squares = args_of("sum_squares", "a b -> q", {x}, {lanes});
  const Args root = args_of("gradient_norm", "q -> o", {lanes}, {norm});
  auto flagged = [&](float first) {
    x.as<float>()[0] = first;
    return run(squares) || run(root);
  };
  EXPECT_FALSE(flagged(1e30f));  // its square is no float
  EXPECT_EQ(norm.as<float>()[0], 1e30f);
  for (float bad : {INFINITY, -INFINITY, NAN}) EXPECT_TRUE(flagged(bad)) << bad;
  x.as<float>()[1] = kMost;
  EXPECT_FALSE(flagged(1));
  EXPECT_TRUE(flagged(kMost));  // of finite numbers, itself none
}

TEST(ReferenceOptimizer, AdamWIsTheFormula) {
  const i64 n = 50;
  Tensor w = doubles({{0, n}}, 1), m(DType::f64, w.box), v(DType::f64, w.box), scale(DType::f64, {{0, 1}});
  Tensor rate(DType::f64, {{0, 1}}), step(DType::f64, {{0, 1}});
  scale.as<double>()[0] = 0.25;
  rate.as<double>()[0] = 0.01;
  std::vector<double> x(w.as<double>(), w.as<double>() + n), first(50), second(50);
  for (int k = 1; k <= 3; k++) {
    Tensor g = doubles({{0, n}}, static_cast<u64>(10 + k));
    step.as<double>()[0] = k;
    Args a = args_of("adamw_m", "a, a, z -> a", {m, g, scale}, {m});
    a.attrs = {{"beta1", 0.9}};
    run(a, DType::f64);
    Args b = args_of("adamw_v", "a, a, z -> a", {v, g, scale}, {v});
    b.attrs = {{"beta2", 0.95}};
    run(b, DType::f64);
    Args c = args_of("adamw_w", "a, a, a, z, z -> a", {w, m, v, rate, step}, {w});
    c.attrs = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}};
    run(c, DType::f64);
    for (size_t i = 0; i < x.size(); i++) {
      double d = 0.25 * g.as<double>()[i];
      first[i] = 0.9 * first[i] + 0.1 * d;
      second[i] = 0.95 * second[i] + 0.05 * d * d;
      double mh = first[i] / (1 - std::pow(0.9, k)), vh = second[i] / (1 - std::pow(0.95, k));
      x[i] -= 0.01 * (mh / (std::sqrt(vh) + 1e-8) + 0.1 * x[i]);
      EXPECT_NEAR(w.as<double>()[i], x[i], 1e-14);
    }
  }
}

TEST(ReferenceOptimizer, SgdAndClipping) {
  auto scalar = [](double x) {
    Tensor t(DType::f64, {{0, 1}});
    t.as<double>()[0] = x;
    return t;
  };
  Tensor count = scalar(8), out = scalar(0);
  auto clipped = [&](double norm, double most) {
    Tensor s = scalar(norm);
    Args a = args_of("clip_scale", "a, a -> a", {s, count}, {out});
    a.attrs["max_norm"] = most;
    run(a, DType::f64);
    return out.as<double>()[0];
  };
  EXPECT_DOUBLE_EQ(clipped(1, 2), 1.0 / 8);      // of the mean gradient
  EXPECT_DOUBLE_EQ(clipped(1, 0.25), 0.25 / 8);  // scaled down to 0.25
  EXPECT_DOUBLE_EQ(clipped(1e4, 0), 1.0 / 8);    // no limit
  EXPECT_DOUBLE_EQ(clipped(0, 1), 1.0 / 8);
  Tensor w = scalar(3), g = scalar(4), scale = scalar(0.5), rate = scalar(0.1);
  run(args_of("sgd", "a, a, z, z -> a", {w, g, scale, rate}, {w}), DType::f64);
  EXPECT_DOUBLE_EQ(w.as<double>()[0], 3 - 0.1 * 2);
}

TEST(ReferenceDropout, MaskIsAFunctionOfSeedAndPlace) {
  const i64 tokens = 200, d = 50;
  Tensor x(DType::f32, {{0, tokens}, {0, d}}), whole(DType::f32, x.box), part(DType::f32, {{60, 90}, {10, 40}});
  for (i64 i = 0; i < x.elements(); i++) x.as<float>()[i] = 1;
  std::vector<i64> number(tokens);
  std::iota(number.begin(), number.end(), 1000);
  Tensor at = indices({0, tokens}, number);
  auto mask = [&](double seed, double site, Tensor& out, i64 step = 1) {
    Tensor now = indices({0, 1}, {step});
    Args a = args_of("dropout", "t d, t, o -> t d", {x, at, now}, {out});
    a.ranges["t"] = out.box[0];
    a.ranges["d"] = out.box[1];
    a.attrs = {{"seed", seed}, {"site", site}, {"p", 0.2}};
    run(a);
  };
  mask(1, 2, whole);
  mask(1, 2, part);
  double sum = 0;
  for (i64 i = 0; i < whole.elements(); i++) sum += whole.as<float>()[i];
  EXPECT_NEAR(sum / static_cast<double>(whole.elements()), 1, 0.02);
  for_each(part.box, [&](const std::vector<i64>& i) {
    EXPECT_EQ(part.as<float>()[part.at(i)], whole.as<float>()[whole.at(i)]);
    EXPECT_TRUE(part.as<float>()[part.at(i)] == 0 || part.as<float>()[part.at(i)] == 1.25f);
  });
  auto differ = [&](double seed, double site, i64 step = 1) {
    Tensor other(DType::f32, x.box);
    mask(seed, site, other, step);
    i64 n = 0;
    for (i64 i = 0; i < x.elements(); i++) n += other.as<float>()[i] != whole.as<float>()[i] ? 1 : 0;
    return static_cast<double>(n) / static_cast<double>(x.elements());
  };
  EXPECT_EQ(differ(1, 2), 0);
  EXPECT_NEAR(differ(2, 2), 0.32, 0.03);  // 2 p (1 - p): independent
  EXPECT_NEAR(differ(1, 3), 0.32, 0.03);
  EXPECT_NEAR(differ(2, 1), 0.32, 0.03);
  EXPECT_NEAR(differ(1, 2, 2), 0.32, 0.03);
}

/// Equal scores and v = 1: a row's result is the share of its keys that stay, over 1 - p.
TEST(ReferenceDropout, OfAttentionKeepsTheMean) {
  const i64 tokens = 300, heads = 6, width = 2;
  Tensor q(DType::f32, {{0, tokens}, {0, heads}, {0, width}}), kv(DType::f32, q.box), out(DType::f32, q.box),
      lse(DType::f32, {{0, tokens}, {0, heads}});
  for (i64 i = 0; i < q.elements(); i++) q.as<float>()[i] = 0, kv.as<float>()[i] = 1;
  std::vector<i64> number(tokens);
  std::iota(number.begin(), number.end(), 0);
  Tensor at = indices({0, tokens}, number), one = indices({0, tokens}, std::vector<i64>(tokens, 0)),
         step = indices({0, 1}, {5});
  auto attend = [&](double p) {
    Args a = args_of("attention_dropout", "t kg h, s k h, s k h, s, s, t, o -> t kg h, t kg",
                     {q, kv, kv, at, one, at, step}, {out, lse});
    a.attrs = {{"scale", 1}, {"seed", 1}, {"site", 2}, {"p", p}};
    run(a);
    double sum = 0;
    for (i64 i = 0; i < out.elements(); i++) sum += out.as<float>()[i];
    return sum / static_cast<double>(out.elements());
  };
  EXPECT_NEAR(attend(0.25), 1, 0.01);
  const float* last = out.as<float>() + (tokens - 1) * heads * width;
  EXPECT_NE(last[0], last[width]);  // heads have masks of their own
  EXPECT_EQ(last[0], last[1]);      // a key is kept for all of a head
  EXPECT_EQ(attend(0), 1);
}

TEST(Reference, DeclinesWithAReason) {
  auto why = [](DType in, DType real, Layout layout = Layout::rows) {
    Tensor x(in, {{0, 32}}, layout), out(real, {{0, 32}});
    auto r = reference_kernels("cast", real)[0].prepare(args_of("cast", "a -> a", {x}, {out}));
    return r ? std::string("taken") : r.why();
  };
  EXPECT_EQ(why(DType::f32, DType::f32), "taken");
  EXPECT_EQ(why(DType::f64, DType::f64), "taken");
  EXPECT_EQ(why(DType::q8_0, DType::f32), "cast: operand 0 holds blocks (q8_0)");
  EXPECT_EQ(why(DType::f64, DType::f32), "cast: operand 0 is f64");
  EXPECT_EQ(why(DType::f32, DType::f64), "cast: operand 0 is f32");
  EXPECT_EQ(why(DType::f32, DType::f32, Layout::panels), "cast: operand 0 does not lie in rows");
  EXPECT_TRUE(reference_kernels("no such op", DType::f32).empty());
}

}  // namespace
}  // namespace plait::kernels
