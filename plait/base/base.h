// Words without a domain: sizes, errors, invariants.
//
// Who asks gets a Result; who does throws one Error with a code and a text ("[where] got ..., want ..., hint: ...");
// a broken invariant of ours aborts through PLAIT_CHECK, which stays on in release builds.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace plait {

using i64 = std::int64_t;
using i128 = __int128;
using u64 = std::uint64_t;

/// Exit codes of the command line; an Error carries one.
enum class Code { ok = 0, differs = 1, usage = 2, does_not_fit = 3, bad_file = 4, rank_lost = 5, not_finite = 6 };

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

template <class... A>
[[noreturn]] void fail(Code code, fmt::format_string<A...> f, A&&... a) {
  throw Error(code, fmt::format(f, std::forward<A>(a)...));
}

/// A value, or the reason why there is none.
template <class T>
class Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  static Result no(std::string why) { return Result(std::in_place_index<1>, std::move(why)); }
  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() { return std::get<0>(v_); }
  const T& operator*() const { return std::get<0>(v_); }
  T* operator->() { return &std::get<0>(v_); }
  const std::string& why() const { return std::get<1>(v_); }

 private:
  Result(std::in_place_index_t<1> i, std::string why) : v_(i, std::move(why)) {}
  std::variant<T, std::string> v_;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& text);

#define PLAIT_CHECK(condition, ...)                                                                      \
  do {                                                                                                   \
    if (!(condition)) ::plait::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (0)

/// Arithmetic on sizes that come from a file or a request: throws bad_file instead of wrapping.
i64 checked_mul(i64 a, i64 b, std::string_view what);
i64 checked_add(i64 a, i64 b, std::string_view what);

/// ceil(a / b) for b > 0, a >= 0.
constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
constexpr i64 round_up(i64 a, i64 b) { return ceil_div(a, b) * b; }

}  // namespace plait
