// Activations of a product with a block weight: int8 in blocks of 32 along the summed dim.
//
//   amax = max |x|, d = amax / 127, inverse = d > 0 ? 127 / amax : 0, q = nearest even (x * inverse)
// all in f32 with denormals flushed. A block that is not finite has q = 0 and d infinite or NaN, so that every product
// with it is NaN. The scale is of the block, never of the row: a cut of the summed dim between blocks changes nothing.
// This is the definition; the vector versions (matmul_blocks.h) have the same bits.
#pragma once
#include "plait/tensor/dtype.h"

namespace plait::kernels {

/// k elements of x (f32 or bf16; k a multiple of 32) -> q[k], scales d[k / 32], sums of q sum[k / 32].
void quantize(DType x_type, const void* x, i64 k, std::int8_t* q, float* d, std::int32_t* sum);

}  // namespace plait::kernels
