#include "plait/text/added_tokens.h"

#include <algorithm>

namespace plait::text {

AddedTokenFinder::AddedTokenFinder(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& e) { return e.text.empty(); });
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& e : entries_) begins_[static_cast<unsigned char>(e.text[0])] = true;
}

// Narrows the range of entries that agree with s[at...] by one byte at a time.
const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view s, i64 at, bool special) const {
  const Entry* best = nullptr;
  auto low = entries_.begin(), high = entries_.end();
  for (size_t depth = 0; low != high && at + static_cast<i64>(depth) < static_cast<i64>(s.size()); depth++) {
    const unsigned char c = static_cast<unsigned char>(s[at + static_cast<i64>(depth)]);
    low = std::partition_point(low, high, [&](const Entry& e) {
      return e.text.size() <= depth || static_cast<unsigned char>(e.text[depth]) < c;
    });
    high =
        std::partition_point(low, high, [&](const Entry& e) { return static_cast<unsigned char>(e.text[depth]) == c; });
    for (auto e = low; e != high && e->text.size() == depth + 1; ++e)
      if (special || !e->special) best = &*e;
  }
  return best;
}

std::vector<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view s, bool special) const {
  std::vector<Match> out;
  if (entries_.empty()) return out;
  const i64 size = static_cast<i64>(s.size());
  i64 done = 0;
  for (i64 at = 0; at < size;) {
    const Entry* e = begins_[static_cast<unsigned char>(s[at])] ? longest_at(s, at, special) : nullptr;
    if (!e) {
      at++;
      continue;
    }
    i64 begin = at, end = at + static_cast<i64>(e->text.size());
    at = end;
    if (e->token.single_word && ((begin > 0 && is_word(code_point_before(s, begin).value)) ||
                                 (end < size && is_word(code_point_at(s, end).value))))
      continue;
    if (e->token.strip_left)
      while (begin > done) {
        const CodePoint p = code_point_before(s, begin);
        if (!is_white_space(p.value) || begin - p.bytes < done) break;
        begin -= p.bytes;
      }
    if (e->token.strip_right)
      while (end < size) {
        const CodePoint p = code_point_at(s, end);
        if (!is_white_space(p.value)) break;
        end += p.bytes;
      }
    out.push_back({begin, end, e->token.id});
    done = end;
    at = end;
  }
  return out;
}

}  // namespace plait::text
