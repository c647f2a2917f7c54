// Ranges of a dim and boxes of a value, in GLOBAL indices. A local tensor is the part of a logical value in its box.
#pragma once
#include <algorithm>
#include <vector>

#include "plait/base/base.h"

namespace plait {

/// [begin, end); empty ranges of any place are equal.
struct Range {
  i64 begin = 0, end = 0;
  constexpr i64 size() const { return end > begin ? end - begin : 0; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(Range r) const { return r.empty() || (begin <= r.begin && r.end <= end); }
  friend constexpr bool operator==(Range a, Range b) {
    return (a.empty() && b.empty()) || (a.begin == b.begin && a.end == b.end);
  }
};
constexpr Range operator&(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

using Box = std::vector<Range>;
i64 volume(const Box& b);  // 1 for a scalar
Box operator&(const Box& a, const Box& b);
bool contains(const Box& a, const Box& b);
/// The smallest box that holds both; an empty one adds nothing.
Box hull(const Box& a, const Box& b);
/// a without b, as disjoint boxes.
std::vector<Box> minus(Box a, const Box& b);
std::string to_string(Range r);
std::string to_string(const Box& b);

/// f(index vector) for every element, row-major.
template <class F>
void for_each(const Box& b, F f) {
  if (volume(b) == 0) return;
  std::vector<i64> x;
  for (auto r : b) x.push_back(r.begin);
  for (;;) {
    f(x);
    auto d = static_cast<i64>(b.size()) - 1;
    for (; d >= 0; d--) {
      auto u = static_cast<size_t>(d);
      if (++x[u] < b[u].end) break;
      x[u] = b[u].begin;
    }
    if (d < 0) return;
  }
}

}  // namespace plait
