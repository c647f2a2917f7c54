// kv_write and attention_paged together: caches are filled by the former.
#include <algorithm>
#include <cmath>

#include "plait/kernels/cpu/pages.h"
#include "plait/kernels/cpu/test_support.h"
#include "plait/kernels/reference/math.h"

namespace plait::kernels {
namespace {

using test::at;
using Attention = test::Kernels;

Tensor paged(DType t, Box box) {
  Tensor x(t, box, Layout::pages);
  x.buffer = Buffer(pages_bytes(t, box[0].size(), box[1].size(), box[2].size()));
  x.data = x.buffer.data();
  return x;
}

/// Some sequences in a cache whose pages are shuffled, and queries anywhere in them.
struct Case {
  DType type = DType::f32;
  i64 h = 64, group = 3;
  Range heads{0, 9}, kv{0, 3};                 // of the queries, of the cache
  std::vector<i64> lengths = {300, 40};        // positions in the cache of each sequence
  std::vector<std::pair<i64, i64>> queries{};  // (sequence, position); -1 is padding
  i64 page = 16, window = 0;
  DType out_type = DType::f32;

  Tensor q, key_rows, value_rows, keys, values, keys_in_rows, out, position, sequence, table;
  Args args, reference_args;

  void build() {
    auto tokens = static_cast<i64>(queries.size()), sequences = static_cast<i64>(lengths.size());
    i64 total = 0, pages = 0;
    for (i64 n : lengths) {
      total += n;
      pages = std::max(pages, ceil_div(n, page) + 1);
    }
    Range slots{64, 64 + sequences * pages * page}, t{10, 10 + tokens};
    Range held{kv.begin, kv.end + 1};  // more than is needed
    q = test::random_tensor(type, {t, heads, {0, h}}, 1);
    key_rows = test::random_tensor(type, {{0, total}, held, {0, h}}, 2);
    value_rows = test::random_tensor(type, {{0, total}, held, {0, h}}, 3);
    keys = paged(type, {slots, held, {0, h}});
    values = Tensor(type, {slots, held, {0, h}});
    keys_in_rows = Tensor(type, {slots, held, {0, h}});
    out = Tensor(out_type, {t, heads, {0, h}});
    table = Tensor(DType::i32, {{0, sequences}, {0, pages}});
    std::memset(keys.data, 0xff, static_cast<size_t>(keys.buffer.bytes()));  // NaN where nothing was written
    std::memset(values.data, 0xff, static_cast<size_t>(values.buffer.bytes()));
    for (i64 i = 0; i < sequences * pages; i++)  // a permutation
      table.as<std::int32_t>()[i] = static_cast<std::int32_t>(64 / page + (i * 7 + 3) % (sequences * pages));
    std::vector<i64> slot, p, s;
    for (i64 b = 0; b < sequences; b++)
      for (i64 x = 0; x < lengths[static_cast<size_t>(b)]; x++)
        slot.push_back(table.as<std::int32_t>()[b * pages + x / page] * page + x % page);
    for (auto [b, x] : queries) {
      s.push_back(b);
      p.push_back(x);
    }
    position = test::indices(t, p);
    sequence = test::indices(t, s);
    Tensor where = test::indices({0, total}, slot);
    for (auto [rows, cache] : {std::pair(&key_rows, &keys), {&value_rows, &values}, {&key_rows, &keys_in_rows}}) {
      Args a = test::args_of("kv_write", "c k h, t k h, t -> c k h", {*cache, *rows, where}, {*cache});
      Run run = test::prepared(prepare_kv_write, a, isa());
      Team team(2);
      Context c{team};
      run(c);
    }
    for (bool reference : {false, true}) {
      Args& a = reference ? reference_args : args;
      a = test::args_of("attention_paged", "t kg h, c k h, c k h, t, t, b p -> t kg h",
                        {q, reference ? keys_in_rows : keys, values, position, sequence, table}, {out});
      a.group = group;
      a.attrs.insert({{"scale", 1 / std::sqrt(static_cast<double>(h))}, {"page", static_cast<double>(page)}});
      if (window > 0) a.attrs["window"] = static_cast<double>(window);
    }
  }

  /// In f64 from the rows that were written.
  void expect_close(double tolerance) const {
    std::vector<i64> first{0};
    for (i64 n : lengths) first.push_back(first.back() + n);
    Box rows{out.box[0], out.box[1]};
    std::vector<double> weight, query(static_cast<size_t>(h));
    for_each(rows, [&](const std::vector<i64>& i) {
      auto [b, last] = queries[static_cast<size_t>(i[0] - 10)];
      i64 got = out.at({i[0], i[1], 0}), k = i[1] / group;
      if (b < 0 || last < 0) {
        for (i64 x = 0; x < h; x++) EXPECT_EQ(at(out, got + x), 0);
        return;
      }
      i64 begin = window > 0 ? std::max<i64>(0, last - window + 1) : 0, row = first[static_cast<size_t>(b)];
      for (i64 x = 0; x < h; x++) query[static_cast<size_t>(x)] = at(q, q.at({i[0], i[1], x}));
      double sum = 0;
      weight.clear();
      for (i64 s = begin; s <= last; s++) {
        i64 key = key_rows.at({row + s, k, 0});
        double dot = 0;
        for (i64 x = 0; x < h; x++) dot += query[static_cast<size_t>(x)] * static_cast<double>(at(key_rows, key + x));
        weight.push_back(std::exp(dot / std::sqrt(static_cast<double>(h))));
        sum += weight.back();
      }
      for (i64 x = 0; x < h; x++) {
        double value = 0;
        for (i64 s = begin; s <= last; s++)
          value += weight[static_cast<size_t>(s - begin)] * at(value_rows, value_rows.at({row + s, k, 0}) + x);
        double y = at(out, got + x);
        EXPECT_NEAR(y, value / sum, tolerance + (out_type == DType::bf16 ? std::fabs(y) / 200 : 0))
            << i[0] << " " << i[1];
      }
    });
  }

  void expect_same_everywhere() {
    auto want = test::bytes_after(test::prepared(prepare_attention_paged, args, Isa::portable), args);
    for (Isa isa : test::all_isas())
      for (i64 threads : {1, 2, 3})
        EXPECT_TRUE(test::bytes_after(test::prepared(prepare_attention_paged, args, isa), args, threads) == want)
            << name_of(isa) << " " << threads << " threads, H " << h;
    auto run = reference_kernels("attention_paged", DType::f32)[0].prepare(reference_args);
    ASSERT_TRUE(run) << run.why();
    EXPECT_TRUE(test::bytes_after(*run, reference_args) == want) << "the reference differs";
  }
};

std::vector<std::pair<i64, i64>> prefill(i64 sequence, i64 begin, i64 end) {
  std::vector<std::pair<i64, i64>> q;
  for (i64 p = begin; p < end; p++) q.push_back({sequence, p});
  return q;
}

TEST_F(Attention, CacheRowsComeBack) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 h : {1, 5, 8, 64})
      for (Layout layout : {Layout::rows, Layout::pages}) {
        Tensor cache =
            layout == Layout::pages ? paged(t, {{32, 80}, {2, 5}, {0, h}}) : Tensor(t, {{32, 80}, {2, 5}, {0, h}});
        Tensor x = test::random_tensor(t, {{0, 4}, {1, 5}, {0, h}}, 1), slot = test::indices({0, 4}, {33, -1, 79, 48});
        Args a = test::args_of("kv_write", "c k h, t k h, t -> c k h", {cache, x, slot}, {cache});
        a.ranges["k"] = {3, 5};
        Team team(1);
        Context c{team};
        test::prepared(prepare_kv_write, a, isa())(c);
        std::vector<float> row(static_cast<size_t>(h));
        for (auto [s, token] : {std::pair<i64, i64>{33, 0}, {79, 2}, {48, 3}, {34, -1}, {32, -1}})
          for (i64 k = 2; k < 5; k++) {
            read_cache_row(cache, s, k, row.data());
            for (i64 i = 0; i < h; i++)
              EXPECT_EQ(row[static_cast<size_t>(i)], token < 0 || k == 2 ? 0 : at(x, x.at({token, k, i})));
          }
      }
}

TEST_F(Attention, DecodeIsCloseAndTheSameEverywhere) {
  for (DType t : {DType::f32, DType::bf16})
    for (i64 h : {8, 64, 67}) {
      Case c{.type = t, .h = h, .queries = {{0, 299}, {1, 39}, {0, 0}, {1, 16}, {0, 127}, {0, 128}}};
      c.build();
      c.expect_same_everywhere();
      c.expect_close(1e-6);
    }
}

TEST_F(Attention, PrefillIsCloseAndTheSameEverywhere) {
  for (DType t : {DType::f32, DType::bf16}) {
    Case c{.type = t, .h = 24, .lengths = {50, 270}, .out_type = t};
    c.queries = prefill(0, 30, 50);
    for (auto q : prefill(1, 100, 200)) c.queries.push_back(q);
    c.build();
    c.expect_same_everywhere();
    c.expect_close(1e-6);
  }
}

TEST_F(Attention, HeadsMayBeginInsideAGroup) {
  for (DType t : {DType::f32, DType::bf16}) {
    Case c{.type = t,
           .h = 16,
           .group = 4,
           .heads = {6, 13},
           .kv = {1, 4},
           .lengths = {140},
           .queries = prefill(0, 120, 140)};
    c.build();
    c.expect_same_everywhere();
    c.expect_close(1e-6);
  }
}

TEST_F(Attention, OneHeadInAGroupAndLargePages) {
  Case c{.type = DType::bf16, .h = 32, .group = 1, .heads = {1, 4}, .kv = {1, 4}, .lengths = {200, 65}, .page = 32};
  c.queries = {{0, 199}, {1, 64}, {1, 3}};
  c.build();
  c.expect_same_everywhere();
  c.expect_close(1e-6);
}

TEST_F(Attention, WindowAndPadding) {
  for (DType t : {DType::f32, DType::bf16}) {
    Case c{.type = t, .h = 16, .queries = {{0, 299}, {-1, 4}, {1, 39}, {1, -1}, {0, 10}}, .window = 40};
    for (auto q : prefill(0, 150, 200)) c.queries.push_back(q);
    c.build();
    c.expect_same_everywhere();
    c.expect_close(1e-6);
  }
}

TEST_F(Attention, ARowIsTheSameAlone) {
  for (DType t : {DType::f32, DType::bf16}) {
    Case c{.type = t, .lengths = {512}, .queries = prefill(0, 0, 512), .out_type = t};
    c.build();
    auto all = test::bytes_after(test::prepared(prepare_attention_paged, c.args, isa()), c.args, 2);
    auto row = all.size() / 512;
    for (i64 p : {0, 1, 127, 128, 200, 511}) {
      Args a = c.args;
      a.ranges["t"] = {10 + p, 11 + p};
      auto alone = test::bytes_after(test::prepared(prepare_attention_paged, a, isa()), a);
      auto from = row * static_cast<size_t>(p);
      EXPECT_EQ(std::memcmp(&alone[from], &all[from], row), 0) << p;
    }
    for (Range heads : {Range{0, 4}, Range{4, 5}, Range{5, 9}}) {  // cuts inside a group
      Args a = c.args;
      a.ranges["kg"] = heads;
      a.ranges["t"] = {510, 522};
      auto part = test::bytes_after(test::prepared(prepare_attention_paged, a, isa()), a);
      auto head = row / 9, n = static_cast<size_t>(heads.size());
      for (size_t p = 500; p < 512; p++) {
        auto from = row * p + head * static_cast<size_t>(heads.begin);
        EXPECT_EQ(std::memcmp(&part[from], &all[from], head * n), 0);
      }
    }
  }
}

TEST_F(Attention, FlagsWhatIsNotFinite) {
  for (float bad : {INFINITY, NAN, 3e38f, 1e-3f}) {
    Case c{.h = 16, .lengths = {150}, .queries = {{0, 149}}};
    c.build();
    Team team(1);
    for (Isa isa : test::all_isas()) {
      c.values.as<float>()[c.values.at({c.table.as<std::int32_t>()[0] * 16, 1, 3})] = bad;
      Context x{team};
      test::prepared(prepare_attention_paged, c.args, isa)(x);
      EXPECT_EQ(x.overflow, bad != 1e-3f) << name_of(isa) << " " << bad;
    }
  }
}

}  // namespace
}  // namespace plait::kernels
