// matmul as the reference computes it, 64 results at a time: both operands are packed in the order of the chain, then
// each step of the chain is one fma for 4 rows and 16 columns. Same order for every result, so the same bits.
#include <atomic>

#include "plait/kernels/reference/chain.h"

namespace plait::kernels::reference {

namespace {

constexpr i64 kRows = 4, kColumns = 16;
constexpr i64 kPacked = i64{1} << 20;  // elements of x packed at a time: what stays in a cache

/// Offsets of the rows (or columns) of a product in its operand and in the output.
struct Side {
  std::vector<i64> operand, out;
  i64 size() const { return static_cast<i64>(operand.size()); }
};

bool has(const Term& t, const std::string& group) { return std::find(t.begin(), t.end(), group) != t.end(); }

Side side_of(const Args& a, size_t operand, const std::vector<std::string>& groups) {
  Loop loop(a, groups);
  loop.walk(a, a.in[operand], a.in_terms[operand]);
  loop.walk(a, a.out[0], a.out_terms[0]);
  Side s;
  loop.each([&](const i64* at) {
    s.operand.push_back(at[0]);
    s.out.push_back(at[1]);
  });
  return s;
}

template <class R>
struct Tiles {
  Side rows, columns;
  Chain chain;
  Numbers<R> x, y, out;
  Sums<R> sums;
  bool exact = false;

  i64 row_tiles() const { return ceil_div(rows.size(), kRows); }
  i64 column_tiles() const { return ceil_div(columns.size(), kColumns); }
  /// Row tiles that are packed at a time.
  i64 tiles_at_once() const {
    return std::min(row_tiles(), std::max<i64>(1, kPacked / (kRows * std::max<i64>(chain.size(), 1))));
  }

  void pack_rows(i64 tile, R* to) const {
    for (i64 r = 0; r < kRows; r++) {
      const i64 row = tile * kRows + r;
      const i64 at = row < rows.size() ? rows.operand[static_cast<size_t>(row)] : 0;
      for (i64 j = 0; j < chain.size(); j++)
        to[j * kRows + r] = row < rows.size() ? x[at + chain.x[static_cast<size_t>(j)]] : R(0);
    }
  }
  void pack_columns(i64 tile, R* to) const {
    for (i64 k = 0; k < kColumns; k++) {
      const i64 column = tile * kColumns + k;
      const i64 at = column < columns.size() ? columns.operand[static_cast<size_t>(column)] : 0;
      for (i64 j = 0; j < chain.size(); j++)
        to[j * kColumns + k] = column < columns.size() ? y[at + chain.y[static_cast<size_t>(j)]] : R(0);
    }
  }
  void tile(i64 row_tile, i64 column_tile, const R* px, const R* py, bool& overflow) const {
    const i64 n = chain.size();
    R acc[kRows][kColumns];
    for (i64 begin = 0, end = 0; begin < n || n == 0; begin = end) {
      while (end < n && (!exact || chain.last[static_cast<size_t>(end)] == 0)) end++;
      if (exact && n > 0) end++;
      for (auto& row : acc)
        for (R& v : row) v = 0;
      for (i64 j = begin; j < end; j++)
        for (i64 r = 0; r < kRows; r++)
          for (i64 k = 0; k < kColumns; k++) acc[r][k] = std::fma(px[j * kRows + r], py[j * kColumns + k], acc[r][k]);
      for (i64 r = 0; r < std::min(kRows, rows.size() - row_tile * kRows); r++)
        for (i64 k = 0; k < std::min(kColumns, columns.size() - column_tile * kColumns); k++) {
          const i64 at = rows.out[static_cast<size_t>(row_tile * kRows + r)] +
                         columns.out[static_cast<size_t>(column_tile * kColumns + k)];
          if (exact)
            sums.add(at, acc[r][k], overflow);
          else
            out.set(at, acc[r][k]);
        }
      if (n == 0) return;
    }
  }

  void run(Context& c) const {
    if (exact) sums.zero();
    if (exact && chain.size() == 0) return;
    const i64 at_once = tiles_at_once(), threads = c.team.size(), n = std::max<i64>(chain.size(), 1);
    auto* px =
        reinterpret_cast<R*>(c.scratch((at_once * kRows + threads * kColumns) * n * static_cast<i64>(sizeof(R))));
    R* py = px + at_once * kRows * n;
    std::atomic<bool> overflow{false};
    for (i64 first = 0; first < row_tiles(); first += at_once) {
      const i64 count = std::min(at_once, row_tiles() - first);
      c.team.split(count, 1, [&](Range part) {
        for (i64 t = part.begin; t < part.end; t++) pack_rows(first + t, px + t * kRows * n);
      });
      c.team.run([&](i64 thread, i64 of) {
        bool flag = false;
        R* mine = py + thread * kColumns * n;
        for (i64 k = thread; k < column_tiles(); k += of) {
          pack_columns(k, mine);
          auto all = [&](const Tiles& t) {
            for (i64 i = 0; i < count; i++) t.tile(first + i, k, px + i * kRows * n, mine, flag);
          };
          call_fast(all, *this);
        }
        if (flag) overflow.store(true, std::memory_order_relaxed);
      });
    }
    if (overflow) c.overflow = true;
  }
};

}  // namespace

template <class R>
Result<Run> tiled_matmul(const Args& a) {
  if (auto why = declined<R>(a); !why.empty()) return Result<Run>::no(why);
  std::vector<std::string> row_groups, column_groups;
  for (auto& group : a.out_terms[0]) {
    const bool in_x = has(a.in_terms[0], group), in_y = has(a.in_terms[1], group);
    if (in_x == in_y) return Result<Run>::no(fmt::format("matmul: {} is no factor of one operand alone", group));
    (in_x ? row_groups : column_groups).push_back(group);
  }
  Tiles<R> t;
  t.exact = a.out[0].dtype == Sums<R>::kDType;
  t.chain = chain_of(a, t.exact, in_pairs(a));
  t.rows = side_of(a, 0, row_groups);
  t.columns = side_of(a, 1, column_groups);
  // Each side's base holds the begin of the output's box in its own dims.
  t.x = Numbers<R>(a.in[0]);
  t.y = Numbers<R>(a.in[1]);
  t.out = Numbers<R>(a.out[0]);
  t.sums = Sums<R>(a.out[0], a.exponent, a.model_leaves);
  return Run([t = std::move(t)](Context& c) { t.run(c); });
}
template Result<Run> tiled_matmul<float>(const Args& a);
template Result<Run> tiled_matmul<double>(const Args& a);

}  // namespace plait::kernels::reference
