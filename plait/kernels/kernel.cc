#include "plait/kernels/kernel.h"

namespace plait::kernels {

Range Args::range(const std::string& g) const {
  auto i = ranges.find(g);
  PLAIT_CHECK(i != ranges.end(), "{}: no range for the factor group {}", op, g);
  return i->second;
}

double Args::attr(const std::string& name) const {
  auto i = attrs.find(name);
  PLAIT_CHECK(i != attrs.end(), "{}: no attribute {}", op, name);
  return i->second;
}

double Args::attr(const std::string& name, double otherwise) const {
  auto i = attrs.find(name);
  return i == attrs.end() ? otherwise : i->second;
}

std::vector<Range> Args::leaves_in(char f, const std::string& g) const {
  Range r = range(g);
  auto i = leaves.find(f);
  PLAIT_CHECK(i != leaves.end(), "{}: the factor {} has no leaves", op, f);
  const std::vector<i64>& edges = i->second;
  std::vector<Range> found;
  for (size_t k = 0; k + 1 < edges.size(); k++) {
    Range leaf{edges[k], edges[k + 1]}, part = leaf & r;
    if (part.empty()) continue;
    PLAIT_CHECK(part == leaf, "{}: the range {} of {} cuts its leaf {}", op, to_string(r), g, to_string(leaf));
    found.push_back(leaf);
  }
  return found;
}

}  // namespace plait::kernels
