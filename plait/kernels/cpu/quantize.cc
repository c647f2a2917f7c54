#include "plait/kernels/cpu/quantize.h"

#include <cmath>

namespace plait::kernels {

void quantize(DType x_type, const void* x, i64 k, std::int8_t* q, float* d, std::int32_t* sum) {
  PLAIT_CHECK(k % 32 == 0 && (x_type == DType::f32 || x_type == DType::bf16), "{} elements of {}", k, name_of(x_type));
  for (i64 b = 0; b < k / 32; b++) {
    float block[32];
    std::uint32_t largest = 0;  // of |x| as bits: NaN > inf > finite
    for (i64 i = 0; i < 32; i++) {
      block[i] = x_type == DType::f32 ? static_cast<const float*>(x)[b * 32 + i]
                                      : static_cast<float>(static_cast<const bf16*>(x)[b * 32 + i]);
      largest = std::max(largest, std::bit_cast<std::uint32_t>(block[i]) & 0x7fffffffu);
    }
    const bool finite = largest < 0x7f800000u;
    const float amax = std::bit_cast<float>(largest), scale = amax / 127.0f;
    const float inverse = scale > 0 && finite ? 127.0f / amax : 0.0f;
    d[b] = scale;
    sum[b] = 0;
    for (i64 i = 0; i < 32; i++) {
      auto value = static_cast<std::int32_t>(finite ? std::lrintf(block[i] * inverse) : 0);
      q[b * 32 + i] = static_cast<std::int8_t>(value);
      sum[b] += value;
    }
  }
}

}  // namespace plait::kernels
