// How a prepared kernel walks its operands.
#pragma once
#include "plait/kernels/kernel.h"

namespace plait::kernels {

/// Below so many elements (of elementwise work) a call stays on the caller's thread: waking others costs more.
inline constexpr i64 kAlone = 16384;

/// Bytes of an element of a plain type.
inline i64 size_of(DType t) { return info(t).block_bytes; }

/// f(Range) over rows of `width` elements, split over the team where it pays.
template <class F>
void split_rows(Context& c, i64 rows, i64 width, F f) {
  if (rows * width < kAlone) {
    if (rows > 0) f(Range{0, rows});
  } else {
    c.team.split(rows, 1, f);
  }
}

/// What a kernel does with each of its rows of `width` elements, whoever calls it for a row and in whatever order.
struct RowWork {
  i64 rows = 0, width = 0;
  std::function<void(Range)> run;
};

inline Run run_of(RowWork w) {
  return [w = std::move(w)](Context& c) { split_rows(c, w.rows, w.width, [&](Range r) { w.run(r); }); };
}

/// A part of the elements of an output and what belongs to it in each operand: `rows` rows of `inner` elements that are
/// contiguous everywhere; row r lies at the sum of index x stride over up to three outer dims. Operand 0 is the output.
/// An operand that lacks a dim is the same along it.
struct Walk {
  static constexpr size_t kOuter = 3, kOperands = 3;
  struct Operand {
    std::byte* data = nullptr;
    i64 stride[kOuter] = {};  // bytes
    i64 bytes = 0;            // of an element
  };
  Operand operand[kOperands];
  size_t operands = 0;
  i64 size[kOuter] = {1, 1, 1};
  i64 inner = 1, rows = 1;

  /// f(out, in 0, in 1, elements) for all rows, split over the team.
  template <class F>
  void run(Context& c, F f) const {
    i64 total = rows * inner;
    if (total == 0) return;
    if (total < kAlone) {
      part({0, rows}, {0, inner}, f);
    } else if (rows == 1) {
      c.team.split(inner, 256, [&](Range r) { part({0, 1}, r, f); });
    } else {
      c.team.split(rows, 1, [&](Range r) { part(r, {0, inner}, f); });
    }
  }

 private:
  template <class F>
  void part(Range which, Range elements, F f) const {
    for (i64 r = which.begin; r < which.end; r++) {
      i64 index[kOuter] = {r / (size[1] * size[2]), r / size[2] % size[1], r % size[2]};
      std::byte* p[kOperands] = {};
      for (size_t k = 0; k < operands; k++) {
        const Operand& o = operand[k];
        p[k] = o.data + index[0] * o.stride[0] + index[1] * o.stride[1] + index[2] * o.stride[2] +
               elements.begin * o.bytes;
      }
      f(p[0], p[1], p[2], elements.size());
    }
  }
};

/// The walk of an elementwise op (operands named by terms); says why not if there are too many dims.
Result<Walk> walk_of(const Args& a);

/// Rows of a view along its first dim: row `i` (global index) begins at data + (i - begin) * stride bytes.
struct RowsOf {
  std::byte* data = nullptr;
  i64 begin = 0, stride = 0;
  explicit RowsOf(const View& v)
      : data(v.as<std::byte>()), begin(v.box[0].begin), stride(v.stride(0) * size_of(v.dtype)) {}
  template <class T>
  T* at(i64 i) const {
    return reinterpret_cast<T*>(data + (i - begin) * stride);
  }
};

inline bool is_real(DType t) { return t == DType::f32 || t == DType::bf16; }

}  // namespace plait::kernels
