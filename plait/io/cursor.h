// Reading a binary file from its start, every step checked against the bytes that are left.
#pragma once
#include <concepts>
#include <cstring>

#include "plait/io/mapped_file.h"

namespace plait::io {

/// Text of a file as it may stand in a message: control and non-ASCII bytes escaped, at most 80 of them.
std::string shown(std::string_view text);

class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(&file) {}

  const std::string& path() const { return file_->path(); }
  i64 offset() const { return offset_; }
  i64 left() const { return file_->size() - offset_; }

  template <class T>
  requires std::is_arithmetic_v<T> T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  /// A 64-bit count of things of at least `least_bytes` each (> 0): refused when the file cannot hold them.
  i64 count(std::string_view what, i64 least_bytes) {
    i64 at = offset_;
    auto n = number<u64>(what);
    if (n > static_cast<u64>(left() / least_bytes))
      bad(what, at, n, fmt::format("at most {} in the {} bytes left", left() / least_bytes, left()));
    return static_cast<i64>(n);
  }

  /// A 64-bit length and that many bytes; a view into the file.
  std::string_view text(std::string_view what) {
    i64 n = count(what, 1);
    return {reinterpret_cast<const char*>(take(n, what)), static_cast<size_t>(n)};
  }

  /// Passes `bytes` bytes, which must be there; their address.
  const std::byte* take(i64 bytes, std::string_view what) {
    if (bytes > left())
      bad(what, offset_, fmt::format("the file's end after {} bytes", left()), fmt::format("{} bytes", bytes));
    const std::byte* p = file_->data() + offset_;
    offset_ += bytes;
    return p;
  }

  template <class Got, class Want>
  [[noreturn]] void bad(std::string_view what, i64 at, const Got& got, const Want& want) const {
    fail(Code::bad_file, "[{}] {} at offset {}: got {}, want {}", file_->path(), what, at, got, want);
  }

 private:
  const MappedFile* file_;
  i64 offset_ = 0;
};

}  // namespace plait::io
