#include "plait/kernels/cpu/functions_of.h"
#include "plait/kernels/cpu/vec_avx512.h"

namespace plait::kernels {

constinit const Functions kFunctionsAvx512 = functions_of<Avx512>();

}  // namespace plait::kernels
