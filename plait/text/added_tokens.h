// Finds added and special tokens in a text: leftmost first, of those that begin at one place the longest.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plait/text/vocabulary.h"

namespace plait::text {

class AddedTokenFinder {
 public:
  struct Entry {
    std::string text;
    AddedToken token;
    bool special;
  };
  struct Match {
    i64 begin, end, id;
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<Entry> entries);

  /// The matches in s, in order and disjoint. Special tokens count only with `special`.
  std::vector<Match> find(std::string_view s, bool special) const;
  bool empty() const { return entries_.empty(); }

 private:
  const Entry* longest_at(std::string_view s, i64 at, bool special) const;

  std::vector<Entry> entries_;  // sorted by text
  bool begins_[256] = {};
};

}  // namespace plait::text
