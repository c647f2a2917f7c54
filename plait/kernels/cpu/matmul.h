// Products of rows with a packed weight: out[t, n...] = sum over k of x[t, k...] w[k..., n...].
//
//   x    f32 or bf16, rows [T..., K...]
//   w    panels (kernels/panels.h) of f32, bf16, q4_0, q4_1 or q8_0: n is the product of its dims that the output has,
//        k of those that it has not, each in the order of w's dims; its box is exactly what this call computes with
//   out  rows [T..., N...]: f32; bf16 (rounded once, nearest even); or i64: the exact sum of leaves * 2^exponent
//
// What is computed, in which order and with which rounding is docs/numerics.md "Products". A row's result is a function
// of that row and the weight alone: the same bits for every number of rows, of threads, column cut and instruction set.
#pragma once
#include <optional>
#include <span>

#include "plait/kernels/kernel.h"

namespace plait::kernels {

/// AVX-512 with bf16, AVX-512 (VNNI), AVX2, portable; the first that isa() allows takes the call.
std::span<const Kernel> matmul_kernels();

/// The same for one instruction set that this processor has, whatever isa() says. Declines with a reason.
/// native_bf16 forces the use of the bf16 dot product or forbids it (as tests and benchmarks want).
Result<Run> prepare_matmul(const Args& a, Isa isa, std::optional<bool> native_bf16 = {});

}  // namespace plait::kernels
