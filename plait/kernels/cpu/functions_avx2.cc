#include "plait/kernels/cpu/functions_of.h"
#include "plait/kernels/cpu/vec_avx2.h"

namespace plait::kernels {

constinit const Functions kFunctionsAvx2 = functions_of<Avx2>();

}  // namespace plait::kernels
