// Byte pair encoding of one word: neighbours are joined in the order of their ranks until no join is left.
//
// Method: symbols in a doubly linked list, candidate joins in a heap ordered by (rank, place); a candidate whose
// symbols have changed meanwhile is dropped when it is taken. O(n log n) for a word of n symbols.
// Sources: Sennrich, Haddow, Birch 2016 (the method); Hugging Face tokenizers and SentencePiece (ties: leftmost first).
#pragma once
#include <vector>

#include "plait/base/base.h"

namespace plait::text {

/// Joins: (left, right) -> (rank, joined), by open addressing.
class JoinTable {
 public:
  struct Join {
    std::uint32_t left, right, rank, joined;
  };
  JoinTable() = default;
  /// Of equal pairs the last counts.
  explicit JoinTable(const std::vector<Join>& joins);
  /// nullptr when the two do not join.
  const Join* find(std::uint32_t left, std::uint32_t right) const;

 private:
  std::vector<Join> slots_;
  u64 mask_ = 0;
};

constexpr std::uint32_t kNoSymbol = ~std::uint32_t{0};

/// A symbol of a word: bytes [begin, end) of the text; id is kNoSymbol where no token covers them.
struct Symbol {
  std::uint32_t id;
  std::uint32_t begin, end;
  std::int32_t previous, next;  // -1: none
};

/// Space for `join_symbols` that is kept from word to word.
struct JoinScratch {
  struct Candidate {
    std::uint32_t rank, place, left, right, joined;
  };
  std::vector<Candidate> heap;
};

/// Joins the symbols in place. The list runs from symbols[0] by `next`; joined ones leave the list.
void join_symbols(const JoinTable& table, std::vector<Symbol>& symbols, JoinScratch& scratch);

}  // namespace plait::text
