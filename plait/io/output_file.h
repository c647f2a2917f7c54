// A file written aside and renamed into place once whole: a reader never sees half of it, an interrupted writer never
// harms what was there.
#pragma once
#include <functional>

#include "plait/base/base.h"

namespace plait::io {

/// Where bytes go, and who produces a tensor's bytes: it calls the sink as often as it likes.
using Sink = std::function<void(const void* data, i64 bytes)>;
using Producer = std::function<void(const Sink&)>;

class OutputFile {
 public:
  /// Opens PATH.<process>-<number>.part beside `path`. errors: bad_file with path and the system's reason.
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // without commit() the file aside is removed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, i64 bytes);
  i64 offset() const { return offset_; }
  /// Everything on disk under the final name.
  void commit();

 private:
  void flush();
  [[noreturn]] void failed(const char* what);

  std::string path_, aside_, buffer_;
  int fd_ = -1;
  i64 offset_ = 0;
};

}  // namespace plait::io
