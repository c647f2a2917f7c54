// rope: out[h] = x[h] c - x[h + half] s, out[h + half] = x[h + half] c + x[h] s, angle = position * frequency in
// double.
#include <numbers>

#include "plait/kernels/cpu/math.h"
#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

/// Llama 3: long waves turn `factor` times slower, short ones as before, with a linear passage between.
double by_wavelength(double f, double factor, double low, double high, double original) {
  const double wave = 2 * std::numbers::pi / f;
  if (wave < original / high) return f;
  if (wave > original / low) return f / factor;
  const double smooth = (original / wave - low) / (high - low);
  return (1 - smooth) * f / factor + smooth * f;
}

/// base^(-2 i / dims), scaled as the attributes say.
std::vector<double> frequencies(const Args& a, i64 dims) {
  const double factor = a.attr("factor", 0), low = a.attr("low", 0), high = a.attr("high", 0);
  std::vector<double> all;
  for (i64 i = 0; i < dims / 2; i++) {
    double f = power(a.attr("base"), -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    if (factor != 0) f = high > low ? by_wavelength(f, factor, low, high, a.attr("original")) : f / factor;
    all.push_back(f);
  }
  return all;
}

template <class R>
Run rope(const Args& a) {
  const i64 width = a.in[0].size(2), dims = static_cast<i64>(a.attr("dims", static_cast<double>(width)));
  PLAIT_CHECK(dims % 2 == 0 && dims <= width, "rope: {} of {} dims turn", dims, width);
  return Run([x = Heads<R>(a.in[0]), position = Indices(a.in[1]), out = Heads<R>(a.out[0]), tokens = a.range("t"),
              heads = a.range("n"), table = frequencies(a, dims), half = dims / 2, width,
              sign = a.attr("inverse", 0) != 0 ? -1.0 : 1.0](Context& context) {
    parallel(context, tokens, tokens.size() * heads.size() * width, [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++)
        for (i64 h = 0; h < half; h++) {
          SinCos angle = sin_cos(static_cast<double>(position(t)) * table[static_cast<size_t>(h)]);
          R c = static_cast<R>(angle.cos), s = static_cast<R>(sign * angle.sin);
          for (i64 n = heads.begin; n < heads.end; n++) {
            R u = x(t, n, h), v = x(t, n, h + half);
            out.set(t, n, h, u * c - v * s);
            out.set(t, n, h + half, v * c + u * s);
          }
        }
      for (i64 t = part.begin; t < part.end; t++)
        for (i64 n = heads.begin; n < heads.end; n++)
          for (i64 h = 2 * half; h < width; h++) out.set(t, n, h, x(t, n, h));
    });
  });
}

}  // namespace

template <class R>
std::vector<Kernel> rope_kernels() {
  return {{"rope", "reference", prepare<R, rope<R>>}};
}
template std::vector<Kernel> rope_kernels<float>();
template std::vector<Kernel> rope_kernels<double>();

}  // namespace plait::kernels::reference
