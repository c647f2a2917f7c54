// Body of the rotary embedding: cosine and sine of 16 frequencies stay in registers while every head is turned.
#pragma once
#include "plait/kernels/cpu/elementwise_rows.h"

namespace plait::kernels {

template <class V>
struct RopeRows {
  using F = typename V::F;
  using Rows = ElementwiseRows<V>;

  template <class Out>
  static void rope(const float* x, i64 x_stride, void* out, i64 out_stride, i64 heads, i64 h, i64 half,
                   const double* frequency, double position) {
    auto* y = static_cast<Out*>(out);
    sixteens(half, [&](i64 i, auto whole, i64 k) {
      typename V::D sine, cosine;
      sin_cos<V>(V::mul(V::load(frequency + i, k), V::set_d(position)), sine, cosine);
      F s = V::to_f32(sine), c = V::to_f32(cosine);
      for (i64 n = 0; n < heads; n++) {
        F u = Rows::load(x + n * x_stride, i, whole, k), v = Rows::load(x + n * x_stride + half, i, whole, k);
        Rows::store(y + n * out_stride, i, V::sub(V::mul(u, c), V::mul(v, s)), whole, k);
        Rows::store(y + n * out_stride + half, i, V::add(V::mul(v, c), V::mul(u, s)), whole, k);
      }
    });
    if (2 * half < h)
      for (i64 n = 0; n < heads; n++)
        Rows::template copy<Out>(x + n * x_stride + 2 * half, nullptr, y + n * out_stride + 2 * half, h - 2 * half, 0);
  }
};

}  // namespace plait::kernels
