// Weights of random models, a pure function of the state's name and the element: tests, benchmarks and the oracles in
// Python (scripts/oracles/random_weights.py) make the same bits, whatever the layout.
//
// Element i (row-major over the whole state, dims [out..., in...]) is 0.15 * normal(stream_of(name), i), plus 1 for the
// gains of norms (names that end in "norm"), in doubles, rounded once to f32.
#pragma once
#include "plait/tensor/tensor.h"

namespace plait {

float random_weight(std::string_view state, i64 index);

/// Fills an f32, bf16, f16 or f64 view in rows with its part of a state of that name and those sizes.
void fill_random(std::string_view state, const std::vector<i64>& sizes, const View& out);

}  // namespace plait
