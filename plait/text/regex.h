// A pattern of a pre-tokenizer, matched by PCRE2 with JIT over UTF-8 (code points 14.0 of Unicode in PCRE2 10.42).
//
// Tokenizer files carry patterns of Oniguruma. `\s` and `\S` are rewritten to the White_Space property (PCRE2's own
// `\s` also takes U+180E); constructs that mean something else in PCRE2 (`&&` and nested sets in a class) are refused.
// Work is bounded: a pattern that needs more than kMatchLimit steps for a match is an error, not a hang.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "plait/base/base.h"

namespace plait::text {

class Regex {
 public:
  static constexpr std::uint32_t kMatchLimit = 10'000'000;

  /// errors  bad_file: the pattern does not compile or uses a refused construct
  explicit Regex(std::string_view pattern);

  /// Calls `found(begin, end)` for every match in text[begin, end), in order; empty matches are skipped. What lies
  /// outside of [begin, end) is not seen, by lookaround neither. Invalid bytes match as a control character would.
  void each(std::string_view text, i64 begin, i64 end, const std::function<void(i64, i64)>& found) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

}  // namespace plait::text
