// Register tiles of a product, for any vector type V (matmul_vector512.h, matmul_vector256.h).
//
// A tile is kR rows by kP panels, its accumulators live in registers while k runs. Three sources of weights:
//   Floats   f32 panels, or bf16 panels unpacked to f32
//   Pairs    bf16 panels as they lie, two FMAs a pair
//   Blocks   panels of quantized types, integer dot products (matmul_blocks.h, matmul_k_blocks.h)
// Without leaves a tile continues the chain that it finds in c (f32) unless it is the first; with leaves it adds each
// leaf to the exact sums in c (i64). See matmul_job.h for what may be included.
#pragma once
#include "plait/kernels/cpu/matmul_job.h"

namespace plait::kernels {
namespace {

using Size = std::int64_t;

// In a product of many rows: one line is fetched every so many k, so that fetching never fills the line buffers.
constexpr int kFetchEvery = 4;
constexpr Size kMostLines = 128;

struct Tile {
  const unsigned char* x;  // first row
  const unsigned char* w;  // first panel
  unsigned char* c;
  Size x_stride, w_stride, c_stride;  // bytes: row to row, panel to panel, row to row
  const Size* edges;                  // `leaves` + 1 edges in k (at least two); x and w stand at edges[0]
  Size leaves;                        // chains: 1
  Size k;                             // of the whole weight
  bool first;
  float scale;
  // Weights to fetch while this tile reads its own: with every line of a panel `fetch_panels` others, fetch_stride
  // bytes apart; `fetch_step` bytes on for every byte of the panel. Beyond fetch_end bytes they lie fetch_jump bytes
  // away.
  const unsigned char* fetch;
  Size fetch_step, fetch_stride, fetch_end, fetch_jump;
  int fetch_panels;
  int lines;                                  // Floats: what else to fetch for later tiles
  const unsigned char* line[kMostLines + 1];  // one more, which is read and fetched when all are done
};

// One of the lines of the result that later tiles need.
PLAIT_INLINE void fetch_line(const Tile& t, int& line) {
  _mm_prefetch(t.line[line], _MM_HINT_T0);
  line += line != t.lines;
}

// What goes with byte `at` of a panel, and the lines of it. To one panel alone they are near: into the first-level
// cache.
template <int kP>
PLAIT_INLINE const unsigned char* fetch_from(const Tile& t, Size at) {
  return t.fetch + (kP == 1 ? at : at * t.fetch_step) + (at < t.fetch_end ? 0 : t.fetch_jump);
}
template <int kP>
PLAIT_INLINE void fetch_lines(const Tile& t, const unsigned char* from) {
  if constexpr (kP == 1) {
    if (t.fetch_panels > 0) _mm_prefetch(from, _MM_HINT_T0);
  } else
    for (int j = 0; j < t.fetch_panels; j++) _mm_prefetch(from + j * t.fetch_stride, _MM_HINT_T1);
}

template <class V, int kR, int kP>
struct Floats {
  static constexpr int kV = kP * V::kParts;
  using F = typename V::F;
  PLAIT_INLINE void add_one(const unsigned char* w_at, Size w_stride, const unsigned char* x_at, Size x_stride,
                            F (&acc)[kR][kV]) {
    F w[kV];
#pragma GCC unroll 8
    for (int j = 0; j < kV; j++) w[j] = V::load(w_at + j / V::kParts * w_stride + j % V::kParts * 32);
#pragma GCC unroll 8
    for (int m = 0; m < kR; m++) {
      F x = V::broadcast(reinterpret_cast<const float*>(x_at + m * x_stride));
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) acc[m][j] = V::fma(w[j], x, acc[m][j]);
    }
  }
  PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
    const Size w_stride = t.w_stride, x_stride = t.x_stride;
    const unsigned char *w = t.w + begin * 64, *x = t.x + begin * 4;
    const unsigned char* const* next = t.line + line;
    const unsigned char* const* const last = t.line + t.lines;
    const unsigned char* const stop = t.w + (begin + (end - begin) / kFetchEvery * kFetchEvery) * 64;
    for (; w != stop; w += kFetchEvery * 64, x += kFetchEvery * 4) {
      _mm_prefetch(*next, _MM_HINT_T0);
      next += next != last;
#pragma GCC unroll 4
      for (int i = 0; i < kFetchEvery; i++) add_one(w + i * 64, w_stride, x + i * 4, x_stride, acc);
    }
    line = static_cast<int>(next - t.line);
    for (const unsigned char* const w_end = t.w + end * 64; w != w_end; w += 64, x += 4)
      add_one(w, w_stride, x, x_stride, acc);
  }
};

/// The same for few rows: weights come from memory, panel by panel.
template <class V, int kR, int kP>
struct FloatsOnce {
  static constexpr int kV = kP * V::kParts;
  using F = typename V::F;
  PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
    for (Size k = begin; k < end; k++) {
      fetch_line(t, line);
      fetch_lines<kP>(t, fetch_from<kP>(t, k * 64));
      Floats<V, kR, kP>::add_one(t.w + k * 64, t.w_stride, t.x + k * 4, t.x_stride, acc);
    }
  }
};

template <class V, int kR, int kP>
struct Pairs {
  static constexpr int kV = kP * V::kParts;
  using F = typename V::F;
  PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
    for (Size k = begin; k < end; k += 2) {  // with odd k the last partner is zero on both sides
      const unsigned char* p = t.w + k * 32;
      fetch_line(t, line);
      F w[kV];
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) w[j] = V::odd(p + j / V::kParts * t.w_stride + j % V::kParts * 32);
      fetch_lines<kP>(t, fetch_from<kP>(t, k * 32));
#pragma GCC unroll 8
      for (int m = 0; m < kR; m++) {
        F x = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride) + k);
#pragma GCC unroll 8
        for (int j = 0; j < kV; j++) acc[m][j] = V::fma(w[j], x, acc[m][j]);
      }
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) w[j] = V::even(p + j / V::kParts * t.w_stride + j % V::kParts * 32);
#pragma GCC unroll 8
      for (int m = 0; m < kR; m++) {
        F x = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride) + k + 1);
#pragma GCC unroll 8
        for (int j = 0; j < kV; j++) acc[m][j] = V::fma(w[j], x, acc[m][j]);
      }
    }
  }
};

template <class V, class Source, int kR, int kP, bool kLeaves>
__attribute__((noinline)) void tile(const Tile& t, typename V::I& largest) {
  constexpr int kV = kP * V::kParts;
  constexpr int kStep = 64 / V::kParts;  // bytes of a vector
  typename V::F acc[kR][kV];
  int line = 0;
  if constexpr (!kLeaves) {
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++)
#pragma GCC unroll 24
      for (int j = 0; j < kV; j++) acc[m][j] = t.first ? V::zero() : V::load(t.c + m * t.c_stride + j * kStep);
    Source::add(t, 0, t.edges[1] - t.edges[0], line, acc);
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++)
#pragma GCC unroll 24
      for (int j = 0; j < kV; j++) V::store(t.c + m * t.c_stride + j * kStep, acc[m][j]);
    return;
  }
  // Sums of this tile: in one piece, since rows of c may lie a multiple of 4096 bytes apart.
  alignas(64) Size sum[kR][kP * 16];
#pragma GCC unroll 1
  for (int i = 0; i < kR * kV * 2; i++) V::clear_sum(&sum[0][0] + i * (kStep / 8));
  for (Size leaf = 0; leaf < t.leaves; leaf++) {
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++)
#pragma GCC unroll 24
      for (int j = 0; j < kV; j++) acc[m][j] = V::zero();
    Source::add(t, t.edges[leaf] - t.edges[0], t.edges[leaf + 1] - t.edges[0], line, acc);
    // What only the end of a leaf needs is made here, behind a barrier: accumulators and weights fill the registers.
    float scale_once = t.scale;
    std::int32_t magnitude_once = 0x7fffffff;
    asm volatile("" : "+m"(scale_once), "+r"(magnitude_once) : : "memory");
    const typename V::F scale = V::value(scale_once);
    const typename V::I magnitude = V::splat(magnitude_once);
    typename V::I most = largest;
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++)
#pragma GCC unroll 24
      for (int j = 0; j < kV; j++) V::add_leaf(acc[m][j], scale, magnitude, &sum[m][j * kStep / 4], most);
    largest = most;
  }
#pragma GCC unroll 1
  for (int m = 0; m < kR; m++)
#pragma GCC unroll 24
    for (int j = 0; j < kV * 2; j++) V::add_sum(t.c + m * t.c_stride + j * kStep, &sum[m][j * kStep / 8], t.first);
}

template <class V>
using TileFn = void (*)(const Tile&, typename V::I&);

/// Tiles of these numbers of rows.
template <class V, template <class, int, int> class Source, int kP, bool kLeaves, int... kRows>
constexpr TileFn<V> kTiles[] = {tile<V, Source<V, kRows, kP>, kRows, kP, kLeaves>...};

/// Everything the loops need to know of a source: see matmul_loops.h.
template <class V>
struct Method {
  const TileFn<V>* tiles[2][2];     // [one panel | many][chain | leaves], of least_rows ... rows rows
  Size panels, least_rows, rows;    // of a tile
  Size w_bytes_of_k, x_bytes_of_k;  // to step to another k in a panel and in a row of x; 0: cannot
  Size x_row_bytes;                 // of a prepared row of x, 0: used in place
  void (*prepare)(const MatmulJob&, const unsigned char* x, Size k, unsigned char* out);
  bool listed;  // tiles fetch what is listed in `line`
  bool unpack;  // bf16 panels are unpacked to f32 once for all rows
};

}  // namespace
}  // namespace plait::kernels
