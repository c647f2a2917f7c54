#include "plait/tensor/element.h"

#include <cstring>

namespace plait {

double number(const View& v, i64 i) {
  switch (v.dtype) {
    case DType::f32:
      return v.as<float>()[i];
    case DType::f64:
      return v.as<double>()[i];
    case DType::bf16:
      return static_cast<float>(v.as<bf16>()[i]);
    case DType::i32:
      return v.as<std::int32_t>()[i];
    case DType::i64:
      return static_cast<double>(v.as<i64>()[i]);
    case DType::i128:
      return static_cast<double>(v.as<i128>()[i]);
    default:
      PLAIT_CHECK(false, "no number in {}", name_of(v.dtype));
  }
}

bool same_bits(const View& a, i64 i, const View& b, i64 k) {
  const i64 width = bytes_of(a.dtype, 1);
  return std::memcmp(a.as<std::byte>() + i * width, b.as<std::byte>() + k * width, static_cast<size_t>(width)) == 0;
}

}  // namespace plait
