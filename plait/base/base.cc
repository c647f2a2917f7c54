#include "plait/base/base.h"

#include <cstdio>
#include <cstdlib>

namespace plait {

void check_failed(const char* file, int line, const char* condition, const std::string& text) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line, condition, text.c_str());
  std::abort();
}

i64 checked_mul(i64 a, i64 b, std::string_view what) {
  i64 r;
  if (__builtin_mul_overflow(a, b, &r)) fail(Code::bad_file, "{}: {} x {} does not fit into 64 bits", what, a, b);
  return r;
}

i64 checked_add(i64 a, i64 b, std::string_view what) {
  i64 r;
  if (__builtin_add_overflow(a, b, &r)) fail(Code::bad_file, "{}: {} + {} does not fit into 64 bits", what, a, b);
  return r;
}

}  // namespace plait
