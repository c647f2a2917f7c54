#include "plait/tensor/range.h"

namespace plait {

i64 volume(const Box& b) {
  i64 n = 1;
  for (auto r : b) n *= r.size();
  return n;
}

Box operator&(const Box& a, const Box& b) {
  Box c;
  for (size_t i = 0; i < a.size(); i++) c.push_back(a[i] & b[i]);
  return c;
}

bool contains(const Box& a, const Box& b) { return volume(b) == 0 || volume(a & b) == volume(b); }

Box hull(const Box& a, const Box& b) {
  if (volume(a) == 0) return b;
  if (volume(b) == 0) return a;
  Box c;
  for (size_t i = 0; i < a.size(); i++) c.push_back({std::min(a[i].begin, b[i].begin), std::max(a[i].end, b[i].end)});
  return c;
}

std::vector<Box> minus(Box a, const Box& b) {
  std::vector<Box> out;
  if (volume(a) == 0) return out;
  if (volume(a & b) == 0) return {a};
  for (size_t i = 0; i < a.size(); i++) {
    Box low = a, high = a;
    low[i].end = std::min(a[i].end, b[i].begin);
    high[i].begin = std::max(a[i].begin, b[i].end);
    if (volume(low) > 0) out.push_back(low);
    if (volume(high) > 0) out.push_back(high);
    a[i] = a[i] & b[i];
  }
  return out;
}

std::string to_string(Range r) { return fmt::format("{}:{}", r.begin, r.end); }

std::string to_string(const Box& b) {
  std::string s = "[";
  for (auto r : b) s += (s.size() > 1 ? " " : "") + to_string(r);
  return s + "]";
}

}  // namespace plait
