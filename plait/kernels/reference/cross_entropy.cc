// Cross entropy in parts. sum_exp: a lane sum for each leaf of the vocabulary. pick gives zero where it is not the
// owner. A target below zero is masked.
#include <atomic>

#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

template <class R>
Run row_max(const Args& a) {
  return Run([x = Rows<R>(a.in[0]), out = Rows<R>(a.out[0]), rows = a.range("t"), columns = a.range("v")](Context& c) {
    parallel(c, rows, rows.size() * columns.size(), [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++) {
        R m = -INFINITY;
        for (i64 v = columns.begin; v < columns.end; v++) m = std::max(m, x(t, v));
        out.set(t, m);
      }
    });
  });
}

template <class R>
Run sum_exp(const Args& a) {
  return Run([x = Rows<R>(a.in[0]), m = Rows<R>(a.in[1]), out = Rows<R>(a.out[0]), rows = a.range("t"),
              width = a.range("v").size(), sums = Sums<R>(a.out[0], a.exponent, a.model_leaves),
              leaves = leaves_or_whole(a, 'v', "v")](Context& c) {
    sums.zero();
    std::atomic<bool> overflow{false};
    parallel(c, rows, rows.size() * width, [&](Range part) {
      bool flag = false;
      for (i64 t = part.begin; t < part.end; t++)
        for (Range leaf : leaves)
          sums.add(out.at(t),
                   lane_sum<R>(leaf.size(), [&](R s, i64 i) { return s + exp(x(t, leaf.begin + i) - m(t)); }), flag);
      if (flag) overflow.store(true, std::memory_order_relaxed);
    });
    if (overflow) c.overflow = true;
  });
}

template <class R>
Run sum_exp_dx(const Args& a) {
  return Run([x = Rows<R>(a.in[0]), m = Rows<R>(a.in[1]), d = Rows<R>(a.in[2]), out = Rows<R>(a.out[0]),
              rows = a.range("t"), columns = a.range("v")](Context& c) {
    parallel(c, rows, rows.size() * columns.size(), [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++)
        for (i64 v = columns.begin; v < columns.end; v++) out.set(t, v, d(t) * exp(x(t, v) - m(t)));
    });
  });
}

template <class R>
Run pick(const Args& a) {
  return fast([x = Rows<R>(a.in[0]), target = Indices(a.in[1]), out = Rows<R>(a.out[0]), rows = a.range("t"),
               owned = a.range("v")](Context&) {
    for (i64 t = rows.begin; t < rows.end; t++) out.set(t, inside(target(t), owned) ? x(t, target(t)) : R(0));
  });
}

template <class R>
Run pick_dx(const Args& a) {
  return Run([target = Indices(a.in[0]), d = Rows<R>(a.in[1]), out = Rows<R>(a.out[0]), rows = a.range("t"),
              columns = a.range("v")](Context& c) {
    parallel(c, rows, rows.size() * columns.size(), [&](Range part) {
      for (i64 t = part.begin; t < part.end; t++)
        for (i64 v = columns.begin; v < columns.end; v++) out.set(t, v, target(t) == v ? d(t) : R(0));
    });
  });
}

template <class R>
Run nll(const Args& a) {
  return fast([m = Rows<R>(a.in[0]), sum = Rows<R>(a.in[1]), picked = Rows<R>(a.in[2]), target = Indices(a.in[3]),
               out = Rows<R>(a.out[0]), rows = a.range("t")](Context&) {
    for (i64 t = rows.begin; t < rows.end; t++) out.set(t, target(t) < 0 ? R(0) : (m(t) - picked(t)) + log(sum(t)));
  });
}

template <class R>
Run nll_dsum(const Args& a) {
  return fast([sum = Rows<R>(a.in[0]), target = Indices(a.in[1]), d = Rows<R>(a.in[2]), out = Rows<R>(a.out[0]),
               rows = a.range("t")](Context&) {
    for (i64 t = rows.begin; t < rows.end; t++) out.set(t, target(t) < 0 ? R(0) : d(t) / sum(t));
  });
}

template <class R>
Run nll_dpick(const Args& a) {
  return fast(
      [target = Indices(a.in[0]), d = Rows<R>(a.in[1]), out = Rows<R>(a.out[0]), rows = a.range("t")](Context&) {
        for (i64 t = rows.begin; t < rows.end; t++) out.set(t, target(t) < 0 ? R(0) : -d(t));
      });
}

template <class R>
Run sum_tokens(const Args& a) {
  return fast([x = Rows<R>(a.in[0]), sums = Sums<R>(a.out[0], a.exponent, a.model_leaves),
               leaves = leaves_or_whole(a, 't', "t")](Context& c) {
    sums.zero();
    for (Range leaf : leaves) {
      R s = 0;
      for (i64 t = leaf.begin; t < leaf.end; t++) s += x(t);
      sums.add(0, s, c.overflow);
    }
  });
}

}  // namespace

template <class R>
std::vector<Kernel> cross_entropy_kernels() {
  return {{"row_max", "reference", prepare<R, row_max<R>>},       {"sum_exp", "reference", prepare<R, sum_exp<R>>},
          {"sum_exp_dx", "reference", prepare<R, sum_exp_dx<R>>}, {"pick", "reference", prepare<R, pick<R>>},
          {"pick_dx", "reference", prepare<R, pick_dx<R>>},       {"nll", "reference", prepare<R, nll<R>>},
          {"nll_dsum", "reference", prepare<R, nll_dsum<R>>},     {"nll_dpick", "reference", prepare<R, nll_dpick<R>>},
          {"sum_tokens", "reference", prepare<R, sum_tokens<R>>}};
}
template std::vector<Kernel> cross_entropy_kernels<float>();
template std::vector<Kernel> cross_entropy_kernels<double>();

}  // namespace plait::kernels::reference
