// Elementwise ops: sums read and added, activations, optimizer steps, constants, dropout.
#include <array>

#include "plait/kernels/reference/mask.h"
#include "plait/kernels/reference/reference.h"

namespace plait::kernels::reference {

namespace {

/// out = f(values of the operands), over the ranges of output 0.
template <class R, size_t N, class F>
Run each(const Args& a, F f) {
  PLAIT_CHECK(a.in.size() == N, "{}: {} operands, want {}", a.op, a.in.size(), N);
  std::array<Numbers<R>, N> in;
  for (size_t i = 0; i < N; i++) in[i] = Numbers<R>(a.in[i]);
  return Run([loop = Loop::over_all(a, a.out_terms[0]), in, out = Numbers<R>(a.out[0]), f](Context& c) {
    loop.each_parallel(c, [&](const i64* at) {
      std::array<R, N> x;
      for (size_t i = 0; i < N; i++) x[i] = in[i][at[i]];
      out.set(at[N], f(x));
    });
  });
}

template <class R>
Run add(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[0] + x[1]; });
}

template <class R>
Run add_sums(const Args& a) {
  using Fixed = typename Sums<R>::Fixed;
  if (a.out[0].dtype != Sums<R>::kDType) return add<R>(a);
  return [loop = Loop::over_all(a, a.out_terms[0]), x = a.in[0].as<Fixed>(), y = a.in[1].as<Fixed>(),
          out = a.out[0].as<Fixed>()](Context& c) {
    loop.each_parallel(c, [&](const i64* at) { out[at[2]] = x[at[0]] + y[at[1]]; });
  };
}

template <class R>
Run finish(const Args& a) {
  return Run([loop = Loop::over_all(a, a.out_terms[0]), x = Sums<R>(a.in[0], a.exponent, a.model_leaves),
              out = Numbers<R>(a.out[0])](Context& c) {
    loop.each_parallel(c, [&](const i64* at) { out.set(at[1], x.get(at[0])); });
  });
}

template <class R>
Run copy(const Args& a) {
  return each<R, 1>(a, [](const std::array<R, 1>& x) { return x[0]; });
}

/// Bits, whatever they mean.
Run read(const Args& a) {
  auto size = static_cast<size_t>(info(a.in[0].dtype).block_bytes);
  PLAIT_CHECK(a.in[0].dtype == a.out[0].dtype, "read: {} into {}", name_of(a.in[0].dtype), name_of(a.out[0].dtype));
  return Run([loop = Loop::over_all(a, a.out_terms[0]), from = a.in[0].as<std::byte>(), to = a.out[0].as<std::byte>(),
              size](Context& c) {
    loop.each_parallel(c, [&](const i64* at) {
      std::memmove(to + at[1] * static_cast<i64>(size), from + at[0] * static_cast<i64>(size), size);
    });
  });
}

Run zero(const Args& a) {
  auto size = static_cast<size_t>(info(a.out[0].dtype).block_bytes);
  Loop loop(a, a.out_terms[0]);
  loop.walk(a, a.out[0], a.out_terms[0]);
  return Run([loop, to = a.out[0].as<std::byte>(), size](Context& c) {
    loop.each_parallel(c, [&](const i64* at) { std::memset(to + at[0] * static_cast<i64>(size), 0, size); });
  });
}

template <class R>
Run constant(const Args& a) {
  return [loop = Loop::over_all(a, a.out_terms[0]), out = Numbers<R>(a.out[0]),
          value = static_cast<R>(a.attr("value"))](Context& c) {
    loop.each_parallel(c, [&](const i64* at) { out.set(at[0], value); });
  };
}

template <class R>
Run spread(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[0]; });
}

template <class R>
Run silu_mul(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[0] * sigmoid(x[0]) * x[1]; });
}

template <class R>
Run silu_mul_dgate(const Args& a) {
  return each<R, 3>(a, [](const std::array<R, 3>& x) {
    R s = sigmoid(x[0]);
    return x[2] * x[1] * (s + x[0] * s * (1 - s));
  });
}

template <class R>
Run silu_mul_dup(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[1] * (x[0] * sigmoid(x[0])); });
}

/// (1 + tanh u) / 2 = sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kTwoRootTwoOverPi = 1.5957691216057308;
template <class R>
R gelu_gate(R x) {
  R inner = std::fma(R(0.044715), x * x * x, x);
  return sigmoid(static_cast<R>(kTwoRootTwoOverPi) * inner);
}

/// d gelu / dx.
template <class R>
R gelu_slope(R x) {
  R s = gelu_gate(x), slope = static_cast<R>(kTwoRootTwoOverPi) * std::fma(R(3 * 0.044715) * x, x, R(1));
  return s + x * s * (1 - s) * slope;
}

template <class R>
Run gelu(const Args& a) {
  return each<R, 1>(a, [](const std::array<R, 1>& x) { return x[0] * gelu_gate(x[0]); });
}

template <class R>
Run gelu_dx(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& v) { return v[1] * gelu_slope(v[0]); });
}

template <class R>
Run gelu_mul(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[0] * gelu_gate(x[0]) * x[1]; });
}

template <class R>
Run gelu_mul_dgate(const Args& a) {
  return each<R, 3>(a, [](const std::array<R, 3>& x) { return x[2] * x[1] * gelu_slope(x[0]); });
}

template <class R>
Run gelu_mul_dup(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[1] * (x[0] * gelu_gate(x[0])); });
}

template <class R>
Run scale(const Args& a) {
  return each<R, 1>(a, [by = static_cast<R>(a.attr("by"))](const std::array<R, 1>& x) { return x[0] * by; });
}

template <class R>
Run dropout(const Args& a) {
  return fast([x = Rows<R>(a.in[0]), out = Rows<R>(a.out[0]), mask = Mask<R>(a, a.in[1], a.in[2]),
               tokens = a.range("t"), columns = a.range("d")](Context&) {
    for (i64 t = tokens.begin; t < tokens.end; t++) {
      const u64 row = mask.row(t);
      for (i64 d = columns.begin; d < columns.end; d++) {
        const R factor = mask.factor(row, static_cast<u64>(d));
        out.set(t, d, factor == 0 ? R(0) : x(t, d) * factor);
      }
    }
  });
}

template <class R>
Run mean(const Args& a) {
  return each<R, 2>(a, [](const std::array<R, 2>& x) { return x[0] / x[1]; });
}

/// 1 / count, times max_norm / norm where the mean gradient's norm is larger.
template <class R>
Run clip_scale(const Args& a) {
  return each<R, 2>(a, [most = static_cast<R>(a.attr("max_norm", 0))](const std::array<R, 2>& x) {
    return (most > 0 && x[0] > most ? most / x[0] : R(1)) / x[1];
  });
}

template <class R>
Run sgd(const Args& a) {
  return each<R, 4>(a, [](const std::array<R, 4>& x) { return std::fma(-x[3], x[1] * x[2], x[0]); });
}

template <class R>
Run adamw_m(const Args& a) {
  const double b = a.attr("beta1");
  return each<R, 3>(a, [b = static_cast<R>(b), rest = static_cast<R>(1 - b)](const std::array<R, 3>& x) {
    return std::fma(b, x[0], rest * (x[1] * x[2]));
  });
}

template <class R>
Run adamw_v(const Args& a) {
  const double b = a.attr("beta2");
  return each<R, 3>(a, [b = static_cast<R>(b), rest = static_cast<R>(1 - b)](const std::array<R, 3>& x) {
    R g = x[1] * x[2];
    return std::fma(b, x[0], rest * (g * g));
  });
}

/// b^n by squaring: the same bits everywhere.
double whole_power(double b, i64 n) {
  double p = 1;
  for (; n > 0; n /= 2, b *= b)
    if (n % 2 == 1) p *= b;
  return p;
}

template <class R>
Run adamw_w(const Args& a) {
  Loop loop = Loop::over_all(a, a.out_terms[0]);
  return Run([loop, w = Numbers<R>(a.in[0]), m = Numbers<R>(a.in[1]), v = Numbers<R>(a.in[2]),
              rate = Numbers<R>(a.in[3]), step = Numbers<R>(a.in[4]), out = Numbers<R>(a.out[0]), b1 = a.attr("beta1"),
              b2 = a.attr("beta2"), eps = static_cast<R>(a.attr("eps")),
              decay = static_cast<R>(a.attr("decay"))](Context& c) {
    const i64 n = std::llround(static_cast<double>(step[0]));
    const R c1 = static_cast<R>(1 - whole_power(b1, n)), c2 = static_cast<R>(1 - whole_power(b2, n)), r = rate[0];
    loop.each_parallel(c, [&](const i64* at) {
      R x = w[at[0]], move = (m[at[1]] / c1) / (std::sqrt(v[at[2]] / c2) + eps);
      out.set(at[5], std::fma(-r, std::fma(decay, x, move), x));
    });
  });
}

}  // namespace

template <class R>
std::vector<Kernel> elementwise_kernels() {
  return {{"add", "reference", prepare<R, add<R>>},
          {"add_sums", "reference", prepare<R, add_sums<R>>},
          {"accumulate", "reference", prepare<R, add_sums<R>>},
          {"finish", "reference", prepare<R, finish<R>>},
          {"finish_max", "reference", prepare<R, copy<R>>},
          {"cast", "reference", prepare<R, copy<R>>},
          {"read", "reference", prepare<R, read>},
          {"zero", "reference", prepare<R, zero>},
          {"constant", "reference", prepare<R, constant<R>>},
          {"spread", "reference", prepare<R, spread<R>>},
          {"silu_mul", "reference", prepare<R, silu_mul<R>>},
          {"silu_mul_dgate", "reference", prepare<R, silu_mul_dgate<R>>},
          {"silu_mul_dup", "reference", prepare<R, silu_mul_dup<R>>},
          {"gelu", "reference", prepare<R, gelu<R>>},
          {"gelu_mul", "reference", prepare<R, gelu_mul<R>>},
          {"gelu_mul_dgate", "reference", prepare<R, gelu_mul_dgate<R>>},
          {"gelu_mul_dup", "reference", prepare<R, gelu_mul_dup<R>>},
          {"scale", "reference", prepare<R, scale<R>>},
          {"gelu_dx", "reference", prepare<R, gelu_dx<R>>},
          {"dropout", "reference", prepare<R, dropout<R>>},
          {"mean", "reference", prepare<R, mean<R>>},
          {"clip_scale", "reference", prepare<R, clip_scale<R>>},
          {"sgd", "reference", prepare<R, sgd<R>>},
          {"adamw_m", "reference", prepare<R, adamw_m<R>>},
          {"adamw_v", "reference", prepare<R, adamw_v<R>>},
          {"adamw_w", "reference", prepare<R, adamw_w<R>>}};
}
template std::vector<Kernel> elementwise_kernels<float>();
template std::vector<Kernel> elementwise_kernels<double>();

}  // namespace plait::kernels::reference
