// rms_norm and layer_norm with their gradients. Sums over a row are lane sums (math.h); the gradients of gain are
// chains over the tokens of a leaf.
#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

/// x's rows in Args: operand 0 of all ops here; a row is whole.
template <class R>
struct Norm {
  Rows<R> x;
  Range t;
  i64 width;
  R eps;
  explicit Norm(const Args& a)
      : x(a.in[0]), t(a.range("t")), width(a.in[0].size(1)), eps(static_cast<R>(a.attr("eps"))) {}
  R inverse_rms(i64 row) const {
    R s = lane_sum<R>(width, [&](R acc, i64 d) { return std::fma(x(row, d), x(row, d), acc); });
    return 1 / std::sqrt(s / static_cast<R>(width) + eps);
  }
  struct Moments {
    R mean, inverse;
  };
  Moments moments(i64 row) const {
    const auto n = static_cast<R>(width);
    R mean = lane_sum<R>(width, [&](R acc, i64 d) { return acc + x(row, d); }) / n;
    R var = lane_sum<R>(width,
                        [&](R acc, i64 d) {
                          R c = x(row, d) - mean;
                          return std::fma(c, c, acc);
                        }) /
            n;
    return {mean, 1 / std::sqrt(var + eps)};
  }
};

template <class R>
Run rms_norm(const Args& a) {
  return Run([norm = Norm<R>(a), gain = Rows<R>(a.in[1]), out = Rows<R>(a.out[0])](Context& context) {
    parallel(context, norm.t, norm.t.size() * norm.width, [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++) {
        R r = norm.inverse_rms(t);
        for (i64 d = 0; d < norm.width; d++) out.set(t, d, norm.x(t, d) * r * gain(d));
      }
    });
  });
}

/// dx = r (dy g - x c), c = r^2 mean(dy g x).
template <class R>
Run rms_norm_dx(const Args& a) {
  return Run(
      [norm = Norm<R>(a), gain = Rows<R>(a.in[1]), dy = Rows<R>(a.in[2]), out = Rows<R>(a.out[0])](Context& context) {
        parallel(context, norm.t, norm.t.size() * norm.width, [&](Range part) {
          for (i64 t = part.begin; t < part.end; t++) {
            R r = norm.inverse_rms(t);
            R dot = lane_sum<R>(norm.width, [&](R s, i64 d) { return std::fma(dy(t, d) * gain(d), norm.x(t, d), s); });
            R c = dot * r * r / static_cast<R>(norm.width);
            for (i64 d = 0; d < norm.width; d++) out.set(t, d, r * std::fma(-norm.x(t, d), c, dy(t, d) * gain(d)));
          }
        });
      });
}

/// A chain per column over the tokens of each leaf; f(t) prepares a token, g(t, d) is its factor.
template <class R, class Prepare, class Factor>
Run gain_gradient(const Args& a, Prepare prepare_row, Factor factor) {
  return fast([norm = Norm<R>(a), dy = Rows<R>(a.in[1]), leaves = leaves_or_whole(a, 't', "t"),
               sums = Sums<R>(a.out[0], a.exponent, a.model_leaves),
               chain = std::vector<R>(static_cast<size_t>(a.in[0].size(1))), prepare_row, factor](Context& c) mutable {
    sums.zero();
    for (Range leaf : leaves) {
      std::fill(chain.begin(), chain.end(), R(0));
      for (i64 t = leaf.begin; t < leaf.end; t++) {
        auto row = prepare_row(norm, t);
        for (size_t d = 0; d < chain.size(); d++) {
          auto column = static_cast<i64>(d);
          chain[d] = std::fma(dy(t, column), factor(norm, row, t, column), chain[d]);
        }
      }
      for (size_t d = 0; d < chain.size(); d++) sums.add(static_cast<i64>(d), chain[d], c.overflow);
    }
  });
}

template <class R>
Run rms_norm_dgain(const Args& a) {
  return gain_gradient<R>(
      a, [](const Norm<R>& n, i64 t) { return n.inverse_rms(t); },
      [](const Norm<R>& n, R r, i64 t, i64 d) { return n.x(t, d) * r; });
}

template <class R>
Run layer_norm_dgain(const Args& a) {
  using Moments = typename Norm<R>::Moments;
  return gain_gradient<R>(
      a, [](const Norm<R>& n, i64 t) { return n.moments(t); },
      [](const Norm<R>& n, Moments m, i64 t, i64 d) { return (n.x(t, d) - m.mean) * m.inverse; });
}

template <class R>
Run layer_norm(const Args& a) {
  return fast([norm = Norm<R>(a), gain = Rows<R>(a.in[1]), shift = Rows<R>(a.in[2]),
               out = Rows<R>(a.out[0])](Context& context) {
    parallel(context, norm.t, norm.t.size() * norm.width, [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++) {
        auto [mean, inverse] = norm.moments(t);
        for (i64 d = 0; d < norm.width; d++)
          out.set(t, d, std::fma((norm.x(t, d) - mean) * inverse, gain(d), shift(d)));
      }
    });
  });
}

/// dx = r (a - mean(a) - x^ mean(a x^)), a = dy g.
template <class R>
Run layer_norm_dx(const Args& a) {
  return Run(
      [norm = Norm<R>(a), gain = Rows<R>(a.in[1]), dy = Rows<R>(a.in[2]), out = Rows<R>(a.out[0])](Context& context) {
        parallel(context, norm.t, norm.t.size() * norm.width, [&](Range part) {
          const auto n = static_cast<R>(norm.width);
          for (i64 t = part.begin; t < part.end; t++) {
            auto m = norm.moments(t);
            auto hat = [&](i64 d) { return (norm.x(t, d) - m.mean) * m.inverse; };
            R plain = lane_sum<R>(norm.width, [&](R s, i64 d) { return std::fma(dy(t, d), gain(d), s); }) / n;
            R along = lane_sum<R>(norm.width, [&](R s, i64 d) { return std::fma(dy(t, d) * gain(d), hat(d), s); }) / n;
            for (i64 d = 0; d < norm.width; d++)
              out.set(t, d, m.inverse * std::fma(-hat(d), along, std::fma(dy(t, d), gain(d), -plain)));
          }
        });
      });
}

}  // namespace

template <class R>
std::vector<Kernel> norm_kernels() {
  return {{"rms_norm", "reference", prepare<R, rms_norm<R>>},
          {"rms_norm_dx", "reference", prepare<R, rms_norm_dx<R>>},
          {"rms_norm_dgain", "reference", prepare<R, rms_norm_dgain<R>>},
          {"layer_norm", "reference", prepare<R, layer_norm<R>>},
          {"layer_norm_dx", "reference", prepare<R, layer_norm_dx<R>>},
          {"layer_norm_dgain", "reference", prepare<R, layer_norm_dgain<R>>}};
}
template std::vector<Kernel> norm_kernels<float>();
template std::vector<Kernel> norm_kernels<double>();

}  // namespace plait::kernels::reference
