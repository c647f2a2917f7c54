// Bodies of the norms. A sum over a row: lane j of 16 adds d = j, j + 16, ... ascending, then the lanes are added as a
// fixed tree (+8, +4, +2, +1).
#pragma once
#include "plait/kernels/cpu/elementwise_rows.h"

namespace plait::kernels {

template <class V>
struct NormRows {
  using F = typename V::F;
  using Rows = ElementwiseRows<V>;

  static float inverse_root(float mean_square, float eps) { return 1.0f / __builtin_sqrtf(mean_square + eps); }

  template <class Out>
  static void rms(const float* x, const float* gain, const float*, void* out, i64 d, float eps) {
    F squares = V::zero();
    sixteens(d, [&](i64 i, auto whole, i64 k) {
      F v = Rows::load(x, i, whole, k);
      squares = V::fma(v, v, squares);
    });
    F r = V::set(inverse_root(V::sum(squares) / static_cast<float>(d), eps));
    sixteens(d, [&](i64 i, auto whole, i64 k) {
      F y = V::mul(V::mul(Rows::load(x, i, whole, k), r), Rows::load(gain, i, whole, k));
      Rows::store(static_cast<Out*>(out), i, y, whole, k);
    });
  }

  template <class Out>
  static void layer(const float* x, const float* gain, const float* bias, void* out, i64 d, float eps) {
    F total = V::zero(), squares = V::zero();
    sixteens(d, [&](i64 i, auto whole, i64 k) { total = V::add(total, Rows::load(x, i, whole, k)); });
    F mean = V::set(V::sum(total) / static_cast<float>(d));
    sixteens(d, [&](i64 i, auto whole, i64 k) {
      F v = V::sub(Rows::load(x, i, whole, k), mean);
      if constexpr (!whole.value) v = V::fill_from(v, k, 0);
      squares = V::fma(v, v, squares);
    });
    F r = V::set(inverse_root(V::sum(squares) / static_cast<float>(d), eps));
    sixteens(d, [&](i64 i, auto whole, i64 k) {
      F v = V::mul(V::sub(Rows::load(x, i, whole, k), mean), r);
      F y = V::fma(v, Rows::load(gain, i, whole, k), Rows::load(bias, i, whole, k));
      Rows::store(static_cast<Out*>(out), i, y, whole, k);
    });
  }
};

}  // namespace plait::kernels
