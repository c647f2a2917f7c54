// Bodies of paged attention: one block of up to 128 positions against some rows of queries, and the join of the blocks.
// The order of every sum is written in docs/numerics.md.
#pragma once
#include "plait/kernels/cpu/elementwise_rows.h"
#include "plait/kernels/cpu/functions.h"

namespace plait::kernels {

template <class V, class T>
struct AttentionRows {
  using F = typename V::F;
  static constexpr bool kBf16 = std::is_same_v<T, bf16>;
  using Scores = float[kAttentionRows][kAttentionBlock];

  /// scores[r][16 p ...] = scale * dot(query r, key p) for R rows and P panels.
  template <int R, int P>
  static void score(const AttentionBlock& b, i64 row, i64 panel, Scores& scores) {
    const T *key[P], *query[R];
    F acc[R][P];
    for (int p = 0; p < P; p++) key[p] = static_cast<const T*>(b.keys[panel + p]);
    for (int r = 0; r < R; r++) {
      query[r] = static_cast<const T*>(b.queries[row + r]);
      for (int p = 0; p < P; p++) acc[r][p] = V::zero();
    }
    if constexpr (kBf16) {
      for (i64 i = 0; i + 2 <= b.h; i += 2) {
        typename V::Pairs k[P];
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) k[p] = V::load_pairs(key[p] + 16 * i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          auto q = V::set_pair(query[r] + i);
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) acc[r][p] = V::dot2(acc[r][p], q, k[p]);
        }
      }
      if (b.h % 2 != 0)
        for (int r = 0; r < R; r++) {
          const bf16 last[2] = {query[r][b.h - 1], bf16()};
          auto q = V::set_pair(last);
          for (int p = 0; p < P; p++) acc[r][p] = V::dot2(acc[r][p], q, V::load_pairs(key[p] + 16 * (b.h - 1)));
        }
    } else {
      for (i64 i = 0; i < b.h; i++) {
        F k[P];
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) k[p] = V::load(key[p] + 16 * i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          F q = V::set(query[r][i]);
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) acc[r][p] = V::fma(q, k[p], acc[r][p]);
        }
      }
    }
    F scale = V::set(b.scale);
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) V::store(&scores[row + r][16 * (panel + p)], V::mul(acc[r][p], scale));
  }

  /// Scores of a row -> exp(score - max), zero where the row does not attend; max and sum go behind its o.
  static void softmax(const AttentionBlock& b, i64 row, float* s) {
    Range used = b.used[row];
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    F top = V::set(kNone), sum = V::zero();
    i64 from = used.begin / 16, to = ceil_div(used.end, i64{16});
    for (i64 p = from; p < to; p++) {
      F x = V::load(s + 16 * p);
      if (used.begin > 16 * p) x = V::fill_until(x, used.begin - 16 * p, kNone);
      if (used.end < 16 * p + 16) x = V::fill_from(x, used.end - 16 * p, kNone);
      V::store(s + 16 * p, x);
      top = V::max(top, x);
    }
    float m = V::largest(top);
    for (i64 p = 0; p < b.panels; p++) {
      if (p < from || p >= to) {
        V::store(s + 16 * p, V::zero());
        continue;
      }
      F e = exp<V>(V::sub(V::load(s + 16 * p), V::set(m)));
      V::store(s + 16 * p, e);
      sum = V::add(sum, e);
    }
    b.o[row][b.width] = m;
    b.o[row][b.width + 1] = V::sum(sum);
  }

  /// o[r][at ... at + 16 C) = sum of probability * value over ascending positions; `tail` elements of the last vector.
  template <int R, int C, bool Tail>
  static void weigh(const AttentionBlock& b, i64 row, i64 at, i64 tail, const Scores& scores) {
    F acc[R][C];
    const float* weight[R];
    Range positions = b.used[row];
    for (int r = 0; r < R; r++) {
      weight[r] = scores[row + r];
      positions = {std::min(positions.begin, b.used[row + r].begin), std::max(positions.end, b.used[row + r].end)};
      for (int c = 0; c < C; c++) acc[r][c] = V::zero();
    }
    for (i64 s = positions.begin; s < positions.end; s++) {
      const T* value = static_cast<const T*>(b.values[s]) + at;
      F v[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; c++) {
        if constexpr (Tail)
          v[c] = V::load(value + 16 * c, tail);
        else
          v[c] = V::load(value + 16 * c);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        F w = V::set(weight[r][s]);
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) acc[r][c] = V::fma(w, v[c], acc[r][c]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) V::store(b.o[row + r] + at + 16 * c, acc[r][c]);
  }

  template <int R>
  static void score_rows(const AttentionBlock& b, i64 row, Scores& scores) {
    i64 p = b.positions.begin / 16, end = ceil_div(b.positions.end, i64{16});
    for (; p + V::kPanelTile <= end; p += V::kPanelTile) score<R, static_cast<int>(V::kPanelTile)>(b, row, p, scores);
    for (; p < end; p++) score<R, 1>(b, row, p, scores);
  }
  template <int R>
  static void weigh_rows(const AttentionBlock& b, i64 row, const Scores& scores) {
    constexpr int C = static_cast<int>(V::kPanelTile);
    i64 at = 0;
    for (; at + 16 * C <= b.h; at += 16 * C) weigh<R, C, false>(b, row, at, 16, scores);
    for (; at + 16 <= b.h; at += 16) weigh<R, 1, false>(b, row, at, 16, scores);
    if (at < b.h) weigh<R, 1, true>(b, row, at, b.h - at, scores);
  }
  /// f.template operator()<R>(row) over all rows, R as large as registers allow.
  template <int R, class Fn>
  static void rows(const AttentionBlock& b, i64 row, Fn&& f) {
    if constexpr (R > 0) {
      for (; row + R <= b.rows; row += R) f(std::integral_constant<int, R>{}, row);
      rows<R - 1>(b, row, f);
    }
  }

  static void block(const AttentionBlock& b) {
    alignas(64) Scores scores;
    constexpr int R = static_cast<int>(V::kRowTile);
    rows<R>(b, 0, [&](auto r, i64 row) { score_rows<r.value>(b, row, scores); });
    for (i64 row = 0; row < b.rows; row++) softmax(b, row, scores[row]);
    rows<R>(b, 0, [&](auto r, i64 row) { weigh_rows<r.value>(b, row, scores); });
  }

  static bool join(const float* partials, i64 blocks, i64 step, i64 width, i64 h, float limit, void* out) {
    alignas(64) i64 o[kAttentionHead] = {}, l[16] = {};
    alignas(64) float maxima[16], sums[16], weights[16];
    float m = partials[width];
    for (i64 b = 1; b < blocks; b++) m = std::max(m, partials[b * step + width]);
    F one = V::set(0x1p40f);
    bool fits = true;
    for (i64 first = 0; first < blocks; first += 16) {
      i64 count = std::min<i64>(16, blocks - first);
      for (i64 b = 0; b < 16; b++) {
        const float* p = partials + (first + std::min(b, count - 1)) * step + width;
        maxima[b] = p[0];
        sums[b] = b < count ? p[1] : 0;
      }
      F w = exp<V>(V::sub(V::load(maxima), V::set(m))), x = V::mul(V::load(sums), w);
      fits &= V::all_below(x, limit);
      V::add_fixed(l, V::mul(x, one));
      V::store(weights, w);
      for (i64 b = 0; b < count; b++) {
        const float* p = partials + (first + b) * step;
        w = V::set(weights[b]);
        for (i64 i = 0; i < width; i += 16) {
          x = V::mul(V::load(p + i), w);
          fits &= V::all_below(x, limit);
          V::add_fixed(o + i, V::mul(x, one));
        }
      }
    }
    u64 total = 0;
    for (i64 x : l) total += static_cast<u64>(x);
    F back = V::set(0x1p-40f), sum = V::set(static_cast<float>(static_cast<i64>(total)) * 0x1p-40f);
    sixteens(h, [&](i64 i, auto whole, i64 k) {
      F y = V::div(V::mul(V::load(o + i), back), sum);
      ElementwiseRows<V>::store(static_cast<T*>(out), i, y, whole, k);
    });
    return fits;
  }
};

}  // namespace plait::kernels
