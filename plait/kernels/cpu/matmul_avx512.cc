#include "plait/kernels/cpu/matmul_vector512.h"
//
#include "plait/kernels/cpu/matmul_loops.h"

namespace plait::kernels {

std::uint32_t matmul_avx512(const MatmulPart* parts, std::int64_t count, std::int64_t row_begin, std::int64_t row_end) {
  if (parts[0].job->w_type >= MatmulJob::kQ2_K) return matmul_k_avx512(parts, count, row_begin, row_end);
  return product<V512>(parts, count, row_begin, row_end);
}

}  // namespace plait::kernels
