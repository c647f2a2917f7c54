// Tiles of products with weights in blocks of 256 (q2_k to q6_k): 8 steps of 32 k, of one or two sub-blocks each. The
// scales of a block are unpacked when its first step comes. Words of a panel stand in the order in which the steps
// want them (kernels/panels.h).
#pragma once
#include "plait/kernels/cpu/matmul_loops.h"

namespace plait::kernels {
namespace {

template <>
struct BlockType<MatmulJob::kQ2_K> : BlockTraits<256, 16, 20, true, 0> {};
template <>
struct BlockType<MatmulJob::kQ3_K> : BlockTraits<256, 16, 27, false, 4> {};
template <>
struct BlockType<MatmulJob::kQ4_K> : BlockTraits<256, 32, 35, true, 0> {};
template <>
struct BlockType<MatmulJob::kQ5_K> : BlockTraits<256, 32, 43, true, 0> {};
template <>
struct BlockType<MatmulJob::kQ6_K> : BlockTraits<256, 16, 52, false, 32> {};

/// Where a step finds its weights: low bits in the bytes of `low` + v (v = 0 to 7: 4 k each) shifted right, further
/// ones in those of `high` + v turned left.
template <class V>
struct StepOf {
  Size low, high;  // words
  typename V::I right, turn;
};

template <MatmulJob::Type kType, class V>
struct KType {
  using T = BlockType<kType>;
  using F = typename V::F;
  using I = typename V::I;

  PLAIT_INLINE StepOf<V> step(Size s) {
    const auto i = static_cast<std::int32_t>(s), j = i & 3;
    switch (kType) {
      case MatmulJob::kQ2_K:
        return {4 + 8 * (s >> 2), 0, V::splat(2 * j), V::splat(0)};
      case MatmulJob::kQ3_K:
        return {11 + 8 * (s >> 2), 3, V::splat(2 * j), V::splat((2 - i) & 31)};
      case MatmulJob::kQ4_K:
        return {3 + 8 * (s >> 1), 0, V::splat(4 * (i & 1)), V::splat(0)};
      case MatmulJob::kQ5_K:
        return {11 + 8 * (s >> 1), 3, V::splat(4 * (i & 1)), V::splat((4 - i) & 31)};
      default:
        return {4 + 24 * (s >> 2) + 16 * (j & 1), 12 + 24 * (s >> 2), V::splat(4 * (j >> 1)),
                V::splat((4 - 2 * j) & 31)};
    }
  }

  /// Weights 4v to 4v + 3 of the step, unsigned.
  PLAIT_INLINE I weights(const unsigned char* words, const StepOf<V>& at, int v) {
    const I low = V::right(V::load_int(words + (at.low + v) * 64), at.right);
    if constexpr (kType == MatmulJob::kQ2_K) return V::bytes_of(low, 3);
    if constexpr (kType == MatmulJob::kQ4_K) return V::low_nibbles(low);
    const I high = V::turned(V::load_int(words + (at.high + v) * 64), at.turn);
    if constexpr (kType == MatmulJob::kQ3_K) return V::with_bytes_of(V::bytes_of(low, 3), high, 4);
    return V::with_bytes_of(V::low_nibbles(low), high, kType == MatmulJob::kQ5_K ? 16 : 48);
  }

  PLAIT_INLINE F byte_of(I v, int i) { return V::to_float(V::bits(V::right(v, 8 * i), 255)); }

  /// The scales of a block's sub-blocks, and with minima minus them, of one vector of columns: stored 16 * 4 * `stride`
  /// floats apart.
  PLAIT_INLINE void scales(const unsigned char* words, F d, F minus_min, F* scale, F* minus, int stride) {
    I w[4];
    for (int i = 0; i < (kType == MatmulJob::kQ2_K || kType == MatmulJob::kQ6_K ? 4 : 3); i++)
      w[i] = V::load_int(words + i * 64);
    if constexpr (kType == MatmulJob::kQ6_K) {
#pragma GCC unroll 16
      for (int s = 0; s < 16; s++) scale[s * stride] = V::mul(d, V::to_float(V::signed_byte(w[s / 4], s % 4)));
    } else if constexpr (kType == MatmulJob::kQ2_K) {
#pragma GCC unroll 16
      for (int s = 0; s < 16; s++) {
        scale[s * stride] = V::mul(d, V::to_float(V::bits(V::right(w[s / 4], s % 4 * 8), 15)));
        minus[s * stride] = V::mul(minus_min, V::to_float(V::bits(V::right(w[s / 4], s % 4 * 8 + 4), 15)));
      }
    } else if constexpr (kType == MatmulJob::kQ3_K) {
      const F offset = V::value(32);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        const I low = V::low_nibbles(i < 2 ? w[i] : V::right(w[i - 2], 4));
        const I six = V::with_bytes_of(low, i < 2 ? V::left(w[2], 4 - 2 * i) : V::right(w[2], 2 * i - 4), 48);
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) scale[(4 * i + s) * stride] = V::mul(d, V::sub(byte_of(six, s), offset));
      }
    } else {
      const I six[4] = {V::bytes_of(w[0], 63), V::with_bytes_of(V::low_nibbles(w[2]), V::right(w[0], 2), 48),
                        V::bytes_of(w[1], 63), V::with_bytes_of(V::high_nibbles(w[2]), V::right(w[1], 2), 48)};
#pragma GCC unroll 8
      for (int s = 0; s < 8; s++) {
        scale[s * stride] = V::mul(d, byte_of(six[s / 4], s % 4));
        minus[s * stride] = V::mul(minus_min, byte_of(six[2 + s / 4], s % 4));
      }
    }
  }
};

template <MatmulJob::Type kType>
struct KBlocksOf {
  template <class V, int kR, int kP>
  struct Blocks {
    using T = BlockType<kType>;
    using B = BlockTile<T, V, kR, kP>;
    using K = KType<kType, V>;
    static constexpr int kV = B::kV;
    static constexpr int kSubsOfStep = 32 / T::kSub;
    static constexpr int kLines = (T::kWords + 1 + 7) / 8;  // fetched in each step
    // One row reads a panel as a single stream, which the processor fetches by itself (Zen 4: q4_k 33 GB/s, 25 where
    // each line is asked for), but for the wider steps of q6_k (24 GB/s, 17 unasked).
    static constexpr bool kAsks = kR > 1 || kP > 1 || kType == MatmulJob::kQ6_K;
    using F = typename V::F;
    using I = typename V::I;

    PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kV]) {
      F scale[T::kSubs][kV], minus[T::kMinima ? T::kSubs : 1][kV];
      for (Size b = begin / 256; b < end / 256; b++) {
        const BlockPlace at = block_place<T>(t.k, b);
        for (int j = 0; j < kV; j++) {
          const unsigned char* panel = B::panel(t, j);
          const F d = V::halves(panel + at.scales + j % V::kParts * 16);
          const F minus_min =
              T::kMinima ? V::mul(V::value(-1), V::halves(panel + at.minima + j % V::kParts * 16)) : V::zero();
          K::scales(panel + at.words + j % V::kParts * 32, d, minus_min, &scale[0][j], &minus[0][j], kV);
        }
#pragma GCC unroll 1
        for (Size s = 0; s < 8; s++) {
          fetch_line(t, line);
          if constexpr (kAsks) B::template fetch<kLines>(t, (at.words < 64 ? 0 : at.words - 64) + s * kLines * 64);
          const StepOf<V> from = K::step(s);
#pragma GCC unroll 2
          for (int h = 0; h < kSubsOfStep; h++) {
            const Size sub = (b * 8 + s) * kSubsOfStep + h;
            I sum[kR][kV];
            B::template start<T::kMinima>(t, sub, sum);
#pragma GCC unroll 8
            for (int v = h * T::kSub / 4; v < (h + 1) * T::kSub / 4; v++) {
              I w[kV];
#pragma GCC unroll 8
              for (int j = 0; j < kV; j++) w[j] = K::weights(B::panel(t, j) + at.words + j % V::kParts * 32, from, v);
              B::template dot<false>(t, (b * 8 + s) * 8 + v, w, sum);
            }
            const Size in_block = s * kSubsOfStep + h;
            B::finish(t, sub, sum, scale[in_block], acc);
            if constexpr (T::kMinima) B::finish_minima(t, sub, minus[in_block], acc);
          }
        }
      }
    }
  };
};

template <class V, MatmulJob::Type kType>
std::uint32_t run_k_blocks_of(const MatmulPart* parts, Size count, Size row_begin, Size row_end) {
  return run_blocks<V, BlockType<kType>, KBlocksOf<kType>::template Blocks>(parts, count, row_begin, row_end);
}

/// The products of weights in blocks of 256.
template <class V>
std::uint32_t product_k(const MatmulPart* parts, Size count, Size row_begin, Size row_end) {
  switch (parts[0].job->w_type) {
    case MatmulJob::kQ2_K:
      return run_k_blocks_of<V, MatmulJob::kQ2_K>(parts, count, row_begin, row_end);
    case MatmulJob::kQ3_K:
      return run_k_blocks_of<V, MatmulJob::kQ3_K>(parts, count, row_begin, row_end);
    case MatmulJob::kQ4_K:
      return run_k_blocks_of<V, MatmulJob::kQ4_K>(parts, count, row_begin, row_end);
    case MatmulJob::kQ5_K:
      return run_k_blocks_of<V, MatmulJob::kQ5_K>(parts, count, row_begin, row_end);
    default:
      return run_k_blocks_of<V, MatmulJob::kQ6_K>(parts, count, row_begin, row_end);
  }
}

}  // namespace
}  // namespace plait::kernels
