#include "plait/kernels/cpu/functions.h"

#include "plait/kernels/cpu/functions_of.h"
#include "plait/kernels/cpu/vec_portable.h"

namespace plait::kernels {

const Functions& functions(Isa isa) {
  static constexpr Functions portable = functions_of<Portable>();
  switch (isa) {
    case Isa::avx2:
      return kFunctionsAvx2;
    case Isa::avx512:
      return kFunctionsAvx512;
    case Isa::avx512_bf16:
      return kFunctionsAvx512Bf16;
    default:
      return portable;
  }
}

}  // namespace plait::kernels
