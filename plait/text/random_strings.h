// Random strings for tests: a mix of what tokenizers stumble over. scripts/oracles/text_random.py has the same
// generator.
#pragma once
#include <iterator>
#include <string>
#include <string_view>

#include "plait/base/random.h"
#include "plait/text/utf8.h"

namespace plait::text {

inline constexpr std::int32_t kSpaces[] = {' ',    '\t', '\n',   '\r',   0xA0,   0x2003,
                                           0x3000, 0x85, 0x2028, 0x200B, 0x180E, 0x0B};
inline constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
inline const char* const kContractions[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'x", "’s", "'ſ"};
inline const char* const kSpecials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>",  "<s>",   "</s>",
                                        "<unk>",         "<0x0A>",       "<|padding|>", "<|im_", "  "};
inline constexpr std::int32_t kNumbers[] = {0xB2, 0xBD, 0x661, 0x967, 0x2167, 0x2460, 0x1D7D8, 0xFF13, 0x4E94};
inline constexpr std::int32_t kAlphabet[] = {0x2581, 0x120, 0x10A, 0x100, 0xE9, 0x178};
inline const char* const kWords[] = {" the",   " of",      " running", " token", "Hello",  " I'm",
                                     " world", "https://", ".com",     " def",   "return", " über"};
struct Range {
  std::int32_t first, count;
};
inline constexpr Range kRanges[] = {{0x61, 26},       {0x41, 26},        {0x30, 10},       {0xC0, 0x180},
                                    {0x391, 0x70},    {0x410, 0x40},     {0x4E00, 0x5000}, {0x3041, 0x50},
                                    {0xAC00, 0x2BA0}, {0x1F300, 0x350},  {0x300, 0x70},    {0x0, 0x20},
                                    {0x900, 0x70},    {0x20000, 0xA000}, {0x1E00, 0x100},  {0x2190, 0x100}};

inline std::string random_string(i64 n) {
  const u64 stream = stream_of("plait.text.random") + static_cast<u64>(n);
  u64 counter = 0;
  auto draw = [&](size_t below) { return static_cast<std::int32_t>(random_bits(stream, ++counter) % below); };
  std::string out;
  const int parts = draw(20);
  for (int part = 0; part < parts; part++) {
    const int kind = draw(28);
    if (kind < static_cast<int>(std::size(kRanges))) {
      const Range r = kRanges[kind];
      for (int k = 1 + draw(7); k > 0; k--) append_utf8(out, r.first + draw(r.count));
    } else if (kind < 19) {
      out.append(1 + draw(5), ' ');
    } else if (kind == 19) {
      for (int k = 1 + draw(4); k > 0; k--) append_utf8(out, kSpaces[draw(std::size(kSpaces))]);
    } else if (kind == 20) {
      for (int k = 1 + draw(5); k > 0; k--) out += kPunctuation[draw(kPunctuation.size())];
    } else if (kind == 21) {
      out += kContractions[draw(std::size(kContractions))];
    } else if (kind == 22) {
      out += kSpecials[draw(std::size(kSpecials))];
    } else if (kind == 23) {
      for (int k = 1 + draw(3); k > 0; k--) append_utf8(out, kNumbers[draw(std::size(kNumbers))]);
    } else if (kind == 24) {
      for (int k = 1 + draw(3); k > 0; k--) append_utf8(out, kAlphabet[draw(std::size(kAlphabet))]);
    } else if (kind == 25) {
      const char c = static_cast<char>(0x21 + draw(0x5E));
      out.append(1 + draw(40), c);
    } else if (kind == 26) {
      out += kWords[draw(std::size(kWords))];
    } else {
      append_utf8(out, draw(0x3000));
    }
  }
  return out;
}

}  // namespace plait::text
