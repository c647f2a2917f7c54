// matmul by any rule, bias, sum_rows, and the exact norm of a gradient: sum_squares, gradient_norm.
//
// A product's chain runs over the contracted factors, the one with leaves outermost, each ascending: acc = fma(x, y,
// acc); bf16 operands in pairs, the odd element first. At the end of a leaf the chain is added to the sum and starts
// anew.
#include <algorithm>

#include "plait/base/exact_squares.h"
#include "plait/kernels/reference/chain.h"
#include "plait/kernels/reference/reference.h"

namespace plait::kernels::reference {

namespace {

/// The contracted factors, the one with leaves first.
std::string chain_order(const Args& a) {
  std::string order = a.contracted;
  auto leafed = std::find_if(order.begin(), order.end(), [&](char f) { return a.leaves.count(f) > 0; });
  if (leafed != order.end()) std::rotate(order.begin(), leafed, leafed + 1);
  return order;
}

}  // namespace

Chain chain_of(const Args& a, bool exact, bool pairs) {
  const std::string order = chain_order(a);
  std::vector<std::string> groups;
  for (char f : order) groups.emplace_back(1, f);
  Loop loop(a, groups);
  for (size_t i = 0; i < a.in.size(); i++) loop.walk(a, a.in[i], a.in_terms[i]);
  // Dims of output groups contribute through the outer loop, whose base also holds the begin of their boxes.
  Chain c;
  loop.each([&](const i64* at) {
    c.x.push_back(at[0]);
    c.y.push_back(a.in.size() > 1 ? at[1] : 0);
  });
  c.last.resize(c.x.size());
  if (c.x.empty()) return c;
  c.last.back() = 1;
  if (exact && !order.empty() && a.leaves.count(order[0]) > 0) {
    const Range r = a.range(groups[0]);
    const i64 inner = c.size() / r.size();
    for (Range leaf : a.leaves_in(order[0], groups[0]))
      c.last[static_cast<size_t>((leaf.end - r.begin) * inner - 1)] = 1;
  }
  if (!pairs) return c;
  for (size_t first = 0, j = 0; j < c.x.size(); first = ++j) {
    for (; c.last[j] == 0; j++)
      if ((j - first) % 2 == 0) {
        std::swap(c.x[j], c.x[j + 1]);
        std::swap(c.y[j], c.y[j + 1]);
      }
  }
  return c;
}

namespace {

template <class R>
Run matmul(const Args& a) {
  const bool exact = a.out[0].dtype == Sums<R>::kDType;
  return fast([loop = Loop::over_all(a, a.out_terms[0]), chain = chain_of(a, exact, in_pairs(a)),
               x = Numbers<R>(a.in[0]), y = Numbers<R>(a.in[1]), out = Numbers<R>(a.out[0]),
               sums = Sums<R>(a.out[0], a.exponent, a.model_leaves), exact](Context& c) {
    if (exact) sums.zero();
    loop.each([&](const i64* at) {
      R s = 0;
      for (size_t j = 0; j < chain.x.size(); j++) {
        s = std::fma(x[at[0] + chain.x[j]], y[at[1] + chain.y[j]], s);
        if (!exact || chain.last[j] == 0) continue;
        sums.add(at[2], s, c.overflow);
        s = 0;
      }
      if (!exact) out.set(at[2], s);
    });
  });
}

template <class R>
Run bias(const Args& a) {
  return Run([loop = Loop::over_all(a, a.out_terms[0]), x = Numbers<R>(a.in[0]), b = Numbers<R>(a.in[1]),
              out = Numbers<R>(a.out[0])](Context& c) {
    loop.each_parallel(c, [&](const i64* at) { out.set(at[2], x[at[0]] + b[at[1]]); });
  });
}

template <class R>
Run sum_rows(const Args& a) {
  return fast([loop = Loop::over_all(a, a.out_terms[0]), chain = chain_of(a, true), x = Numbers<R>(a.in[0]),
               sums = Sums<R>(a.out[0], a.exponent, a.model_leaves)](Context& c) {
    sums.zero();
    loop.each([&](const i64* at) {
      R s = 0;
      for (size_t j = 0; j < chain.x.size(); j++) {
        s += x[at[0] + chain.x[j]];
        if (chain.last[j] == 0) continue;
        sums.add(at[1], s, c.overflow);
        s = 0;
      }
    });
  });
}

template <class R>
typename ExactSquares<R>::Lane* lanes_of(const Args& a, const View& v) {
  PLAIT_CHECK(v.dtype == Sums<R>::kDType && v.elements() == ExactSquares<R>::kLanes, "{}: digits in {} of {}", a.op,
              v.elements(), name_of(v.dtype));
  return v.as<typename ExactSquares<R>::Lane>();
}

template <class R>
Run sum_squares(const Args& a) {
  Loop loop(a, a.in_terms[0]);
  loop.walk(a, a.in[0], a.in_terms[0]);
  return fast([loop, x = Numbers<R>(a.in[0]), lanes = lanes_of<R>(a, a.out[0])](Context& c) {
    std::fill_n(lanes, ExactSquares<R>::kLanes, 0);
    loop.each([&](const i64* at) {
      if (!ExactSquares<R>::add(lanes, x[at[0]])) c.overflow = true;
    });
  });
}

template <class R>
Run gradient_norm(const Args& a) {
  return [lanes = lanes_of<R>(a, a.in[0]), out = Numbers<R>(a.out[0])](Context& c) {
    const R norm = ExactSquares<R>::root(lanes);
    if (!std::isfinite(norm)) c.overflow = true;
    out.set(0, norm);
  };
}

}  // namespace

template <class R>
std::vector<Kernel> product_kernels() {
  return {{"matmul", "tiles", tiled_matmul<R>},
          {"matmul", "reference", prepare<R, matmul<R>>},
          {"bias", "reference", prepare<R, bias<R>>},
          {"sum_rows", "reference", prepare<R, sum_rows<R>>},
          {"sum_squares", "reference", prepare<R, sum_squares<R>>},
          {"gradient_norm", "reference", prepare<R, gradient_norm<R>>}};
}
template std::vector<Kernel> product_kernels<float>();
template std::vector<Kernel> product_kernels<double>();

}  // namespace plait::kernels::reference
