// Bodies of the norms, alone and behind the addition that makes their operand. A sum over a row: lane j of 16 adds d =
// j, j + 16, ... ascending, then the lanes are added as a fixed tree (+8, +4, +2, +1).
#pragma once
#include "plait/kernels/cpu/elementwise_rows.h"
#include "plait/kernels/cpu/functions.h"

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
    rms_of<Out>(squares, x, gain, out, d, eps);
  }

  template <class Out>
  static void layer(const float* x, const float* gain, const float* bias, void* out, i64 d, float eps) {
    F total = V::zero();
    sixteens(d, [&](i64 i, auto whole, i64 k) { total = V::add(total, Rows::load(x, i, whole, k)); });
    layer_of<Out>(total, x, gain, bias, out, d, eps);
  }

  template <class Out, bool kLayer>
  static void sum_norm(const SumNorm& s) {
    F gathered = V::zero();  // squares of the new row, or their plain sum
    auto add = [&](auto exact, auto biased) {
      F by = V::set(s.by);
      sixteens(s.d, [&](i64 i, auto whole, i64 k) {
        F v;
        if constexpr (exact.value)
          v = V::mul(Rows::load(static_cast<const i64*>(s.sum), i, whole, k), by);
        else
          v = Rows::load(static_cast<const float*>(s.sum), i, whole, k);
        if constexpr (biased.value) v = V::add(v, Rows::load(s.bias, i, whole, k));
        v = V::add(Rows::load(s.residual, i, whole, k), v);
        Rows::store(s.x, i, v, whole, k);
        gathered = kLayer ? V::add(gathered, v) : V::fma(v, v, gathered);
      });
    };
    if (s.exact)
      s.bias != nullptr ? add(std::true_type{}, std::true_type{}) : add(std::true_type{}, std::false_type{});
    else
      s.bias != nullptr ? add(std::false_type{}, std::true_type{}) : add(std::false_type{}, std::false_type{});
    if (s.out == nullptr) return;
    if constexpr (kLayer)
      layer_of<Out>(gathered, s.x, s.gain, s.norm_bias, s.out, s.d, s.eps);
    else
      rms_of<Out>(gathered, s.x, s.gain, s.out, s.d, s.eps);
  }

  template <class Out>
  static void normed_sum(const SumNorm& s) {
    auto all = [&](auto exact) {
      const F by = V::set(s.by);
      auto term = [&](i64 i, auto whole, i64 k) {
        if constexpr (exact.value)
          return V::mul(Rows::load(static_cast<const i64*>(s.sum), i, whole, k), by);
        else
          return Rows::load(static_cast<const float*>(s.sum), i, whole, k);
      };
      F inner = V::zero(), squares = V::zero();
      sixteens(s.d, [&](i64 i, auto whole, i64 k) {
        F v = term(i, whole, k);
        inner = V::fma(v, v, inner);
      });
      const F r = V::set(inverse_root(V::sum(inner) / static_cast<float>(s.d), s.inner_eps));
      sixteens(s.d, [&](i64 i, auto whole, i64 k) {
        F v = V::mul(V::mul(term(i, whole, k), r), Rows::load(s.inner_gain, i, whole, k));
        v = V::add(Rows::load(s.residual, i, whole, k), v);
        Rows::store(s.x, i, v, whole, k);
        squares = V::fma(v, v, squares);
      });
      if (s.out != nullptr) rms_of<Out>(squares, s.x, s.gain, s.out, s.d, s.eps);
    };
    s.exact ? all(std::true_type{}) : all(std::false_type{});
  }

 private:
  template <class Out>
  static void rms_of(F squares, const float* x, const float* gain, void* out, i64 d, float eps) {
    F r = V::set(inverse_root(V::sum(squares) / static_cast<float>(d), eps));
    sixteens(d, [&](i64 i, auto whole, i64 k) {
      F y = V::mul(V::mul(Rows::load(x, i, whole, k), r), Rows::load(gain, i, whole, k));
      Rows::store(static_cast<Out*>(out), i, y, whole, k);
    });
  }

  template <class Out>
  static void layer_of(F total, const float* x, const float* gain, const float* bias, void* out, i64 d, float eps) {
    F squares = V::zero();
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
