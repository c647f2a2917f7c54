// What is compiled once for each instruction set: functions over one row. The ops (elementwise.cc, norm.cc, rope.cc,
// attention.cc, plait/kernels/sample.cc) pick from this table when they are prepared and call through plain pointers.
// The bodies are the templates of *_rows.h.
#pragma once
#include "plait/kernels/kernel.h"

namespace plait::kernels {

/// Elementwise functions of one or two operands; `c` is a constant of the call. a is f32 unless said.
///   copy     a                                   finish  a (i64) times c, a power of two
///   add      a + b
///   silu_mul a sigmoid(a) b
///   gelu     a sigmoid(2 sqrt(2/pi) (a + 0.044715 a^3)), which is the tanh form
///   gelu_mul gelu(a) b                           scale   a c
enum class Map : std::uint8_t { copy, add, silu_mul, gelu, finish, gelu_mul, scale };
inline constexpr size_t kMaps = 7;
using MapFn = void (*)(const void* a, const void* b, void* out, i64 n, float c);

/// y = x / rms(x) * gain, or (x - mean) / deviation * gain + bias; bias is unused by the first.
using NormFn = void (*)(const float* x, const float* gain, const float* bias, void* out, i64 d, float eps);

/// x = residual + (sum [times `by` where it is exact: i64, else f32] [+ bias]), rounded as the ops one after the other;
/// then the norm of x, unless out is null. With inner_gain (and no bias) the sum is normed before it is added.
struct SumNorm {
  const void* sum;
  bool exact;
  float by;
  const float *bias, *residual;
  float* x;
  const float *gain, *norm_bias;
  void* out;
  i64 d;
  float eps;
  const float* inner_gain = nullptr;
  float inner_eps = 0;
};
using SumNormFn = void (*)(const SumNorm&);

/// `heads` rows of x (strides in elements) turned by position * frequency[i]; pairs (i, i + half); elements from
/// 2 half to h are copied.
using RopeFn = void (*)(const float* x, i64 x_stride, void* out, i64 out_stride, i64 heads, i64 h, i64 half,
                        const double* frequency, double position);

inline constexpr i64 kAttentionBlock = 128;  // positions; a constant of the numbers (docs/numerics.md)
inline constexpr i64 kAttentionRows = 24;    // rows of queries that share a block's keys and values
inline constexpr i64 kAttentionHead = 512;   // largest head

/// One block of cached positions against some rows of queries (attention.cc).
struct AttentionBlock {
  i64 rows, h, width;          // width: h rounded up to 16
  i64 panels;                  // of 16 positions
  Range positions;             // of the block, that any row uses
  const void* const* keys;     // [panels] keys of 16 positions, [h][16] or bf16 [h/2][16][2]; only those used
  const void* const* values;   // [16 panels] rows of h; only those used
  const void* const* queries;  // [rows] rows of h
  const Range* used;           // [rows] positions of this block that a row attends to, not empty
  float scale;
  float* const*
      o;  // [rows] -> the sum of exp(score - max) * value, [width]; then max; then the sum of exp(score - max)
};
using AttentionBlockFn = void (*)(const AttentionBlock&);
/// out[h] = sum of o_b exp(m_b - m) / sum of l_b exp(m_b - m) over `blocks` partial results, `step` floats apart;
/// false if a term's magnitude is not below `limit`.
using AttentionJoinFn = bool (*)(const float* partials, i64 blocks, i64 step, i64 width, i64 h, float limit, void* out);

struct Functions {
  MapFn map[kMaps][2];  // [..][0] writes f32, [..][1] bf16
  NormFn rms_norm[2], layer_norm[2];
  SumNormFn sum_rms_norm[2], sum_layer_norm[2], normed_sum_rms_norm[2];
  RopeFn rope[2];
  AttentionBlockFn attention_block[2];  // by the type of queries, keys and values
  AttentionJoinFn attention_join[2];
  /// The largest of n values (n >= 1); NaN if any is NaN.
  float (*largest)(const float* x, i64 n);
  /// out = exp((x - top) * by).
  void (*exp_from)(const float* x, float top, float by, float* out, i64 n);
};

/// The table of an instruction set; calling its functions needs a processor that has it.
const Functions& functions(Isa isa);

/// 0 for f32, 1 for bf16.
inline size_t type_index(DType t) {
  PLAIT_CHECK(t == DType::f32 || t == DType::bf16, "got {}", name_of(t));
  return t == DType::bf16 ? 1 : 0;
}

}  // namespace plait::kernels
