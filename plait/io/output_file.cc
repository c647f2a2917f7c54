#include "plait/io/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace plait::io {

namespace {
constexpr size_t kBufferBytes = size_t{1} << 20;
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  static std::atomic<int> number{0};
  aside_ = fmt::format("{}.{}-{}.part", path, ::getpid(), number++);
  fd_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) failed("create");
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
}

void OutputFile::failed(const char* what) {
  fail(Code::bad_file, "[{}] cannot {}: {}", aside_, what, std::generic_category().message(errno));
}

void OutputFile::write(const void* data, i64 bytes) {
  buffer_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  offset_ += bytes;
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::flush() {
  const char* p = buffer_.data();
  auto left = buffer_.size();
  while (left > 0) {
    auto n = ::write(fd_, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) failed("write");
    p += n;
    left -= static_cast<size_t>(n);
  }
  buffer_.clear();
}

void OutputFile::commit() {
  flush();
  if (::fsync(fd_) != 0) failed("sync");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) failed("rename");
  ::close(std::exchange(fd_, -1));
  auto folder = std::filesystem::path(path_).parent_path().string();
  int d = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (d >= 0) {
    ::fsync(d);
    ::close(d);
  }
}

}  // namespace plait::io
