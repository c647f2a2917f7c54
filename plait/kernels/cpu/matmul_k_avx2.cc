#include "plait/kernels/cpu/matmul_vector256.h"
//
#include "plait/kernels/cpu/matmul_k_blocks.h"

namespace plait::kernels {

std::uint32_t matmul_k_avx2(const MatmulPart* parts, std::int64_t count, std::int64_t row_begin, std::int64_t row_end) {
  return product_k<V256>(parts, count, row_begin, row_end);
}

}  // namespace plait::kernels
