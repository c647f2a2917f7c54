// Scalar kernels of every op: the contract of docs/numerics.md, line by line. Fast kernels are compared with them by
// memcmp, layouts with one rank, and where there is no fast kernel they run.
//
// Views lie in rows; numbers are of real type f32 (operands of products also bf16 or f16) or f64, whose sums are
// 128-bit. Args.exponent is that of the class (numerics.md); f64 sums add 40 to it. Sum outputs are cleared first, also
// the part of them outside the ranges; of number outputs exactly the part in the ranges is written.
#pragma once
#include "plait/kernels/kernel.h"

namespace plait::kernels {

/// The reference kernels of an op, none if it has none. real: f32 or f64.
std::span<const Kernel> reference_kernels(std::string_view op, DType real);

namespace reference {

template <class R>
std::vector<Kernel> product_kernels();
template <class R>
std::vector<Kernel> elementwise_kernels();
template <class R>
std::vector<Kernel> norm_kernels();
template <class R>
std::vector<Kernel> head_norm_kernels();
template <class R>
std::vector<Kernel> row_kernels();
template <class R>
std::vector<Kernel> rope_kernels();
template <class R>
std::vector<Kernel> attention_kernels();
template <class R>
std::vector<Kernel> cross_entropy_kernels();

}  // namespace reference

}  // namespace plait::kernels
