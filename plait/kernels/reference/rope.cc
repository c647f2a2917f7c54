// rope: out[h] = x[h] c - x[h + half] s, out[h + half] = x[h + half] c + x[h] s, angle = position * frequency in
// double.
#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

/// base^(-2 i / rotary), scaled as the attributes say.
std::vector<double> frequencies(const Args& a, i64 rotary) {
  const double base = a.attr("base"), factor = a.attr("factor", 1), low = a.attr("low", 0), high = a.attr("high", 0),
               original = a.attr("original", 0);
  std::vector<double> all;
  for (i64 i = 0; i < rotary / 2; i++) {
    double f = power(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
    if (high > low) {
      double turns = original * f / 6.283185307179586;  // within the original context
      double keep = std::min(1.0, std::max(0.0, (turns - low) / (high - low)));
      f = keep * f + (1 - keep) * f / factor;
    } else {
      f /= factor;
    }
    all.push_back(f);
  }
  return all;
}

template <class R>
Run rope(const Args& a) {
  const i64 width = a.in[0].size(2), rotary = static_cast<i64>(a.attr("rotary", static_cast<double>(width)));
  PLAIT_CHECK(rotary % 2 == 0 && rotary <= width, "rope: {} of {} dims turn", rotary, width);
  return [x = Heads<R>(a.in[0]), position = Indices(a.in[1]), out = Heads<R>(a.out[0]), tokens = a.range("t"),
          heads = a.range("n"), table = frequencies(a, rotary), half = rotary / 2, width,
          sign = a.attr("inverse", 0) != 0 ? -1.0 : 1.0](Context&) {
    for (i64 t = tokens.begin; t < tokens.end; t++)
      for (i64 h = 0; h < half; h++) {
        SinCos angle = sin_cos(static_cast<double>(position(t)) * table[static_cast<size_t>(h)]);
        R c = static_cast<R>(angle.cos), s = static_cast<R>(sign * angle.sin);
        for (i64 n = heads.begin; n < heads.end; n++) {
          R u = x(t, n, h), v = x(t, n, h + half);
          out.set(t, n, h, std::fma(u, c, -(v * s)));
          out.set(t, n, h + half, std::fma(v, c, u * s));
        }
      }
    for (i64 t = tokens.begin; t < tokens.end; t++)
      for (i64 n = heads.begin; n < heads.end; n++)
        for (i64 h = 2 * half; h < width; h++) out.set(t, n, h, x(t, n, h));
  };
}

}  // namespace

template <class R>
std::vector<Kernel> rope_kernels() {
  return {{"rope", "reference", prepare<R, rope<R>>}};
}
template std::vector<Kernel> rope_kernels<float>();
template std::vector<Kernel> rope_kernels<double>();

}  // namespace plait::kernels::reference
