// Shared by the tests of this room: folders that vanish, files, the shared data.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "plait/base/base.h"

namespace plait::io {

namespace fs = std::filesystem;

/// A file or folder of the shared data; the test skips when it is not there.
inline std::string shared(const std::string& path) {
  const char* root = std::getenv("PLAIT_SHARED");
  return std::string(root != nullptr ? root : "../shared") + "/data/" + path;
}
#define NEED_SHARED(name, path)          \
  const std::string name = shared(path); \
  if (!fs::exists(name)) GTEST_SKIP() << name << " is not there"

class TempFolder {
 public:
  TempFolder() {
    auto pattern = (fs::temp_directory_path() / "plait-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code e;
    fs::remove_all(path_, e);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream f(path, std::ios::binary);
  f.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

/// f() ends with bad_file and a text that holds every one of `parts`.
template <class F, class... P>
void expect_bad_file(F f, P... parts) {
  try {
    f();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file) << e.what();
    for (std::string part : {std::string(parts)...}) EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

/// f() works or ends with bad_file; true when it worked.
template <class F>
bool works_or_bad_file(F f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file) << e.what();
    EXPECT_EQ(std::string_view(e.what()).find('\0'), std::string_view::npos);
    return false;
  }
}

/// Peak resident memory of this process, in bytes.
inline i64 peak_bytes() {
  std::ifstream f("/proc/self/status");
  std::string word;
  i64 kib = 0;
  while (f >> word)
    if (word == "VmHWM:") f >> kib;
  return kib * 1024;
}

}  // namespace plait::io
