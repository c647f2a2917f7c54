// Bodies of the elementwise functions of functions.h, and those of the sampler.
#pragma once
#include "plait/kernels/cpu/math.h"

namespace plait::kernels {

/// f(count) for full groups of 16 elements, then once for the rest: f(at, whole, count).
template <class F>
void sixteens(i64 n, F f) {
  i64 i = 0;
  for (; i + 16 <= n; i += 16) f(i, std::true_type{}, i64{16});
  if (i < n) f(i, std::false_type{}, n - i);
}

template <class V>
struct ElementwiseRows {
  using F = typename V::F;

  template <class T>
  static F load(const T* p, i64 i, std::true_type, i64) {
    return V::load(p + i);
  }
  template <class T>
  static F load(const T* p, i64 i, std::false_type, i64 n) {
    return V::load(p + i, n);
  }
  template <class T>
  static void store(T* p, i64 i, F x, std::true_type, i64) {
    V::store(p + i, x);
  }
  template <class T>
  static void store(T* p, i64 i, F x, std::false_type, i64 n) {
    V::store(p + i, x, n);
  }

  static F gelu_of(F x) {
    F cube = V::mul(V::mul(x, x), x), inner = V::fma(V::set(0.044715f), cube, x);
    return V::mul(x, sigmoid<V>(V::mul(V::set(1.5957691216057308f), inner)));
  }

  template <class Out>
  static void copy(const void* a, const void*, void* out, i64 n, float) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      store(static_cast<Out*>(out), i, load(static_cast<const float*>(a), i, whole, k), whole, k);
    });
  }
  template <class Out>
  static void finish(const void* a, const void*, void* out, i64 n, float c) {
    F by = V::set(c);
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      store(static_cast<Out*>(out), i, V::mul(load(static_cast<const i64*>(a), i, whole, k), by), whole, k);
    });
  }
  template <class Out>
  static void add(const void* a, const void* b, void* out, i64 n, float) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      F x = load(static_cast<const float*>(a), i, whole, k), y = load(static_cast<const float*>(b), i, whole, k);
      store(static_cast<Out*>(out), i, V::add(x, y), whole, k);
    });
  }
  template <class Out>
  static void silu_mul(const void* a, const void* b, void* out, i64 n, float) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      F x = load(static_cast<const float*>(a), i, whole, k), y = load(static_cast<const float*>(b), i, whole, k);
      store(static_cast<Out*>(out), i, V::mul(V::mul(x, sigmoid<V>(x)), y), whole, k);
    });
  }
  template <class Out>
  static void gelu(const void* a, const void*, void* out, i64 n, float) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      store(static_cast<Out*>(out), i, gelu_of(load(static_cast<const float*>(a), i, whole, k)), whole, k);
    });
  }
  template <class Out>
  static void gelu_mul(const void* a, const void* b, void* out, i64 n, float) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      F x = load(static_cast<const float*>(a), i, whole, k), y = load(static_cast<const float*>(b), i, whole, k);
      store(static_cast<Out*>(out), i, V::mul(gelu_of(x), y), whole, k);
    });
  }
  template <class Out>
  static void scale(const void* a, const void*, void* out, i64 n, float c) {
    F by = V::set(c);
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      store(static_cast<Out*>(out), i, V::mul(load(static_cast<const float*>(a), i, whole, k), by), whole, k);
    });
  }

  static float largest(const float* x, i64 n) {
    F top = V::set(x[0]);
    bool nan = false;
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      F v = V::fill_from(load(x, i, whole, k), k, x[0]);
      nan |= V::any_nan(v);
      top = V::max(top, v);
    });
    return nan ? __builtin_nanf("") : V::largest(top);
  }
  static void exp_from(const float* x, float top, float by, float* out, i64 n) {
    sixteens(n, [&](i64 i, auto whole, i64 k) {
      F v = V::mul(V::sub(load(x, i, whole, k), V::set(top)), V::set(by));
      store(out, i, exp<V>(v), whole, k);
    });
  }
};

}  // namespace plait::kernels
