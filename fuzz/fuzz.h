// Shared by the fuzzers: any bytes end in a parsed thing or in bad_file, nothing else.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "plait/base/base.h"

namespace plait {

/// Runs f; an Error of another code than bad_file (or `also`) is a finding.
template <class F>
int survives(F f, Code also = Code::bad_file) {
  try {
    f();
  } catch (const Error& e) {
    if (e.code() == Code::bad_file || e.code() == also) return 0;
    std::fprintf(stderr, "exit code %d: %s\n", static_cast<int>(e.code()), e.what());
    std::abort();
  }
  return 0;
}

/// What is read back from what a thing prints prints the same.
template <class T>
void prints_and_reads_back(const T& thing) {
  const std::string text = thing.text();
  PLAIT_CHECK(T::parse(text).text() == text, "another text when it is read back:\n{}", text);
}

inline std::string_view text_of(const std::uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace plait
