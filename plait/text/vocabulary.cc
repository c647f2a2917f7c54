#include "plait/text/vocabulary.h"

#include <array>
#include <bit>

#include "plait/base/hash.h"

namespace plait::text {

TextIndex::TextIndex(const std::vector<std::string>& texts) : texts_(texts.data()) {
  PLAIT_CHECK(static_cast<i64>(texts.size()) <= kMaxTokens, "{} texts", texts.size());
  slots_.resize(std::bit_ceil(2 * texts.size() + 2));
  mask_ = slots_.size() - 1;
  for (std::uint32_t id = 0; id < texts.size(); id++) {
    const std::string& t = texts[id];
    if (t.empty()) continue;
    u64 at = hash_bytes(t.data(), static_cast<i64>(t.size())) & mask_;
    while (slots_[at] != 0 && texts[slots_[at] - 1] != t) at = (at + 1) & mask_;
    slots_[at] = id + 1;
  }
}

std::optional<std::uint32_t> TextIndex::find(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  u64 at = hash_bytes(text.data(), static_cast<i64>(text.size())) & mask_;
  for (; slots_[at] != 0; at = (at + 1) & mask_)
    if (texts_[slots_[at] - 1] == text) return slots_[at] - 1;
  return std::nullopt;
}

Merge resolve_merge(std::string_view left, std::string_view right, i64 number, const TextIndex& index,
                    std::string_view source) {
  const auto l = index.find(left), r = index.find(right);
  if (!l || !r || !index.find(std::string(left) + std::string(right)))
    fail(Code::bad_file, "[{}] merge {}: got \"{}\" + \"{}\", want two tokens whose join is a token", source, number,
         valid_utf8(left), valid_utf8(right));
  return {*l, *r};
}

std::vector<Merge> resolve_merges(const std::vector<std::string_view>& merges, const TextIndex& index,
                                  std::string_view source) {
  std::vector<Merge> out;
  out.reserve(merges.size());
  for (std::string_view m : merges) {
    const size_t space = m.find(' ', 1);
    if (m.empty() || space == std::string_view::npos)
      fail(Code::bad_file, "[{}] merge {}: got \"{}\", want two tokens with a space between", source, out.size(),
           valid_utf8(m));
    out.push_back(resolve_merge(m.substr(0, space), m.substr(space + 1), static_cast<i64>(out.size()), index, source));
  }
  return out;
}

namespace {

// Bytes that print keep their number, the others follow from 256 on in their order.
constexpr bool prints(int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

constexpr std::array<std::int32_t, 256> make_alphabet() {
  std::array<std::int32_t, 256> a{};
  std::int32_t next = 256;
  for (int b = 0; b < 256; b++) a[b] = prints(b) ? b : next++;
  return a;
}
constexpr auto kAlphabet = make_alphabet();

constexpr std::array<std::int16_t, 512> make_inverse() {
  std::array<std::int16_t, 512> a{};
  for (auto& x : a) x = -1;
  for (int b = 0; b < 256; b++) a[kAlphabet[b]] = static_cast<std::int16_t>(b);
  return a;
}
constexpr auto kInverse = make_inverse();

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::int32_t character_of_byte(unsigned char byte) { return kAlphabet[byte]; }

int byte_of_character(std::int32_t c) { return c >= 0 && c < 512 ? kInverse[c] : -1; }

int byte_of_byte_token(std::string_view t) {
  if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return -1;
  const int high = hex_digit(t[3]), low = hex_digit(t[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace plait::text
