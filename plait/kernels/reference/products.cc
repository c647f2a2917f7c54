// matmul by any rule, bias, sum_rows, sum_squares.
//
// A product's chain runs over the contracted factors, the one with leaves outermost, each ascending: acc = fma(x, y,
// acc); bf16 operands in pairs, the odd element first. At the end of a leaf the chain is added to the sum and starts
// anew.
#include <algorithm>

#include "plait/kernels/reference/loop.h"
#include "plait/kernels/reference/reference.h"

namespace plait::kernels::reference {

namespace {

/// Offsets of the contracted elements of each operand, in order; where leaves end.
struct Chain {
  std::vector<i64> x, y;
  std::vector<char> last;
};

/// The contracted factors, the one with leaves first.
std::string chain_order(const Args& a) {
  std::string order = a.contracted;
  auto leafed = std::find_if(order.begin(), order.end(), [&](char f) { return a.leaves.count(f) > 0; });
  if (leafed != order.end()) std::rotate(order.begin(), leafed, leafed + 1);
  return order;
}

Chain chain_of(const Args& a, bool exact) {
  const std::string order = chain_order(a);
  std::vector<std::string> groups;
  for (char f : order) groups.emplace_back(1, f);
  Loop loop(a, groups);
  for (size_t i = 0; i < a.in.size(); i++) loop.walk(a, a.in[i], a.in_terms[i]);
  // dims of output groups contribute through the outer loop, whose base also holds the begin of their boxes
  Chain c;
  loop.each([&](const i64* at) {
    c.x.push_back(at[0]);
    c.y.push_back(a.in.size() > 1 ? at[1] : 0);
    c.last.push_back(0);
  });
  if (c.last.empty()) return c;
  if (order.empty() || !exact || a.leaves.count(order[0]) == 0) {
    c.last.back() = 1;
    return c;
  }
  Range r = a.range(groups[0]);
  auto inner = static_cast<i64>(c.last.size()) / r.size();
  for (Range leaf : a.leaves_in(order[0], groups[0])) c.last[static_cast<size_t>((leaf.end - r.begin) * inner - 1)] = 1;
  return c;
}

template <class R>
Run matmul(const Args& a) {
  const bool exact = a.out[0].dtype == Sums<R>::kDType;
  const bool pairs = a.in[0].dtype == DType::bf16 && a.in[1].dtype == DType::bf16;
  return [loop = Loop::over_all(a, a.out_terms[0]), chain = chain_of(a, exact), x = Numbers<R>(a.in[0]),
          y = Numbers<R>(a.in[1]), out = Numbers<R>(a.out[0]), sums = Sums<R>(a.out[0], a.exponent, a.model_leaves),
          exact, pairs](Context& c) {
    if (exact) sums.zero();
    loop.each([&](const i64* at) {
      R s = 0;
      const size_t n = chain.x.size();
      size_t first = 0;  // of the leaf
      for (size_t j = 0; j < n; j++) {
        auto step = [&](size_t k) { s = std::fma(x[at[0] + chain.x[k]], y[at[1] + chain.y[k]], s); };
        const bool odd = (j - first) % 2 == 1;
        if (!pairs || odd || chain.last[j] != 0) step(j);  // the last of an odd number has no partner
        if (pairs && odd) step(j - 1);
        if (chain.last[j] == 0) continue;
        if (exact) {
          sums.add(at[2], s, c);
          s = 0;
        }
        first = j + 1;
      }
      if (!exact) out.set(at[2], s);
    });
  };
}

template <class R>
Run bias(const Args& a) {
  return [loop = Loop::over_all(a, a.out_terms[0]), x = Numbers<R>(a.in[0]), b = Numbers<R>(a.in[1]),
          out = Numbers<R>(a.out[0])](Context&) {
    loop.each([&](const i64* at) { out.set(at[2], x[at[0]] + b[at[1]]); });
  };
}

template <class R>
Run sum_rows(const Args& a) {
  return [loop = Loop::over_all(a, a.out_terms[0]), chain = chain_of(a, true), x = Numbers<R>(a.in[0]),
          sums = Sums<R>(a.out[0], a.exponent, a.model_leaves)](Context& c) {
    sums.zero();
    loop.each([&](const i64* at) {
      R s = 0;
      for (size_t j = 0; j < chain.x.size(); j++) {
        s += x[at[0] + chain.x[j]];
        if (chain.last[j] == 0) continue;
        sums.add(at[1], s, c);
        s = 0;
      }
    });
  };
}

template <class R>
Run sum_squares(const Args& a) {
  Loop loop(a, a.in_terms[0]);
  loop.walk(a, a.in[0], a.in_terms[0]);
  return [loop, x = Numbers<R>(a.in[0]), sums = Sums<R>(a.out[0], a.exponent, a.model_leaves)](Context& c) {
    sums.zero();
    loop.each([&](const i64* at) { sums.add(0, x[at[0]] * x[at[0]], c); });
  };
}

}  // namespace

template <class R>
std::vector<Kernel> product_kernels() {
  return {{"matmul", "reference", prepare<R, matmul<R>>},
          {"bias", "reference", prepare<R, bias<R>>},
          {"sum_rows", "reference", prepare<R, sum_rows<R>>},
          {"sum_squares", "reference", prepare<R, sum_squares<R>>}};
}
template std::vector<Kernel> product_kernels<float>();
template std::vector<Kernel> product_kernels<double>();

}  // namespace plait::kernels::reference
