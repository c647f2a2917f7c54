#include "plait/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "plait/text/utf8.h"

namespace plait::text {

namespace {

constexpr const char* kWhite =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

// The pattern with \s and \S written as sets; inside a set \S stays as it is.
std::string with_white_space(std::string_view p) {
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < p.size(); i++) {
    const char c = p[i];
    if (c == '\\' && i + 1 < p.size()) {
      const char d = p[++i];
      if (d == 's') {
        out += in_set ? kWhite : std::string("[") + kWhite + "]";
      } else if (d == 'S' && !in_set) {
        out += std::string("[^") + kWhite + "]";
      } else {
        if (d == 'h' || d == 'H' || d == 'G' || d == 'K' || d == 'Q' || d == 'C')
          fail(Code::bad_file, "[pattern \"{}\"] got \\{} at offset {}, which is not supported", p, d, i - 1);
        out += c;
        out += d;
      }
      continue;
    }
    if (in_set && c == '[' && !(i + 1 < p.size() && p[i + 1] == ':'))
      fail(Code::bad_file, "[pattern \"{}\"] got a set inside a set at offset {}, which is not supported", p, i);
    if (in_set && c == '&' && i + 1 < p.size() && p[i + 1] == '&')
      fail(Code::bad_file, "[pattern \"{}\"] got && inside a set at offset {}, which is not supported", p, i);
    out += c;
    if (in_set && c == '[') {  // a class such as [:alpha:], to its end
      const size_t close = p.find(":]", i);
      if (close == std::string_view::npos) fail(Code::bad_file, "[pattern \"{}\"] got an open [: at offset {}", p, i);
      out += p.substr(i + 1, close + 2 - (i + 1));
      i = close + 1;
    } else if (!in_set && c == '[') {
      in_set = true;
      if (i + 1 < p.size() && p[i + 1] == '^') out += p[++i];
      if (i + 1 < p.size() && p[i + 1] == ']') out += p[++i];
    } else if (in_set && c == ']') {
      in_set = false;
    }
  }
  return out;
}

struct MatchDataDeleter {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* m) const { pcre2_match_context_free(m); }
};
struct JitStackDeleter {
  void operator()(pcre2_jit_stack* m) const { pcre2_jit_stack_free(m); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  if (!is_utf8(pattern)) fail(plait::Code::bad_file, "[pattern] got invalid UTF-8");
  const std::string rewritten = with_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code->code) {
    PCRE2_UCHAR text[200];
    pcre2_get_error_message(error, text, sizeof text);
    fail(plait::Code::bad_file, "[pattern \"{}\"] got {}", pattern, reinterpret_cast<const char*>(text));
  }
  // Without JIT (a build without it, memory that may not be executed) the interpreter gives the same matches.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

void Regex::each(std::string_view text, i64 begin, i64 end, const std::function<void(i64, i64)>& found) const {
  std::string_view s = text.substr(begin, end - begin);
  std::string shadow;  // the same offsets, with a control character for every invalid byte
  if (!is_utf8(s)) {
    shadow = s;
    for (i64 at = 0; at < static_cast<i64>(s.size());) {
      const CodePoint p = code_point_at(s, at);
      if (!p.valid) shadow[at] = '\1';
      at += p.bytes;
    }
    s = shadow;
  }
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(pcre2_match_data_create_from_pattern(code_->code, nullptr));
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(pcre2_match_context_create(nullptr));
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr));
  PLAIT_CHECK(match && context && stack, "no memory for a match");
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(s.data());
  for (size_t at = 0; at < s.size();) {
    const int rc = pcre2_match(code_->code, subject, s.size(), at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      PCRE2_UCHAR why[200];
      pcre2_get_error_message(rc, why, sizeof why);
      fail(plait::Code::bad_file, "[pattern \"{}\"] matching stopped: {}", pattern_, reinterpret_cast<char*>(why));
    }
    const PCRE2_SIZE* o = pcre2_get_ovector_pointer(match.get());
    if (o[1] > o[0]) {
      found(begin + static_cast<i64>(o[0]), begin + static_cast<i64>(o[1]));
      at = o[1];
    } else {
      at = o[1] + (o[1] < s.size() ? code_point_at(s, static_cast<i64>(o[1])).bytes : 1);
    }
  }
}

}  // namespace plait::text
