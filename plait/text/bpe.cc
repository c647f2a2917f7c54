#include "plait/text/bpe.h"

#include <algorithm>
#include <bit>

#include "plait/base/random.h"

namespace plait::text {

namespace {

u64 slot_of(std::uint32_t left, std::uint32_t right) { return mix64(u64{left} << 32 | right); }

struct Later {
  bool operator()(const JoinScratch::Candidate& a, const JoinScratch::Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  }
};

}  // namespace

JoinTable::JoinTable(const std::vector<Join>& joins) {
  slots_.assign(std::bit_ceil(2 * joins.size() + 2), Join{kNoSymbol, kNoSymbol, 0, 0});
  mask_ = slots_.size() - 1;
  for (const Join& j : joins) {
    u64 at = slot_of(j.left, j.right) & mask_;
    while (slots_[at].left != kNoSymbol && (slots_[at].left != j.left || slots_[at].right != j.right))
      at = (at + 1) & mask_;
    slots_[at] = j;
  }
}

const JoinTable::Join* JoinTable::find(std::uint32_t left, std::uint32_t right) const {
  if (left == kNoSymbol || right == kNoSymbol) return nullptr;
  for (u64 at = slot_of(left, right) & mask_; slots_[at].left != kNoSymbol; at = (at + 1) & mask_)
    if (slots_[at].left == left && slots_[at].right == right) return &slots_[at];
  return nullptr;
}

void join_symbols(const JoinTable& table, std::vector<Symbol>& symbols, JoinScratch& scratch) {
  auto& heap = scratch.heap;
  heap.clear();
  auto offer = [&](std::int32_t place) {
    const std::int32_t next = symbols[place].next;
    if (next < 0) return false;
    const auto* j = table.find(symbols[place].id, symbols[next].id);
    if (!j) return false;
    heap.push_back({j->rank, static_cast<std::uint32_t>(place), j->left, j->right, j->joined});
    return true;
  };
  for (size_t i = 0; i + 1 < symbols.size(); i++) offer(static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), Later{});
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later{});
    const auto c = heap.back();
    heap.pop_back();
    Symbol& left = symbols[c.place];
    if (left.id != c.left || left.next < 0 || symbols[left.next].id != c.right) continue;
    Symbol& right = symbols[left.next];
    left.id = c.joined;
    left.end = right.end;
    left.next = right.next;
    right.id = kNoSymbol;
    if (left.next >= 0) symbols[left.next].previous = static_cast<std::int32_t>(c.place);
    if (left.previous >= 0 && offer(left.previous)) std::push_heap(heap.begin(), heap.end(), Later{});
    if (offer(static_cast<std::int32_t>(c.place))) std::push_heap(heap.begin(), heap.end(), Later{});
  }
}

}  // namespace plait::text
