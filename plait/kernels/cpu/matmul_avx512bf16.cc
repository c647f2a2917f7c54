// Products of bf16 with bf16 by the processor's own dot product, where that is fast; everything else is AVX-512.
// vdpbf16ps computes, in each lane, fma(x odd, w odd, acc), then fma(x even, w even, .), each rounded to f32, denormals
// flushed: checked on Zen 5 and Sapphire Rapids, and the order that all paths keep.
#include "plait/kernels/cpu/matmul_vector512.h"
//
#include "plait/kernels/cpu/matmul_loops.h"

namespace plait::kernels {

namespace {

template <class V, int kR, int kP>
struct Dots {
  using F = typename V::F;
  PLAIT_INLINE void add(const Tile& t, Size begin, Size end, int& line, F (&acc)[kR][kP]) {
    for (Size k = begin; k < end; k += 2) {
      const unsigned char* p = t.w + k * 32;
      fetch_line(t, line);
      fetch_lines<kP>(t, fetch_from<kP>(t, k * 32));
      __m512bh w[kP];
#pragma GCC unroll 24
      for (int j = 0; j < kP; j++) w[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p + j * t.w_stride));
#pragma GCC unroll 24
      for (int m = 0; m < kR; m++) {
        std::int32_t pair;
        __builtin_memcpy(&pair, t.x + m * t.x_stride + k * 2, 4);
        const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 24
        for (int j = 0; j < kP; j++) acc[m][j] = _mm512_dpbf16_ps(acc[m][j], w[j], x);
      }
    }
  }
};

}  // namespace

std::uint32_t matmul_avx512bf16(const MatmulPart* parts, std::int64_t count, std::int64_t row_begin,
                                std::int64_t row_end) {
  const MatmulJob& job = *parts[0].job;
  const bool bf16 = job.w_type == MatmulJob::kBf16 && job.x_type == MatmulJob::kBf16;
  if (!bf16 || !job.native_bf16 || job.x_k != job.k) return matmul_avx512(parts, count, row_begin, row_end);
  // Few rows go through the weights once: the more rows a tile has, the fewer panels.
  const Size rows = row_end - row_begin;
  Method<V512> m = rows <= 4    ? method_of_rows<V512, Dots, 1, 1, 2, 3, 4>()
                   : rows <= 8  ? method_of_rows<V512, Dots, 3, 5, 6, 7, 8>()
                   : rows <= 12 ? method_of_rows<V512, Dots, 2, 9, 10, 11, 12>()
                                : method_of<V512, Dots, V512::kPanels>(V512::kRows);
  if (m.rows > V512::kRows) {
    m.prepare = [](const MatmulJob&, const unsigned char* x, Size k, unsigned char* out) {
      __builtin_memcpy(out, x, static_cast<unsigned long>(k * 2));
    };
    m.x_row_bytes = up(job.k * 2, 64) + 64;  // rows of x must not meet in one set of the cache
  }
  m.w_bytes_of_k = 32;
  m.x_bytes_of_k = 2;
  return run_method<V512>(parts, count, m, kDirectChunk, row_begin, row_end);
}

}  // namespace plait::kernels
