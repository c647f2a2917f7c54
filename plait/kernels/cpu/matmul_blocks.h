// Tiles of products with quantized weights in blocks of 32, and what they share with blocks of 256
// (matmul_k_blocks.h): an integer dot product for each sub-block, then one f32 fma with the product of the two scales
// (types with a minimum: a second one), sub-blocks ascending. A prepared row of x is k int8, then k / 32 scales, then
// for each sub-block a word: where the integer sum starts (minus the offset of the unsigned weights times the sum of
// x), or with minima the scaled sum as f32.
#pragma once
#include "plait/kernels/cpu/matmul_tiles.h"

namespace plait::kernels {
namespace {

// block: elements of a block, sub: of a sub-block; words: vectors of 64 bytes in a panel after scales and minima;
// offset: of the weights as unsigned numbers; high: the first of the words holds fifth bits.
template <int block, int sub, int words, bool minima, int offset, bool high = false>
struct BlockTraits {
  static constexpr int kBlock = block, kSub = sub, kWords = words, kOffset = offset;
  static constexpr bool kMinima = minima, kHigh = high;
  static constexpr int kSubs = block / sub;
};
template <MatmulJob::Type>
struct BlockType;
template <>
struct BlockType<MatmulJob::kQ4_0> : BlockTraits<32, 32, 4, false, 8> {};
template <>
struct BlockType<MatmulJob::kQ4_1> : BlockTraits<32, 32, 4, true, 0> {};
template <>
struct BlockType<MatmulJob::kQ5_0> : BlockTraits<32, 32, 5, false, 16, true> {};
template <>
struct BlockType<MatmulJob::kQ5_1> : BlockTraits<32, 32, 5, true, 0, true> {};
template <>
struct BlockType<MatmulJob::kQ8_0> : BlockTraits<32, 32, 8, false, 128> {};

template <class T>
constexpr Size block_row_bytes(Size k) {
  return k + k / 32 * 4 + k / T::kSub * 4;
}

// As panel_block in kernels/panels.h.
struct BlockPlace {
  Size scales, minima, words;
};
template <class T>
PLAIT_INLINE BlockPlace block_place(Size k, Size b) {
  constexpr Size kBytes = T::kWords * 64;
  if constexpr (T::kMinima) return {b * (kBytes + 64), b * (kBytes + 64) + 32, b * (kBytes + 64) + 64};
  const Size in_pair = b & 1, pair = b - in_pair, begin = pair * (kBytes + 32);
  return {begin + in_pair * 32, 0, begin + (pair + 1 < k / T::kBlock ? 64 : 32) + in_pair * kBytes};
}

// What a tile of blocks is made of.
template <class T, class V, int kR, int kP>
struct BlockTile {
  static constexpr int kV = kP * V::kParts;
  using F = typename V::F;
  using I = typename V::I;

  PLAIT_INLINE const unsigned char* panel(const Tile& t, int j) { return t.w + j / V::kParts * t.w_stride; }

  /// sum += the products of 4 k.
  template <bool kEight>
  PLAIT_INLINE void dot(const Tile& t, Size group, const I (&w)[kV], I (&sum)[kR][kV]) {
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++) {
      std::int32_t four;
      __builtin_memcpy(&four, t.x + m * t.x_stride + group * 4, 4);
      const I x = V::splat(four);
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) sum[m][j] = kEight ? V::dot8(sum[m][j], w[j], x) : V::dot4(sum[m][j], w[j], x);
    }
  }

  /// Where the sums of a sub-block start.
  template <bool kZero>
  PLAIT_INLINE void start(const Tile& t, Size sub, I (&sum)[kR][kV]) {
    const Size starts = t.k + t.k / 32 * 4 + sub * 4;
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++) {
      std::int32_t first = 0;
      if (!kZero) __builtin_memcpy(&first, t.x + m * t.x_stride + starts, 4);
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) sum[m][j] = V::splat(first);
    }
  }

  /// acc = fma(sum, dx * d, acc), with minima then fma(minus, scaled sum of x, acc).
  PLAIT_INLINE void finish(const Tile& t, Size sub, const I (&sum)[kR][kV], const F (&d)[kV], F (&acc)[kR][kV]) {
    const Size scales = t.k + sub * T::kSub / 32 * 4;
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++) {
      const F dx = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride + scales));
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) acc[m][j] = V::fma(V::to_float(sum[m][j]), V::mul(dx, d[j]), acc[m][j]);
    }
  }
  PLAIT_INLINE void finish_minima(const Tile& t, Size sub, const F (&minus)[kV], F (&acc)[kR][kV]) {
    const Size starts = t.k + t.k / 32 * 4 + sub * 4;
#pragma GCC unroll 24
    for (int m = 0; m < kR; m++) {
      const F sx = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride + starts));
#pragma GCC unroll 8
      for (int j = 0; j < kV; j++) acc[m][j] = V::fma(minus[j], sx, acc[m][j]);
    }
  }

  /// Fetches `lines` lines from `from` on of what comes next; of a single stream one, since the processor fetches it
  /// well by itself (Zen 4: asking for each line costs a fifth).
  template <int lines>
  PLAIT_INLINE void fetch(const Tile& t, Size from) {
    const unsigned char* ahead = fetch_from<kP>(t, from);
    const Size next_line = 64 * t.fetch_step;
#pragma GCC unroll 16
    for (int v = 0; v < (kP == 1 ? 1 : lines); v++) fetch_lines<kP>(t, ahead + v * next_line);
  }
};

template <MatmulJob::Type kType>
struct BlocksOf {
  template <class V, int kR, int kP>
  struct Blocks {
    using T = BlockType<kType>;
    using B = BlockTile<T, V, kR, kP>;
    static constexpr int kV = B::kV;
    static constexpr bool kEight = T::kOffset == 128;
    using F = typename V::F;
    using I = typename V::I;

    PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
      // edges count from the start of x: a tile of blocks always begins at k = 0
      for (Size b = begin / 32; b < end / 32; b++) {
        fetch_line(t, line);
        const BlockPlace at = block_place<T>(t.k, b);
        I sum[kR][kV];
        B::template start<T::kMinima || (kEight && !V::kOffsetInSum)>(t, b, sum);
        // lines whose bytes belong to a block, or a little more
        B::template fetch<T::kWords + 1>(t, T::kMinima ? at.scales : at.words < 64 ? 0 : at.words - 64);
        if constexpr (kEight) {
#pragma GCC unroll 8
          for (int v = 0; v < 8; v++) {
            I w[kV];
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++) w[j] = V::load_int(B::panel(t, j) + at.words + v * 64 + j % V::kParts * 32);
            B::template dot<true>(t, b * 8 + v, w, sum);
          }
        } else {
          I fifth[kV];
          if constexpr (T::kHigh) {
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++) fifth[j] = V::load_int(B::panel(t, j) + at.words + j % V::kParts * 32);
          }
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) {
            I w, low[kV], high[kV];
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++) {
              w = V::load_int(B::panel(t, j) + at.words + (v + T::kHigh) * 64 + j % V::kParts * 32);
              low[j] = V::low_nibbles(w);
              high[j] = V::high_nibbles(w);
              if constexpr (T::kHigh) {
                low[j] = V::with_bytes_of(low[j], V::left(fifth[j], 4 - v), 16);
                high[j] = V::with_bytes_of(high[j], V::right(fifth[j], v), 16);
              }
            }
            B::template dot<false>(t, b * 8 + v, low, sum);
            B::template dot<false>(t, b * 8 + v + 4, high, sum);
          }
        }
        F d[kV];
#pragma GCC unroll 8
        for (int j = 0; j < kV; j++) d[j] = V::halves(B::panel(t, j) + at.scales + j % V::kParts * 16);
        B::finish(t, b, sum, d, acc);
        if constexpr (T::kMinima) {
#pragma GCC unroll 8
          for (int j = 0; j < kV; j++) d[j] = V::halves(B::panel(t, j) + at.minima + j % V::kParts * 16);
          B::finish_minima(t, b, d, acc);
        }
      }
    }
  };
};

template <class V, class T>
void prepare_blocks(const MatmulJob& job, const unsigned char* x, Size k, unsigned char* out) {
  auto* scales = reinterpret_cast<float*>(out + k);
  unsigned char* starts = out + k + k / 32 * 4;
  for (Size b = 0; b < k / 32; b++) {
    float block[32];
    for (int i = 0; i < 32; i += V::kLanes)
      V::store(block + i,
               job.x_type == MatmulJob::kF32 ? V::load(x + (b * 32 + i) * 4) : V::widen(x + (b * 32 + i) * 2));
    std::int32_t sum[2];
    V::quantize(block, reinterpret_cast<std::int8_t*>(out + b * 32), scales + b, sum);
    if (T::kSub == 32) sum[0] += sum[1];
    for (int i = 0; i < 32 / T::kSub; i++, starts += 4) {
      const float scaled = scales[b] * static_cast<float>(sum[i]);
      const std::int32_t first = -T::kOffset * sum[i];
      if (T::kMinima)
        __builtin_memcpy(starts, &scaled, 4);
      else
        __builtin_memcpy(starts, &first, 4);
    }
  }
}

}  // namespace
}  // namespace plait::kernels
