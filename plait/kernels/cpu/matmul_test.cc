// Every instruction set against the scalar reference, bit by bit; the reference against sums in double and against the
// order of docs/numerics.md written down a second time, from the file's rows instead of from panels.
#include "plait/kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "plait/base/random.h"
#include "plait/kernels/cpu/quantize.h"
#include "plait/kernels/panels.h"
#include "plait/tensor/blocks.h"

namespace plait::kernels {
namespace {

constexpr DType kWeights[] = {DType::f32,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                              DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k};
constexpr DType kActivations[] = {DType::f32, DType::bf16};
constexpr DType kResults[] = {DType::f32, DType::bf16, DType::i64};

/// A way to compute a product on this processor.
struct Path {
  Isa isa;
  bool native_bf16 = false;
};
std::ostream& operator<<(std::ostream& o, Path p) { return o << name_of(p.isa) << (p.native_bf16 ? " dot" : " fma"); }

constexpr Path kReference{Isa::portable};

std::vector<Path> available() {
  std::vector<Path> all;
  for (Path p : {Path{Isa::avx2}, Path{Isa::avx512}, Path{Isa::avx512_bf16}, Path{Isa::avx512_bf16, true}})
    if (p.isa <= detected_isa()) all.push_back(p);
  return all;
}

/// Rows of a weight in the file's format.
std::vector<std::byte> weight_rows(DType t, i64 n, i64 k, u64 seed) {
  std::vector<std::byte> rows(static_cast<size_t>(n * bytes_of(t, k)));
  const i64 items = n * k / info(t).block;
  for (i64 i = 0; i < items; i++) {
    std::byte* at = rows.data() + i * info(t).block_bytes;
    const auto value = static_cast<float>(normal(seed, static_cast<u64>(i)) * 0.05);
    if (!is_quantized(t)) {
      from_f32(t, &value, at, 1);
      continue;
    }
    for (i64 b = 0; b < info(t).block_bytes; b++)
      at[b] = static_cast<std::byte>(random_bits(seed + 1, static_cast<u64>(i * 256 + b)) >> 9);
    const float unit = info(t).block == 256 ? value / 16 : value;
    const std::uint16_t d = f32_to_f16(unit * 0.1f), m = f32_to_f16(unit * -0.7f);
    std::byte* halves = at + (t == DType::q2_k ? 80 : t == DType::q3_k ? 108 : t == DType::q6_k ? 208 : 0);
    std::memcpy(halves, &d, 2);
    if (has_minimum(t)) std::memcpy(halves + 2, &m, 2);
  }
  return rows;
}

std::vector<float> activations(i64 count, u64 seed) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(normal(seed, i));
  return x;
}

/// out[t, n] = x[t, k] w[k, n]: the args of a product and what they point to.
struct Case {
  Tensor x, w, out;
  Args args;

  Case(DType xt, DType wt, DType ot, i64 rows, i64 n, i64 k, std::vector<i64> edges = {})
      : x(xt, {{0, rows}, {0, k}}), w(wt, {{0, k}, {0, n}}, Layout::panels), out(ot, {{0, rows}, {0, n}}) {
    w.buffer = Buffer(panel_bytes(wt, n, k));
    w.data = w.buffer.data();
    args.op = "matmul";
    args.in_terms = {Term{"t", "k"}, Term{"k", "n"}};
    args.out_terms = {Term{"t", "n"}};
    args.contracted = "k";
    args.ranges = {{"t", {0, rows}}, {"k", {0, k}}, {"n", {0, n}}};
    if (!edges.empty()) args.leaves['k'] = edges;
    args.exponent = 40;
    args.in = {x, w};
    args.out = {out};
  }
  void set_x(const std::vector<float>& values) { from_f32(x.dtype, values.data(), x.data, x.elements()); }
  void set_w(const std::vector<std::byte>& rows) {
    const i64 n = w.size(1), k = w.size(0);
    pack_panels(w.dtype, rows.data(), bytes_of(w.dtype, k), n, k, {0, panels_of(n)}, w.buffer.data());
  }
  /// Runs; says whether a leaf overflowed.
  bool run(Path path, Team& team) {
    auto run = prepare_matmul(args, path.isa, path.native_bf16);
    if (!run) throw std::runtime_error(run.why());
    Context context{team};
    (*run)(context);
    return context.overflow;
  }
  std::vector<std::byte> bytes(Path path, Team& team) {
    std::memset(out.data, 0x5a, static_cast<size_t>(out.buffer.bytes()));
    run(path, team);
    return {out.buffer.data(), out.buffer.data() + bytes_of(out.dtype, out.elements())};
  }
};

/// k, as long as blocks of the type make it.
i64 whole_blocks(DType t, i64 k) { return round_up(k, info(t).block); }

std::vector<i64> leaves_of(DType t, i64 k) {
  const i64 first = std::max<i64>(32, info(t).block), step = std::max<i64>(128, info(t).block);
  if (k < 2 * first) return {0, k};
  std::vector<i64> e{0, first};
  while (e.back() + step < k) e.push_back(e.back() + step);
  e.push_back(k);
  return e;
}

class Matmul : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }
  Team one{1};
};

TEST_F(Matmul, EveryInstructionSetHasTheBitsOfTheReference) {
  for (DType wt : kWeights)
    for (i64 length : {8, 576, 1536})
      for (i64 n : {1, 17, 257}) {
        const i64 k = whole_blocks(wt, length);
        auto rows_of_w = weight_rows(wt, n, k, 5);
        for (DType xt : kActivations)
          for (i64 rows : {1, 2, 3, 7, 12, 33, 130}) {
            if (rows > 33 && (length > 576 || xt == DType::f32)) continue;
            if (length > 576 && n > 17 && rows > 3) continue;
            const DType ot = kResults[static_cast<size_t>(rows + k / 8 + n) % 3];
            Case c(xt, wt, ot, rows, n, k, ot == DType::i64 ? leaves_of(wt, k) : std::vector<i64>{});
            c.set_w(rows_of_w);
            c.set_x(activations(rows * k, 9));
            auto want = c.bytes(kReference, one);
            for (Path path : available())
              ASSERT_EQ(c.bytes(path, one), want) << path << ' ' << name_of(xt) << " x " << name_of(wt) << " -> "
                                                  << name_of(ot) << ", rows " << rows << " n " << n << " k " << k;
          }
      }
}

TEST_F(Matmul, OddLengthsAndEveryResultType) {
  for (DType wt : {DType::f32, DType::bf16})
    for (DType xt : kActivations)
      for (DType ot : kResults)
        for (i64 k : {1, 2, 7, 33})
          for (i64 rows : {1, 5, 40}) {
            Case c(xt, wt, ot, rows, 83, k, ot == DType::i64 ? std::vector<i64>{0, k} : std::vector<i64>{});
            c.set_w(weight_rows(wt, 83, k, 5));
            c.set_x(activations(rows * k, 9));
            auto want = c.bytes(kReference, one);
            for (Path path : available())
              ASSERT_EQ(c.bytes(path, one), want) << path << ' ' << name_of(xt) << " x " << name_of(wt) << " -> "
                                                  << name_of(ot) << ", rows " << rows << " k " << k;
          }
}

// Long k: chunks, rows that are prepared in parts, leaves longer than a chunk.
TEST_F(Matmul, LongSums) {
  const i64 k = 9000, n = 70;
  for (DType wt : {DType::f32, DType::bf16})
    for (int shape = 0; shape < 4; shape++) {
      const DType ot = shape == 0 ? DType::f32 : shape == 1 ? DType::bf16 : DType::i64;
      std::vector<i64> edges;
      if (shape == 2) edges = {0, 1000, 1900, 2200, 5000, 8998, 9000};
      if (shape == 3) edges = {0, 600, 1200, 2200, 2800, 3400, 4000, 4500, 5000, 6000, 7000, 8000, 9000};
      Case c(DType::bf16, wt, ot, 70, n, k, edges);
      c.set_w(weight_rows(wt, n, k, 5));
      c.set_x(activations(70 * k, 9));
      auto want = c.bytes(kReference, one);
      for (Path path : available()) ASSERT_EQ(c.bytes(path, one), want) << path << ' ' << name_of(wt) << ' ' << shape;
    }
}

TEST_F(Matmul, ReferenceKeepsTheOrder) {
  const i64 k = 75, n = 5;
  for (DType wt : {DType::f32, DType::bf16}) {
    Case c(DType::bf16, wt, DType::f32, 1, n, k);
    auto rows = weight_rows(wt, n, k, 21);
    c.set_w(rows);
    c.set_x(activations(k, 22));
    auto bytes = c.bytes(kReference, one);
    std::vector<float> x(k + 1), w(k + 1);
    to_f32(DType::bf16, c.x.data, x.data(), k);
    for (i64 j = 0; j < n; j++) {
      to_f32(wt, rows.data() + j * bytes_of(wt, k), w.data(), k);
      float acc = 0;
      for (size_t i = 0; i < k; i += wt == DType::f32 ? 1 : 2) {
        if (wt == DType::bf16) acc = std::fma(x[i + 1], w[i + 1], acc);
        acc = std::fma(x[i], w[i], acc);
      }
      float got;
      std::memcpy(&got, bytes.data() + 4 * j, 4);
      EXPECT_EQ(got, acc);
    }
  }
}

TEST_F(Matmul, ReferenceIsNearTheSumInDouble) {
  const i64 n = 40, rows = 3;
  for (DType wt : kWeights) {
    const i64 k = whole_blocks(wt, 576);
    Case c(DType::f32, wt, DType::f32, rows, n, k), exact(DType::f32, wt, DType::i64, rows, n, k, leaves_of(wt, k));
    auto w_rows = weight_rows(wt, n, k, 31);
    auto x = activations(rows * k, 32);
    for (Case* p : {&c, &exact}) {
      p->set_w(w_rows);
      p->set_x(x);
      ASSERT_FALSE(p->run(kReference, one));
    }
    std::vector<float> w(static_cast<size_t>(k));
    for (i64 j = 0; j < n; j++) {
      to_f32(wt, w_rows.data() + j * bytes_of(wt, k), w.data(), k);
      for (i64 t = 0; t < rows; t++) {
        double sum = 0, size = 0;
        for (i64 i = 0; i < k; i++) {
          const double p = static_cast<double>(x[static_cast<size_t>(t * k + i)]) * w[static_cast<size_t>(i)];
          sum += p;
          size += p * p;
        }
        const double tolerance = std::sqrt(size) * (is_quantized(wt) ? 2e-2 : 4e-6);
        EXPECT_NEAR(c.out.as<float>()[t * n + j], sum, tolerance) << name_of(wt);
        EXPECT_NEAR(static_cast<double>(exact.out.as<i64>()[t * n + j]) * 0x1p-40, sum, tolerance) << name_of(wt);
      }
    }
  }
}

// A row, a part of the columns, any number of threads: the same bits as in the whole.
TEST_F(Matmul, RowsDoNotDependOnTheirCompany) {
  const i64 n = 150, rows = 512;
  for (Path path : available())
    for (DType wt : kWeights) {
      const i64 k = whole_blocks(wt, 320);
      const DType ot = wt == DType::bf16 || wt == DType::q8_0 || wt == DType::q6_k ? DType::i64 : DType::f32;
      auto edges = ot == DType::i64 ? leaves_of(wt, k) : std::vector<i64>{};
      auto w_rows = weight_rows(wt, n, k, 41);
      auto x = activations(rows * k, 42);
      Case whole(DType::bf16, wt, ot, rows, n, k, edges);
      whole.set_w(w_rows);
      whole.set_x(x);
      auto want = whole.bytes(path, one);
      const i64 row_bytes = bytes_of(ot, n);
      for (i64 count : {1, 4, 8, 19, 100}) {
        Case part(DType::bf16, wt, ot, count, n, k, edges);
        part.set_w(w_rows);
        const i64 from = count * 3;
        part.set_x({x.begin() + from * k, x.begin() + (from + count) * k});
        auto got = part.bytes(path, one);
        ASSERT_EQ(std::memcmp(got.data(), want.data() + from * row_bytes, got.size()), 0)
            << path << ' ' << name_of(wt) << ' ' << count << " rows";
      }
      for (i64 threads : {2, 3, 4}) {
        Team team(threads);
        team.run([](i64, i64) { flush_denormals(); });
        ASSERT_EQ(whole.bytes(path, team), want) << threads << " threads";
      }
    }
}

TEST_F(Matmul, ColumnCutsHaveTheBitsOfTheWhole) {
  const i64 n = 211, rows = 9;
  for (DType wt : kWeights) {
    const i64 k = whole_blocks(wt, 192);
    auto w_rows = weight_rows(wt, n, k, 51);
    auto x = activations(rows * k, 52);
    Case whole(DType::bf16, wt, DType::f32, rows, n, k);
    whole.set_w(w_rows);
    whole.set_x(x);
    auto want = whole.bytes({isa()}, one);
    for (u64 draw = 0; draw < 12; draw++) {
      const auto a = static_cast<i64>(random_bits(53, 2 * draw) % n),
                 b = static_cast<i64>(random_bits(53, 2 * draw + 1) % n);
      const i64 begin = std::min(a, b), end = std::max(a, b) + 1, row = bytes_of(wt, k);
      Case part(DType::bf16, wt, DType::f32, rows, end - begin, k);
      part.set_w({w_rows.begin() + begin * row, w_rows.begin() + end * row});
      part.set_x(x);
      part.run({isa()}, one);
      for (i64 t = 0; t < rows; t++)
        ASSERT_EQ(std::memcmp(part.out.as<float>() + t * (end - begin), want.data() + (t * n + begin) * 4,
                              static_cast<size_t>(end - begin) * 4),
                  0);
    }
  }
}

// The sum over heads of "t n h, n h d -> t d", cut unevenly over ranks that hold whole boxes of x: integers add up to
// exactly the uncut sum.
TEST_F(Matmul, CutSumsAddUpToTheWhole) {
  const i64 heads = 9, d = 70, rows = 5;
  for (DType wt : kWeights)
    for (Path path : available()) {
      const i64 h = whole_blocks(wt, 32), k = heads * h;
      auto w_rows = weight_rows(wt, d, k, 61);
      Tensor x(DType::bf16, {{0, rows}, {0, heads}, {0, h}});
      auto values = activations(rows * k, 62);
      from_f32(DType::bf16, values.data(), x.data, rows * k);
      auto part = [&](Range n) {
        Tensor w(wt, {n, {0, h}, {0, d}}, Layout::panels), out(DType::i64, {{0, rows}, {0, d}});
        w.buffer = Buffer(panel_bytes(wt, d, n.size() * h));
        w.data = w.buffer.data();
        pack_panels(wt, w_rows.data() + bytes_of(wt, n.begin * h), bytes_of(wt, k), d, n.size() * h, {0, panels_of(d)},
                    w.buffer.data());
        Args a{"matmul", {x, w}, {out}, {{"t", "n", "h"}, {"n", "h", "d"}}, {{"t", "d"}}, "nh", {}, {}, heads, 40};
        a.ranges = {{"t", {0, rows}}, {"n", n}, {"h", {0, h}}, {"d", {0, d}}};
        for (i64 e = 0; e <= heads; e++) a.leaves['n'].push_back(e);
        auto run = prepare_matmul(a, path.isa, path.native_bf16);
        EXPECT_TRUE(run) << run.why();
        Context context{one};
        (*run)(context);
        EXPECT_FALSE(context.overflow);
        return std::vector<i64>(out.as<i64>(), out.as<i64>() + rows * d);
      };
      auto whole = part({0, heads});
      for (auto cuts : {std::vector<i64>{0, 4, 9}, {0, 1, 1, 8, 9}, {0, 2, 5, 9}}) {
        std::vector<i64> sum(whole.size());
        for (size_t c = 0; c + 1 < cuts.size(); c++) {
          auto got = part({cuts[c], cuts[c + 1]});
          for (size_t i = 0; i < sum.size(); i++) sum[i] += got[i];
        }
        ASSERT_EQ(sum, whole) << name_of(wt) << ' ' << path;
      }
    }
}

// Rows and columns inside larger boxes, heads of the result, a tied table "t d, v d -> t v".
TEST_F(Matmul, BoxesLargerThanTheCall) {
  const i64 d = 64, n = 3, h = 10;
  auto w_rows = weight_rows(DType::bf16, n * h, d, 71);
  Tensor x(DType::bf16, {{10, 20}, {0, d}}), w(DType::bf16, {{0, d}, {4, 4 + n}, {0, h}}, Layout::panels);
  w.buffer = Buffer(panel_bytes(DType::bf16, n * h, d));
  w.data = w.buffer.data();
  pack_panels(DType::bf16, w_rows.data(), d * 2, n * h, d, {0, 2}, w.buffer.data());
  auto values = activations(10 * d, 72);
  from_f32(DType::bf16, values.data(), x.data, 10 * d);
  Tensor out(DType::f32, {{12, 17}, {2, 9}, {0, h}});
  Args a{"matmul", {x, w}, {out}, {{"t", "d"}, {"d", "n", "h"}}, {{"t", "n", "h"}}, "d"};
  a.ranges = {{"t", {13, 16}}, {"d", {0, d}}, {"n", {4, 4 + n}}, {"h", {0, h}}};
  Case c(DType::bf16, DType::bf16, DType::f32, 3, n * h, d);
  c.set_w(w_rows);
  std::memcpy(c.x.data, x.as<bf16>() + 3 * d, static_cast<size_t>(3 * d) * 2);
  c.run(kReference, one);
  Tensor table(DType::bf16, {{0, n * h}, {0, d}}, Layout::panels);
  table.buffer = std::move(w.buffer);
  table.data = table.buffer.data();
  for (Path path : {kReference, Path{detected_isa()}}) {
    std::memset(out.data, 0, static_cast<size_t>(out.buffer.bytes()));
    auto run = prepare_matmul(a, path.isa, path.native_bf16);
    ASSERT_TRUE(run) << run.why();
    Context context{one};
    (*run)(context);
    for (i64 t = 12; t < 17; t++)
      for (i64 i = 0; i < 7; i++)
        for (i64 j = 0; j < h; j++) {
          const bool inside = t >= 13 && t < 16 && i >= 2 && i < 5;
          const float want = inside ? c.out.as<float>()[(t - 13) * n * h + (i - 2) * h + j] : 0;
          ASSERT_EQ(out.as<float>()[((t - 12) * 7 + i) * h + j], want);
        }
    Tensor logits(DType::f32, {{13, 16}, {0, n * h}});
    Args tied{"matmul", {x, table}, {logits}, {{"t", "d"}, {"v", "d"}}, {{"t", "v"}}, "d"};
    tied.ranges = {{"t", {13, 16}}, {"d", {0, d}}, {"v", {0, n * h}}};
    auto run_tied = prepare_matmul(tied, path.isa, path.native_bf16);
    ASSERT_TRUE(run_tied) << run_tied.why();
    (*run_tied)(context);
    EXPECT_EQ(std::memcmp(logits.data, c.out.data, static_cast<size_t>(3 * n * h) * 4), 0);
  }
}

bool same_numbers(const Tensor& a, const std::vector<std::byte>& b) {  // NaN equals NaN whatever its bits
  for (i64 i = 0; i < a.elements(); i++) {
    float x = a.as<float>()[i], y;
    std::memcpy(&y, b.data() + i * 4, 4);
    if (std::memcmp(&x, &y, 4) != 0 && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}

TEST_F(Matmul, SpecialNumbers) {
  const float denormal = 1e-40f, inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const i64 n = 20;
  for (DType wt : kWeights)
    for (DType xt : kActivations)
      for (float special : {denormal, -denormal, -0.0f, inf, nan, 1e-37f, 3e38f})
        for (i64 rows : {1, 24}) {
          const i64 k = whole_blocks(wt, 32) * 2;
          Case c(xt, wt, DType::f32, rows, n, k), sum(xt, wt, DType::i64, rows, n, k, {0, k / 2, k});
          std::vector<float> x = activations(rows * k, 81);
          for (i64 t = 0; t < rows; t++)
            for (i64 i = 0; i < 32; i++)
              if (i % 3 == 0 || !std::isfinite(special)) x[static_cast<size_t>(t * k + i)] = special;
          auto rows_of_w = weight_rows(wt, n, k, 82);
          for (Case* p : {&c, &sum}) {
            p->set_w(rows_of_w);
            p->set_x(x);
          }
          auto want = c.bytes(kReference, one);
          const bool flagged = sum.run(kReference, one);
          EXPECT_EQ(flagged, !std::isfinite(special) || special > 1e30f) << special;
          for (Path path : available()) {
            c.run(path, one);
            ASSERT_TRUE(same_numbers(c.out, want)) << path << ' ' << name_of(wt) << ' ' << special;
            ASSERT_EQ(sum.run(path, one), flagged) << path << ' ' << name_of(wt) << ' ' << special;
          }
        }
}

TEST_F(Matmul, DenormalsAreFlushed) {
  for (Path path : {kReference, Path{detected_isa()}}) {
    Case c(DType::bf16, DType::bf16, DType::f32, 1, 1, 2);
    c.set_x({0x1p-70f, 0x1p-130f});
    const bf16 w[2] = {bf16(0x1p-70f), bf16(1.0f)};
    c.set_w({reinterpret_cast<const std::byte*>(w), reinterpret_cast<const std::byte*>(w + 2)});
    c.run(path, one);
    EXPECT_EQ(c.out.as<float>()[0], 0.0f);
  }
}

// |leaf| 2^e times the model's leaves must stay below 2^62; conversion rounds to nearest even.
TEST_F(Matmul, OverflowAndRounding) {
  for (Path path : {kReference, Path{Isa::avx2}, Path{Isa::avx512}}) {
    if (path.isa > detected_isa()) continue;
    Case c(DType::f32, DType::f32, DType::i64, 1, 3, 2, {0, 2});
    const float w[6] = {1, 0, 1, 0, 1, 0};
    c.set_w({reinterpret_cast<const std::byte*>(w), reinterpret_cast<const std::byte*>(w + 6)});
    c.args.model_leaves = 4;
    c.set_x({0x1.fp19f, 0});
    EXPECT_FALSE(c.run(path, one));
    EXPECT_EQ(c.out.as<i64>()[1], i64{31} << 55);
    c.set_x({0x1p20f, 0});
    EXPECT_TRUE(c.run(path, one));
    c.set_x({-0x1p20f, 0});
    EXPECT_TRUE(c.run(path, one));
    for (auto [value, want] : std::map<float, i64>{{2.5f, 2},
                                                   {3.5f, 4},
                                                   {-2.5f, -2},
                                                   {-0.5f, 0},
                                                   {1.5f, 2},
                                                   {-7.25f, -7},
                                                   {0x1.000002p31f, 2147483904},
                                                   {-0x1.000002p33f, -8589935616},
                                                   {8388607.5f, 8388608},
                                                   {0x1p61f, i64{1} << 61}}) {
      c.args.exponent = 0;
      c.args.model_leaves = 1;
      c.set_x({value, 0});
      EXPECT_FALSE(c.run(path, one));
      for (int j = 0; j < 3; j++) EXPECT_EQ(c.out.as<i64>()[j], want) << path << ' ' << value;
    }
  }
}

TEST_F(Matmul, NothingToSum) {
  Case c(DType::bf16, DType::bf16, DType::i64, 3, 5, 0);
  std::memset(c.out.data, 1, 3 * 5 * 8);
  c.run({isa()}, one);
  for (i64 i = 0; i < 15; i++) EXPECT_EQ(c.out.as<i64>()[i], 0);
  Case no_rows(DType::bf16, DType::bf16, DType::f32, 0, 5, 32),
      no_columns(DType::bf16, DType::bf16, DType::f32, 2, 0, 32);
  EXPECT_FALSE(no_rows.run({isa()}, one));
  EXPECT_FALSE(no_columns.run({isa()}, one));
}

TEST_F(Matmul, DeclinesWithAReason) {
  auto why = [](const Args& a) {
    auto r = prepare_matmul(a, Isa::portable);
    return r ? std::string() : r.why();
  };
  Case odd(DType::bf16, DType::bf16, DType::i64, 2, 4, 64, {0, 33, 64});
  EXPECT_EQ(why(odd.args), "a leaf begins at 33, want a multiple of 2");
  Case cut_block(DType::bf16, DType::q8_0, DType::i64, 2, 4, 64, {0, 16, 64});
  EXPECT_EQ(why(cut_block.args), "a leaf begins at 16, want a multiple of 32");
  Case cut_large(DType::bf16, DType::q4_k, DType::i64, 2, 4, 512, {0, 128, 512});
  EXPECT_EQ(why(cut_large.args), "a leaf begins at 128, want a multiple of 256");
  Case none(DType::bf16, DType::bf16, DType::i64, 2, 4, 64);
  EXPECT_EQ(why(none.args), "an exact sum over dims without leaves");
  Case type(DType::f64, DType::bf16, DType::f32, 2, 4, 64);
  EXPECT_EQ(why(type.args), "x of f64");
  Case slice(DType::bf16, DType::bf16, DType::f32, 2, 4, 64);
  slice.args.ranges["k"] = {0, 32};
  EXPECT_EQ(why(slice.args), "w holds 0:64 of k, want 0:32");
}

TEST(Quantize, DefinitionOfABlock) {
  flush_denormals();
  std::vector<float> x(64, 0.0f);
  x[0] = -254;
  x[1] = 3;  // 1.5 -> 2
  x[2] = 5;  // 2.5 -> 2
  x[40] = std::numeric_limits<float>::infinity();
  std::int8_t q[64];
  float d[2];
  std::int32_t sum[2];
  quantize(DType::f32, x.data(), 64, q, d, sum);
  EXPECT_EQ(d[0], 2.0f);
  EXPECT_EQ(q[0], -127);
  EXPECT_EQ(q[1], 2);
  EXPECT_EQ(q[2], 2);
  EXPECT_EQ(sum[0], -123);
  EXPECT_TRUE(std::isinf(d[1]));
  for (int i = 32; i < 64; i++) EXPECT_EQ(q[i], 0);
}

}  // namespace
}  // namespace plait::kernels
