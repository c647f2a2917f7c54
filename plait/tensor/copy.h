// The bytes of a view in memory of their own.
#pragma once
#include <cstring>

#include "plait/tensor/tensor.h"

namespace plait {

inline Tensor copy_of(const View& v) {
  Tensor t(v.dtype, v.box, v.layout);
  if (v.elements() > 0) std::memcpy(t.data, v.data, static_cast<size_t>(bytes_of(v.dtype, v.elements())));
  return t;
}

}  // namespace plait
