// Tiles of products with quantized weights: blocks of 32 k, an integer dot product each, then one f32 fma with the
// product of the two scales (q4_1: a second one with the minimum), blocks ascending. A prepared row of x is
// k int8, then k / 32 scales, then k / 32 words: where the integer sum starts (q4_0: -8 sum, q8_0: -128 sum, which
// takes back the offset of the unsigned weights), or for q4_1 the scaled sum as f32.
#pragma once
#include "plait/kernels/cpu/matmul_tiles.h"

namespace plait::kernels {
namespace {

constexpr Size block_row_bytes(Size k) { return k + k / 32 * 8; }

// As panel_block in kernels/panels.h.
struct BlockPlace {
  Size scales, minima, quants;
};
template <MatmulJob::Type kType>
PLAIT_INLINE BlockPlace block_place(Size k, Size b) {
  if constexpr (kType == MatmulJob::kQ4_1) return {b * 320, b * 320 + 32, b * 320 + 64};
  constexpr Size kQuants = kType == MatmulJob::kQ8_0 ? 512 : 256;
  const Size in_pair = b & 1, pair = b - in_pair, begin = pair * (kQuants + 32);
  return {begin + in_pair * 32, 0, begin + (pair + 1 < k / 32 ? 64 : 32) + in_pair * kQuants};
}

template <MatmulJob::Type kType>
struct BlocksOf {
  template <class V, int kR, int kP>
  struct Blocks {
    static constexpr int kV = kP * V::kParts;
    static constexpr int kStep = 64 / V::kParts;
    using F = typename V::F;
    using I = typename V::I;

    PLAIT_INLINE void dot(const Tile& t, Size group, const I (&w)[kV], I (&sum)[kR][kV]) {
#pragma GCC unroll 24
      for (int m = 0; m < kR; m++) {
        std::int32_t four;
        __builtin_memcpy(&four, t.x + m * t.x_stride + group * 4, 4);
        const I x = V::splat(four);
#pragma GCC unroll 8
        for (int j = 0; j < kV; j++)
          sum[m][j] = kType == MatmulJob::kQ8_0 ? V::dot8(sum[m][j], w[j], x) : V::dot4(sum[m][j], w[j], x);
      }
    }

    PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
      // edges count from the start of x: a tile of blocks always begins at k = 0
      for (Size b = begin / 32; b < end / 32; b++) {
        fetch_line(t, line);
        const BlockPlace at = block_place<kType>(t.k, b);
        const Size scales = t.k + b * 4, starts = t.k + t.k / 32 * 4 + b * 4;
        I sum[kR][kV];
#pragma GCC unroll 24
        for (int m = 0; m < kR; m++) {
          std::int32_t start = 0;
          if (kType == MatmulJob::kQ4_0 || (kType == MatmulJob::kQ8_0 && V::kOffsetInSum))
            __builtin_memcpy(&start, t.x + m * t.x_stride + starts, 4);
#pragma GCC unroll 8
          for (int j = 0; j < kV; j++) sum[m][j] = V::splat(start);
        }
        constexpr int kLines = kType == MatmulJob::kQ8_0 ? 9 : 5;  // whose bytes belong to a block, or a little more
        const Size from = kType == MatmulJob::kQ4_1 ? at.scales : at.quants < 64 ? 0 : at.quants - 64;
        const unsigned char* ahead = fetch_from(t, from);
        for (int j = 0; j < t.fetch_panels; j++)
#pragma GCC unroll 9
          for (int v = 0; v < kLines; v++) _mm_prefetch(ahead + j * t.w_stride + v * 64, _MM_HINT_T0);
        if constexpr (kType == MatmulJob::kQ8_0) {
#pragma GCC unroll 8
          for (int v = 0; v < 8; v++) {
            I w[kV];
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++)
              w[j] = V::load_int(t.w + j / V::kParts * t.w_stride + at.quants + v * 64 + j % V::kParts * 32);
            dot(t, b * 8 + v, w, sum);
          }
        } else {
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) {
            I w[kV], low[kV], high[kV];
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++) {
              w[j] = V::load_int(t.w + j / V::kParts * t.w_stride + at.quants + v * 64 + j % V::kParts * 32);
              low[j] = V::low_nibbles(w[j]);
              high[j] = V::high_nibbles(w[j]);
            }
            dot(t, b * 8 + v, low, sum);
            dot(t, b * 8 + v + 4, high, sum);
          }
        }
        F d[kV];
#pragma GCC unroll 8
        for (int j = 0; j < kV; j++)
          d[j] = V::halves(t.w + j / V::kParts * t.w_stride + at.scales + j % V::kParts * 16);
#pragma GCC unroll 24
        for (int m = 0; m < kR; m++) {
          const F dx = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride + scales));
#pragma GCC unroll 8
          for (int j = 0; j < kV; j++) acc[m][j] = V::fma(V::to_float(sum[m][j]), V::mul(dx, d[j]), acc[m][j]);
        }
        if constexpr (kType == MatmulJob::kQ4_1) {
#pragma GCC unroll 8
          for (int j = 0; j < kV; j++)
            d[j] = V::halves(t.w + j / V::kParts * t.w_stride + at.minima + j % V::kParts * 16);
#pragma GCC unroll 24
          for (int m = 0; m < kR; m++) {
            const F sx = V::broadcast(reinterpret_cast<const float*>(t.x + m * t.x_stride + starts));
#pragma GCC unroll 8
            for (int j = 0; j < kV; j++) acc[m][j] = V::fma(d[j], sx, acc[m][j]);
          }
        }
      }
    }
  };
};

template <class V, MatmulJob::Type kType>
void prepare_blocks(const MatmulJob& job, const unsigned char* x, Size k, unsigned char* out) {
  auto* scales = reinterpret_cast<float*>(out + k);
  auto* starts = out + k + k / 32 * 4;
  for (Size b = 0; b < k / 32; b++) {
    float block[32];
    for (int i = 0; i < 32; i += V::kLanes)
      V::store(block + i,
               job.x_type == MatmulJob::kF32 ? V::load(x + (b * 32 + i) * 4) : V::widen(x + (b * 32 + i) * 2));
    std::int32_t sum;
    V::quantize(block, reinterpret_cast<std::int8_t*>(out + b * 32), scales + b, &sum);
    if (kType == MatmulJob::kQ4_1) {
      const float scaled = scales[b] * static_cast<float>(sum);
      __builtin_memcpy(starts + b * 4, &scaled, 4);
    } else {
      sum *= kType == MatmulJob::kQ4_0 ? -8 : -128;
      __builtin_memcpy(starts + b * 4, &sum, 4);
    }
  }
}

}  // namespace
}  // namespace plait::kernels
