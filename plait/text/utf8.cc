#include "plait/text/utf8.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

namespace plait::text {

namespace {

constexpr CodePoint kInvalid{0xFFFD, 1, false};

// What may follow a lead byte: number of continuation bytes and the bounds of the first of them (Unicode table 3-7).
struct Lead {
  int more;
  unsigned char low, high;
};

Lead lead_of(unsigned char c) {
  if (c >= 0xC2 && c <= 0xDF) return {1, 0x80, 0xBF};
  if (c == 0xE0) return {2, 0xA0, 0xBF};
  if (c == 0xED) return {2, 0x80, 0x9F};
  if (c >= 0xE1 && c <= 0xEF) return {2, 0x80, 0xBF};
  if (c == 0xF0) return {3, 0x90, 0xBF};
  if (c >= 0xF1 && c <= 0xF3) return {3, 0x80, 0xBF};
  if (c == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of the longest prefix at `at` that a valid sequence could begin with (at least 1).
i64 subpart_bytes(std::string_view s, i64 at, Lead lead) {
  const i64 size = static_cast<i64>(s.size());
  i64 n = 1;
  while (n <= lead.more && at + n < size) {
    const unsigned char c = static_cast<unsigned char>(s[at + n]);
    const bool fits = n == 1 ? c >= lead.low && c <= lead.high : c >= 0x80 && c <= 0xBF;
    if (!fits) break;
    n++;
  }
  return n;
}

}  // namespace

CodePoint code_point_at(std::string_view s, i64 at) {
  const unsigned char c = static_cast<unsigned char>(s[at]);
  if (c < 0x80) return {c, 1, true};
  const Lead lead = lead_of(c);
  if (lead.more == 0 || subpart_bytes(s, at, lead) != lead.more + 1) return kInvalid;
  std::int32_t value = c & (0x3F >> lead.more);
  for (int k = 1; k <= lead.more; k++) value = value << 6 | (static_cast<unsigned char>(s[at + k]) & 0x3F);
  return {value, lead.more + 1, true};
}

CodePoint code_point_before(std::string_view s, i64 end) {
  for (i64 n = 1; n <= 4 && n <= end; n++) {
    const unsigned char c = static_cast<unsigned char>(s[end - n]);
    if (c >= 0x80 && c <= 0xBF) continue;
    const CodePoint p = code_point_at(s.substr(0, end), end - n);
    return p.bytes == n ? p : kInvalid;
  }
  return kInvalid;
}

void append_utf8(std::string& out, std::int32_t v) {
  if (v < 0x80) {
    out += static_cast<char>(v);
  } else if (v < 0x800) {
    out += static_cast<char>(0xC0 | v >> 6);
    out += static_cast<char>(0x80 | (v & 0x3F));
  } else if (v < 0x10000) {
    out += static_cast<char>(0xE0 | v >> 12);
    out += static_cast<char>(0x80 | (v >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (v & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | v >> 18);
    out += static_cast<char>(0x80 | (v >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (v >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (v & 0x3F));
  }
}

bool is_utf8(std::string_view s) {
  for (i64 at = 0; at < static_cast<i64>(s.size());) {
    const CodePoint p = code_point_at(s, at);
    if (!p.valid) return false;
    at += p.bytes;
  }
  return true;
}

i64 count_code_points(std::string_view s) {
  i64 n = 0;
  for (i64 at = 0; at < static_cast<i64>(s.size()); n++) at += code_point_at(s, at).bytes;
  return n;
}

std::string valid_utf8(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (i64 at = 0; at < static_cast<i64>(s.size());) {
    const CodePoint p = code_point_at(s, at);
    if (p.valid) {
      out += s.substr(at, p.bytes);
      at += p.bytes;
    } else {
      append_utf8(out, 0xFFFD);
      at += subpart_bytes(s, at, lead_of(static_cast<unsigned char>(s[at])));
    }
  }
  return out;
}

i64 open_sequence_bytes(std::string_view s, i64 at) {
  const Lead lead = lead_of(static_cast<unsigned char>(s[at]));
  const i64 n = subpart_bytes(s, at, lead);
  return n <= lead.more && at + n == static_cast<i64>(s.size()) ? n : 0;
}

bool is_letter(std::int32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const auto k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_number(std::int32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_white_space(std::int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(std::int32_t c) {
  const auto k = utf8proc_category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC;
}

std::string normalize(std::string_view s, Form form) {
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(s.size());
  const i64 size = static_cast<i64>(s.size());
  for (i64 at = 0; at < size;) {
    i64 end = at;
    bool ascii = true;
    for (CodePoint p; end < size && (p = code_point_at(s, end)).valid; end += p.bytes) ascii &= p.value < 0x80;
    if (ascii) {
      out += s.substr(at, end - at);
    } else {
      utf8proc_uint8_t* result = nullptr;
      const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(s.data() + at), end - at, &result,
                                  static_cast<utf8proc_option_t>(options));
      std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
      PLAIT_CHECK(n >= 0, "utf8proc: {}", utf8proc_errmsg(n));
      out.append(reinterpret_cast<const char*>(result), n);
    }
    at = end;
    if (at < size) out += s[at++];
  }
  return out;
}

}  // namespace plait::text
