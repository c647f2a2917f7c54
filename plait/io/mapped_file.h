// A file mapped read-only. Pages come in when they are touched, so a process holds only what it reads.
//
// Only regular files are mapped (a FIFO, a device or a folder is refused, without waiting on it). The mapping is
// private. Of a file that somebody truncates while it is mapped the lost part reads as zeros (lost_pages.h): who has
// read calls check_whole() before what was read is used. Writers of this project write aside and rename, which never
// does that.
#pragma once
#include <cstddef>
#include <span>

#include "plait/base/base.h"

namespace plait::io {

class MappedFile {
 public:
  /// errors  bad_file with the path and the system's reason
  explicit MappedFile(const std::string& path);
  /// The same over bytes of its own, called `name` in messages: downloads, tests, fuzzing.
  static MappedFile of_bytes(std::string name, std::string_view bytes);
  ~MappedFile();
  MappedFile(MappedFile&& o) noexcept;
  MappedFile& operator=(MappedFile&& o) noexcept;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  i64 size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }

  /// After reading: throws bad_file when the file has been cut short since it was mapped.
  void check_whole() const;

  /// Hints; offsets in bytes. They change no result and never fail.
  void advise_sequential() const;
  void will_need(i64 offset, i64 bytes) const;
  /// Gives the whole pages inside the range back; they are read again when touched.
  void dont_need(i64 offset, i64 bytes) const;

 private:
  MappedFile() = default;
  void advise(i64 offset, i64 bytes, int advice, bool inside) const;

  std::string path_;
  const std::byte* data_ = nullptr;
  i64 size_ = 0;
  int fd_ = -1, watch_ = -1;  // of a mapping
};

}  // namespace plait::io
