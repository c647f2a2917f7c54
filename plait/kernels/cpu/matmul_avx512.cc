#include "plait/kernels/cpu/matmul_vector512.h"
//
#include "plait/kernels/cpu/matmul_loops.h"

namespace plait::kernels {

std::uint32_t matmul_avx512(const MatmulJob& job, std::int64_t row_begin, std::int64_t row_end,
                            std::int64_t panel_begin, std::int64_t panel_end) {
  return product<V512>(job, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace plait::kernels
