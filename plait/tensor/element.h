// Single elements, for whoever compares tensors.
#pragma once
#include "plait/tensor/tensor.h"

namespace plait {

/// The element at an offset, as a number.
double number(const View& v, i64 i);
/// Whether two elements of one type have the same bits.
bool same_bits(const View& a, i64 i, const View& b, i64 k);

}  // namespace plait
