// Two-dim views by global indices: what the kernels over rows of tokens share.
#pragma once
#include "plait/kernels/reference/loop.h"

namespace plait::kernels::reference {

/// A vector [T] or rows [T D] (or [T N H] with the last two dims folded by the caller), by global index.
template <class R>
struct Rows {
  Numbers<R> n;
  i64 t0 = 0, d0 = 0, stride = 1;
  Rows() = default;
  explicit Rows(const View& v)
      : n(v), t0(v.box[0].begin), d0(v.box.size() > 1 ? v.box[1].begin : 0), stride(v.stride(0)) {}
  i64 at(i64 t, i64 d = 0) const { return (t - t0) * stride + (d - d0); }
  R operator()(i64 t) const { return n[t - t0]; }
  R operator()(i64 t, i64 d) const { return n[at(t, d)]; }
  void set(i64 t, R x) const { n.set(t - t0, x); }
  void set(i64 t, i64 d, R x) const { n.set(at(t, d), x); }
};

/// [T N H] by global index.
template <class R>
struct Heads {
  Numbers<R> n;
  i64 t0 = 0, n0 = 0, h0 = 0, st = 0, sn = 0;
  Heads() = default;
  explicit Heads(const View& v)
      : n(v), t0(v.box[0].begin), n0(v.box[1].begin), h0(v.box[2].begin), st(v.stride(0)), sn(v.stride(1)) {}
  i64 at(i64 t, i64 head, i64 h) const { return (t - t0) * st + (head - n0) * sn + (h - h0); }
  R operator()(i64 t, i64 head, i64 h) const { return n[at(t, head, h)]; }
  void set(i64 t, i64 head, i64 h, R x) const { n.set(at(t, head, h), x); }
};

/// Indices [T] or [B P] by global index.
struct Indices {
  const std::int32_t* data = nullptr;
  i64 t0 = 0, p0 = 0, stride = 1;
  Indices() = default;
  explicit Indices(const View& v)
      : data(v.as<std::int32_t>()), t0(v.box[0].begin), p0(v.box.size() > 1 ? v.box[1].begin : 0), stride(v.stride(0)) {
    PLAIT_CHECK(v.dtype == DType::i32, "indices of {}", name_of(v.dtype));
  }
  i64 operator()(i64 t) const { return data[t - t0]; }
  i64 operator()(i64 b, i64 p) const { return data[(b - t0) * stride + p - p0]; }
};

inline bool inside(i64 i, Range r) { return i >= r.begin && i < r.end; }

}  // namespace plait::kernels::reference
