#include "plait/comm/join.h"

namespace plait::comm {

using CopyFunction = void(std::byte*, const std::byte*, i64);
namespace join_base {
JoinFunction join;
SwapFunction swap_join;
CopyFunction copy_streams;
}  // namespace join_base
namespace join_avx2 {
JoinFunction join;
SwapFunction swap_join;
CopyFunction copy_streams;
}  // namespace join_avx2
namespace join_avx512 {
JoinFunction join;
SwapFunction swap_join;
CopyFunction copy_streams;
}  // namespace join_avx512

namespace {

struct Choice {
  const char* isa;
  JoinFunction* join;
  SwapFunction* swap_join;
  CopyFunction* copy_streams;
  bool available;
};

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// In order of preference.
const Choice kChoices[] = {
    {"avx512", join_avx512::join, join_avx512::swap_join, join_avx512::copy_streams, has_avx512()},
    {"avx2", join_avx2::join, join_avx2::swap_join, join_avx2::copy_streams,
     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
    {"base", join_base::join, join_base::swap_join, join_base::copy_streams, true},
};

const Choice& best() {
  for (auto& c : kChoices)
    if (c.available) return c;
  return kChoices[std::size(kChoices) - 1];
}

void run(JoinFunction* f, void* out, std::span<const std::byte* const> parts, i64 count, DType t, Join join) {
  PLAIT_CHECK(can_join(t, join), "{} of {}", name_of(join), name_of(t));
  if (parts.size() == 1) {
    if (out != parts[0]) std::memmove(out, parts[0], static_cast<size_t>(bytes_of(t, count)));
    return;
  }
  f(static_cast<std::byte*>(out), parts, count, t, join);
}

}  // namespace

bool can_join(DType t, Join join) {
  switch (t) {
    case DType::f32:
    case DType::f64:
    case DType::bf16:
    case DType::i32:
    case DType::i64:
      return true;
    case DType::i128:
      return join != Join::max;
    default:
      return join == Join::one;
  }
}

void join_parts(void* out, std::span<const std::byte* const> parts, i64 count, DType t, Join join) {
  run(join_function(), out, parts, count, t, join);
}

JoinFunction* join_function() {
  static JoinFunction* const f = best().join;
  return f;
}

SwapFunction* swap_function() {
  static SwapFunction* const f = best().swap_join;
  return f;
}

void copy_streams(std::byte* to, const std::byte* from, i64 bytes) {
  static CopyFunction* const f = best().copy_streams;
  f(to, from, bytes);
}

bool join_parts_with(std::string_view isa, void* out, std::span<const std::byte* const> parts, i64 count, DType t,
                     Join join) {
  for (auto& c : kChoices)
    if (isa == c.isa && c.available) {
      run(c.join, out, parts, count, t, join);
      return true;
    }
  return false;
}

}  // namespace plait::comm
