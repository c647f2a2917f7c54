#include "plait/kernels/cpu/functions_of.h"
#include "plait/kernels/cpu/vec_avx512.h"

namespace plait::kernels {

constinit const Functions kFunctionsAvx512Bf16 = functions_of<Avx512Bf16>();

}  // namespace plait::kernels
