// Filters, tests and methods of the template language.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/text/template_value.h"

namespace plait::text::tmpl {

/// Arguments of a call, by place and by name.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at a place or of a name; nullptr when it is not given.
  const Value* get(size_t place, std::string_view name) const;
};

/// Counts what an evaluation costs and stops it at the limits.
class Meter {
 public:
  Meter(i64 steps, i64 bytes) : steps_(steps), bytes_(bytes) {}
  void step(int line) {
    if (--steps_ < 0) fail(Code::bad_file, "[chat template:{}] got more steps than the limit allows", line);
  }
  /// Work on `bytes` that are there: 64 of them count as a step.
  void work(int line, i64 bytes) {
    steps_ -= bytes / 64;
    step(line);
  }
  /// Before `bytes` are made.
  void bytes(int line, i64 bytes);

 private:
  i64 steps_, bytes_;
};

struct Place {
  int line;
  Meter& meter;
  [[noreturn]] void wrong(const std::string& what) const { fail(Code::bad_file, "[chat template:{}] {}", line, what); }
};

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, const Place& place);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, const Place& place);
Value call_method(const Value& object, std::string_view name, const Arguments& arguments, const Place& place);

/// `needle in haystack`.
bool contains(const Value& haystack, const Value& needle, const Place& place);
/// The items that a loop sees: of a list itself, of a string its characters, of a dict its keys, of undefined none.
List items_of(const Value& value, const Place& place);
/// Python's s[begin:end:step]; absent bounds are nullptr.
Value slice(const Value& value, const Value* begin, const Value* end, const Value* step, const Place& place);
/// value[index] or value.name; undefined when there is none.
Value item(const Value& value, const Value& index, const Place& place);
/// A string, charged to the meter.
Value text_value(std::string s, const Place& place);
bool less(const Value& a, const Value& b, const Place& place);

}  // namespace plait::text::tmpl
