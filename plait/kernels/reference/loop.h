// What every reference kernel is made of: elements of any float dtype read and written as R (float or double), exact
// sums, and a loop over factor groups that walks all operands at once.
#pragma once
#include <emmintrin.h>

#include <cmath>
#include <cstring>

#include "plait/kernels/kernel.h"
#include "plait/kernels/reference/math.h"

namespace plait::kernels::reference {

/// Elements of a rows-layout view, by offset.
template <class R>
struct Numbers {
  void* data = nullptr;
  DType dtype = DType::f32;
  Numbers() = default;
  explicit Numbers(const View& v) : data(v.data), dtype(v.dtype) {}
  R operator[](i64 i) const {
    if (dtype == (sizeof(R) == 4 ? DType::f32 : DType::f64)) return static_cast<const R*>(data)[i];
    switch (dtype) {
      case DType::f32:
        return static_cast<R>(static_cast<const float*>(data)[i]);
      case DType::f64:
        return static_cast<R>(static_cast<const double*>(data)[i]);
      case DType::bf16:
        return static_cast<R>(static_cast<float>(static_cast<const bf16*>(data)[i]));
      default:
        return static_cast<R>(f16_to_f32(static_cast<const std::uint16_t*>(data)[i]));
    }
  }
  void set(i64 i, R x) const {
    switch (dtype) {
      case DType::f32:
        static_cast<float*>(data)[i] = static_cast<float>(x);
        return;
      case DType::f64:
        static_cast<double*>(data)[i] = static_cast<double>(x);
        return;
      case DType::bf16:
        static_cast<bf16*>(data)[i] = bf16(static_cast<float>(x));
        return;
      default:
        static_cast<std::uint16_t*>(data)[i] = f32_to_f16(static_cast<float>(x));
    }
  }
};

/// Exact sums: i64 of 2^exponent for float, i128 of 2^(exponent + 40) for double; or plain R where sums are not exact.
template <class R>
struct Sums {
  using Fixed = std::conditional_t<sizeof(R) == 4, i64, i128>;
  static constexpr DType kDType = sizeof(R) == 4 ? DType::i64 : DType::i128;
  void* data = nullptr;
  i64 bytes = 0;
  bool exact = true;
  R up = 1, down = 1, limit = 0;

  Sums() = default;
  /// model_leaves: how many leaves a sum of the model may have; a leaf that could wrap such a sum is flagged.
  Sums(const View& v, int exponent, i64 model_leaves) : Sums(v.dtype == kDType, exponent, model_leaves) {
    data = v.data;
    bytes = bytes_of(v.dtype, v.elements());
  }
  Sums(bool is_exact, int exponent, i64 model_leaves) : exact(is_exact) {
    constexpr int kMore = sizeof(R) == 4 ? 0 : 40, kTop = sizeof(R) == 4 ? 62 : 126;
    up = std::ldexp(R(1), exponent + kMore);
    down = std::ldexp(R(1), -exponent - kMore);
    limit = std::ldexp(R(1), kTop) / static_cast<R>(std::max<i64>(model_leaves, 1));
  }
  void zero() const {
    if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
  }
  /// A leaf as an integer, nearest even; 0 and the flag where it is too large or no number.
  Fixed fixed(R leaf, bool& overflow) const {
    R y = leaf * up;
    if (!(std::fabs(y) < limit)) {
      overflow = true;
      return 0;
    }
    if constexpr (sizeof(R) == 4)
      return _mm_cvtss_si64(_mm_set_ss(y));
    else
      return std::fabs(y) < 0x1p53 ? static_cast<Fixed>(_mm_cvtsd_si64(_mm_set_sd(y))) : static_cast<Fixed>(y);
  }
  R number(Fixed q) const { return static_cast<R>(q) * down; }

  void add(i64 i, R leaf, bool& overflow) const {
    if (exact) {
      static_cast<Fixed*>(data)[i] += fixed(leaf, overflow);
    } else {
      if (!std::isfinite(leaf)) overflow = true;
      static_cast<R*>(data)[i] += leaf;
    }
  }
  R get(i64 i) const { return exact ? number(static_cast<const Fixed*>(data)[i]) : static_cast<const R*>(data)[i]; }
};

/// A walk over factor groups, the last innermost; views have at most 5 dims, an op at most 11 views.
struct Loop {
  static constexpr size_t kDims = 6, kViews = 11;
  std::vector<std::string> groups;
  Range range[kDims];
  i64 stride[kViews][kDims] = {}, base[kViews] = {};
  size_t dims = 0, views = 0;
  bool empty = false;

  Loop() = default;
  Loop(const Args& a, std::vector<std::string> over) : groups(std::move(over)), dims(groups.size()) {
    PLAIT_CHECK(dims <= kDims, "{}: {} factor groups", a.op, dims);
    for (size_t d = 0; d < dims; d++) {
      range[d] = a.range(groups[d]);
      empty |= range[d].empty();
    }
  }
  /// Over all of an op's views, operands first.
  static Loop over_all(const Args& a, std::vector<std::string> groups) {
    Loop l(a, std::move(groups));
    for (size_t i = 0; i < a.in.size(); i++) l.walk(a, a.in[i], a.in_terms[i]);
    for (size_t i = 0; i < a.out.size(); i++) l.walk(a, a.out[i], a.out_terms[i]);
    return l;
  }
  /// Dims of groups that are not walked stay at their first element.
  void walk(const Args& a, const View& v, const Term& term) {
    PLAIT_CHECK(views < kViews && term.size() == v.box.size(), "{}: a term of {} dims for a view of {}", a.op,
                term.size(), v.box.size());
    for (size_t d = 0; d < term.size(); d++)
      for (size_t g = 0; g < dims; g++) {
        if (groups[g] != term[d]) continue;
        PLAIT_CHECK(empty || v.box[d].contains(range[g]), "{}: the box {} does not hold {} of {}", a.op,
                    to_string(v.box), to_string(range[g]), groups[g]);
        stride[views][g] += v.stride(d);
        base[views] -= v.box[d].begin * v.stride(d);
      }
    views++;
  }
  /// f(offsets): one offset a view.
  template <class F>
  void each(F f) const {
    part(dims > 0 ? range[0] : Range{}, f);
  }
  /// The same, split over the team along the first group; f of different elements at once.
  template <class F>
  void each_parallel(Context& c, F f) const;

 private:
  template <class F>
  void part(Range outer, F& f) const {
    if (empty) return;
    i64 at[kViews], x[kDims];
    Range in[kDims];
    for (size_t d = 0; d < dims; d++) in[d] = d == 0 ? outer : range[d];
    for (size_t v = 0; v < views; v++) {
      at[v] = base[v];
      for (size_t d = 0; d < dims; d++) at[v] += in[d].begin * stride[v][d];
    }
    for (size_t d = 0; d < dims; d++) x[d] = in[d].begin;
    for (;;) {
      f(static_cast<const i64*>(at));
      size_t d = dims;
      while (d > 0) {
        d--;
        x[d]++;
        for (size_t v = 0; v < views; v++) at[v] += stride[v][d];
        if (x[d] < in[d].end) break;
        x[d] = in[d].begin;
        for (size_t v = 0; v < views; v++) at[v] -= in[d].size() * stride[v][d];
        if (d == 0) return;
      }
      if (dims == 0) return;
    }
  }
};

/// Leaves of factor f inside its range; all of it as one where the model has no leaves.
inline std::vector<Range> leaves_or_whole(const Args& a, char f, const std::string& g) {
  if (a.leaves.count(f) > 0) return a.leaves_in(f, g);
  Range r = a.range(g);
  return r.empty() ? std::vector<Range>{} : std::vector<Range>{r};
}

/// f(a...) with the instructions of AVX2 and fma where the processor has them: one instruction for each fma in place of
/// a library call, and the same bits.
template <class F, class... A>
__attribute__((target("avx2,fma"), flatten)) void call_avx2(F& f, A&&... a) {
  f(a...);
}
template <class F, class... A>
void call_fast(F& f, A&&... a) {
  if (isa() >= Isa::avx2)
    call_avx2(f, a...);
  else
    f(a...);
}

/// body(part) for parts of a range, on the team where the work (elements) is worth waking it.
template <class Body>
void parallel(Context& c, Range all, i64 work, const Body& body) {
  constexpr i64 kAlone = 16384;
  auto part = [&](Range r) {
    Range of{all.begin + r.begin, all.begin + r.end};
    call_fast(body, of);
  };
  if (work < kAlone)
    part({0, all.size()});
  else
    c.team.split(all.size(), 1, part);
}

template <class F>
void Loop::each_parallel(Context& c, F f) const {
  if (empty) return;
  i64 work = 1;
  for (size_t d = 0; d < dims; d++) work *= range[d].size();
  auto body = [&](Range outer) { part(outer, f); };
  parallel(c, dims > 0 ? range[0] : Range{0, 1}, work, body);
}

template <class Body>
Run fast(Body body) {
  return [body = std::move(body)](Context& c) mutable { call_fast(body, c); };
}

/// Why this kernel does not take these views, or empty.
template <class R>
std::string declined(const Args& a) {
  auto check = [&](const View& v, const char* what, size_t i) -> std::string {
    if (v.layout != Layout::rows) return fmt::format("{}: {} {} does not lie in rows", a.op, what, i);
    if (is_quantized(v.dtype)) return fmt::format("{}: {} {} holds blocks ({})", a.op, what, i, name_of(v.dtype));
    bool mine = sizeof(R) == 4 ? v.dtype != DType::f64 && v.dtype != DType::i128
                               : v.dtype == DType::f64 || v.dtype == DType::i128 || v.dtype == DType::i32;
    return mine ? "" : fmt::format("{}: {} {} is {}", a.op, what, i, name_of(v.dtype));
  };
  for (size_t i = 0; i < a.in.size(); i++)
    if (auto why = check(a.in[i], "operand", i); !why.empty()) return why;
  for (size_t i = 0; i < a.out.size(); i++)
    if (auto why = check(a.out[i], "output", i); !why.empty()) return why;
  return "";
}

template <class R, Run (*Make)(const Args&)>
Result<Run> prepare(const Args& a) {
  if (auto why = declined<R>(a); !why.empty()) return Result<Run>::no(why);
  bool nothing = true;
  for (const View& v : a.out) nothing &= v.elements() == 0;
  return nothing ? Run([](Context&) {}) : Make(a);
}

}  // namespace plait::kernels::reference
