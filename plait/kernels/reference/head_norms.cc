// head_rms_norm with its gradients: rows of heads [T N H], one gain [H]. Sums over a head are lane sums (math.h); the
// gradient of the gain is a chain for each leaf of tokens times leaf of heads, over heads, then tokens.
#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

template <class R>
struct HeadNorm {
  Heads<R> x;
  Range t, n;
  i64 width;
  R eps;
  explicit HeadNorm(const Args& a)
      : x(a.in[0]), t(a.range("t")), n(a.range("n")), width(a.in[0].size(2)), eps(static_cast<R>(a.attr("eps"))) {}
  R inverse_rms(i64 token, i64 head) const {
    R s = lane_sum<R>(width, [&](R acc, i64 h) { return std::fma(x(token, head, h), x(token, head, h), acc); });
    return 1 / std::sqrt(s / static_cast<R>(width) + eps);
  }
  /// f(token, head) for all, split over the team.
  template <class F>
  void each(Context& c, const F& f) const {
    parallel(c, t, t.size() * n.size() * width, [&](Range part) {
      for (i64 token = part.begin; token < part.end; token++)
        for (i64 head = n.begin; head < n.end; head++) f(token, head);
    });
  }
};

template <class R>
Run head_rms_norm(const Args& a) {
  return Run([norm = HeadNorm<R>(a), gain = Rows<R>(a.in[1]), out = Heads<R>(a.out[0])](Context& c) {
    norm.each(c, [&](i64 t, i64 n) {
      const R r = norm.inverse_rms(t, n);
      for (i64 h = 0; h < norm.width; h++) out.set(t, n, h, norm.x(t, n, h) * r * gain(h));
    });
  });
}

/// dx = r (dy g - x c), c = r^2 mean(dy g x).
template <class R>
Run head_rms_norm_dx(const Args& a) {
  return Run([norm = HeadNorm<R>(a), gain = Rows<R>(a.in[1]), dy = Heads<R>(a.in[2]),
              out = Heads<R>(a.out[0])](Context& context) {
    norm.each(context, [&](i64 t, i64 n) {
      const R r = norm.inverse_rms(t, n);
      const R dot =
          lane_sum<R>(norm.width, [&](R s, i64 h) { return std::fma(dy(t, n, h) * gain(h), norm.x(t, n, h), s); });
      const R c = dot * r * r / static_cast<R>(norm.width);
      for (i64 h = 0; h < norm.width; h++) out.set(t, n, h, r * std::fma(-norm.x(t, n, h), c, dy(t, n, h) * gain(h)));
    });
  });
}

template <class R>
Run head_rms_norm_dgain(const Args& a) {
  return fast([norm = HeadNorm<R>(a), dy = Heads<R>(a.in[1]), tokens = leaves_or_whole(a, 't', "t"),
               heads = leaves_or_whole(a, 'n', "n"), sums = Sums<R>(a.out[0], a.exponent, a.model_leaves),
               chain = std::vector<R>(static_cast<size_t>(a.in[0].size(2)))](Context& c) mutable {
    sums.zero();
    for (Range of_tokens : tokens)
      for (Range of_heads : heads) {
        std::fill(chain.begin(), chain.end(), R(0));
        for (i64 n = of_heads.begin; n < of_heads.end; n++)
          for (i64 t = of_tokens.begin; t < of_tokens.end; t++) {
            const R r = norm.inverse_rms(t, n);
            for (size_t i = 0; i < chain.size(); i++) {
              const auto h = static_cast<i64>(i);
              chain[i] = std::fma(dy(t, n, h), norm.x(t, n, h) * r, chain[i]);
            }
          }
        for (size_t i = 0; i < chain.size(); i++) sums.add(static_cast<i64>(i), chain[i], c.overflow);
      }
  });
}

}  // namespace

template <class R>
std::vector<Kernel> head_norm_kernels() {
  return {{"head_rms_norm", "reference", prepare<R, head_rms_norm<R>>},
          {"head_rms_norm_dx", "reference", prepare<R, head_rms_norm_dx<R>>},
          {"head_rms_norm_dgain", "reference", prepare<R, head_rms_norm_dgain<R>>}};
}
template std::vector<Kernel> head_norm_kernels<float>();
template std::vector<Kernel> head_norm_kernels<double>();

}  // namespace plait::kernels::reference
