// UTF-8 and the few character classes that pre-tokenizers use.
//
// Text is bytes: an invalid byte is decoded as one U+FFFD of length 1 and kept as it is, so that offsets into the bytes
// stay true and nothing is lost. Classes follow Unicode 15 (utf8proc 2.8).
#pragma once
#include <string>
#include <string_view>

#include "plait/base/base.h"

namespace plait::text {

struct CodePoint {
  std::int32_t value;  // U+FFFD for an invalid byte
  std::int32_t bytes;  // 1..4
  bool valid;
};

/// The code point that begins at byte `at` < s.size(). Overlong forms, surrogates and values past U+10FFFF are invalid.
CodePoint code_point_at(std::string_view s, i64 at);

/// The bytes of the code point that ends just before byte `end` > 0 (an invalid byte counts as one).
CodePoint code_point_before(std::string_view s, i64 end);

void append_utf8(std::string& out, std::int32_t value);
bool is_utf8(std::string_view s);

/// Number of code points; an invalid byte counts as one.
i64 count_code_points(std::string_view s);

/// Every maximal invalid part (Unicode 3.9, "U+FFFD substitution of maximal subparts") becomes one U+FFFD.
std::string valid_utf8(std::string_view s);

/// At byte `at`: the length of an incomplete but so far valid sequence that runs into the end of s, else 0.
i64 open_sequence_bytes(std::string_view s, i64 at);

bool is_letter(std::int32_t c);       // \p{L}
bool is_number(std::int32_t c);       // \p{N}
bool is_white_space(std::int32_t c);  // the White_Space property
bool is_word(std::int32_t c);         // \w: letters, marks, decimal and letter numbers, connectors

enum class Form { nfc, nfd, nfkc, nfkd };
/// The normal form of s; invalid bytes stay where they are and bound the runs that are normalised.
std::string normalize(std::string_view s, Form form);

}  // namespace plait::text
