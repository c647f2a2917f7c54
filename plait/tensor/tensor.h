// A tensor is the part of a logical value that lies in a box of global indices. It is local: it knows no rank.
#pragma once
#include <memory>

#include "plait/tensor/dtype.h"
#include "plait/tensor/range.h"

namespace plait {

/// Memory of its own, zeroed, aligned to 64 bytes (to 2 MiB and with huge pages advised from 2 MiB on). Not shared.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(i64 bytes);
  ~Buffer();
  Buffer(Buffer&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  i64 bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  i64 bytes_ = 0;
};

/// How the elements of a box lie in memory.
///   rows    row-major over the box
///   panels  a weight as the products read it (kernels/panels.h)
///   pages   keys of a KV cache as attention reads them (kernels/cpu/pages.h)
enum class Layout : std::uint8_t { rows, panels, pages };

/// Somebody else's memory, seen as a tensor.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Layout layout = Layout::rows;
  Box box;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  i64 elements() const { return volume(box); }
  i64 size(size_t dim) const { return box[dim].size(); }
  /// Row-major stride of a dim, in elements.
  i64 stride(size_t dim) const {
    i64 s = 1;
    for (size_t i = dim + 1; i < box.size(); i++) s *= box[i].size();
    return s;
  }
  /// Row-major offset of a global index, in elements.
  i64 at(const std::vector<i64>& x) const {
    i64 o = 0;
    for (size_t i = 0; i < box.size(); i++) o = o * box[i].size() + x[i] - box[i].begin;
    return o;
  }
};

/// A view with its memory.
struct Tensor : View {
  Buffer buffer;
  Tensor() = default;
  Tensor(DType t, Box b, Layout l = Layout::rows);
};

}  // namespace plait
