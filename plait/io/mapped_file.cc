#include "plait/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "plait/io/lost_pages.h"

namespace plait::io {

namespace {
std::string reason(int error) { return std::generic_category().message(error); }
}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  int fd;
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(Code::bad_file, "[{}] cannot open: {}", path, reason(errno));
  struct stat s {};
  int error = ::fstat(fd, &s) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(s.st_mode)) {
    ::close(fd);
    fail(Code::bad_file, "[{}] got {}, want a regular file", path,
         S_ISDIR(s.st_mode) ? "a folder" : "a device or pipe");
  }
  if (error == 0 && s.st_size > 0) {
    void* p = ::mmap(nullptr, static_cast<size_t>(s.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      error = errno;
    } else {
      watch_ = watch_mapping(p, static_cast<size_t>(s.st_size));
      if (watch_ >= 0) {
        data_ = static_cast<const std::byte*>(p);
        size_ = s.st_size;
        fd_ = fd;
        return;
      }
      ::munmap(p, static_cast<size_t>(s.st_size));
      error = EMFILE;
    }
  }
  ::close(fd);
  if (error != 0) fail(Code::bad_file, "[{}] cannot map: {}", path, reason(error));
}

MappedFile MappedFile::of_bytes(std::string name, std::string_view bytes) {
  MappedFile f;
  f.path_ = std::move(name);
  auto* p = new std::byte[bytes.size()];
  if (!bytes.empty()) std::memcpy(p, bytes.data(), bytes.size());
  f.data_ = p;
  f.size_ = static_cast<i64>(bytes.size());
  return f;
}

MappedFile::~MappedFile() {
  if (fd_ < 0) {
    delete[] data_;
    return;
  }
  unwatch_mapping(watch_);
  ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  ::close(fd_);
}

MappedFile::MappedFile(MappedFile&& o) noexcept
    : path_(std::move(o.path_)),
      data_(std::exchange(o.data_, nullptr)),
      size_(std::exchange(o.size_, 0)),
      fd_(std::exchange(o.fd_, -1)),
      watch_(std::exchange(o.watch_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  std::swap(fd_, o.fd_);
  std::swap(watch_, o.watch_);
  return *this;
}

void MappedFile::check_whole() const {
  if (fd_ < 0) return;
  struct stat s {};
  if (::fstat(fd_, &s) != 0) fail(Code::bad_file, "[{}] cannot be read: {}", path_, reason(errno));
  if (lost_pages(watch_) || s.st_size < size_)
    fail(Code::bad_file, "[{}] got {} bytes while it was read, want the {} that it had when it was opened", path_,
         s.st_size, size_);
}

void MappedFile::advise(i64 offset, i64 bytes, int advice, bool inside) const {
  if (fd_ < 0) return;
  i64 page = ::sysconf(_SC_PAGESIZE);
  i64 begin = std::clamp<i64>(offset, 0, size_);
  i64 end = begin + std::clamp<i64>(bytes, 0, size_ - begin);
  begin = inside ? round_up(begin, page) : begin / page * page;
  if (inside && end != size_) end = end / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), advice);
}

void MappedFile::advise_sequential() const { advise(0, size_, MADV_SEQUENTIAL, false); }
void MappedFile::will_need(i64 offset, i64 bytes) const { advise(offset, bytes, MADV_WILLNEED, false); }
void MappedFile::dont_need(i64 offset, i64 bytes) const { advise(offset, bytes, MADV_DONTNEED, true); }

}  // namespace plait::io
