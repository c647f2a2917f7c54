// The device grid: named axes, coordinates, groups of ranks along axes.
#pragma once
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait {

using Coords = std::vector<i64>;

struct Axis {
  std::string name;
  i64 size = 1;
};

/// Ranks are numbered row-major: the last axis varies fastest.
class Mesh {
 public:
  explicit Mesh(std::vector<Axis> axes);
  const std::vector<Axis>& axes() const { return axes_; }
  i64 world() const { return world_; }
  Coords coords(i64 rank) const;
  i64 rank(const Coords& c) const;
  /// Ranks that have this rank's coordinates except along the given axes, ascending.
  std::vector<i64> group(i64 rank, const std::vector<bool>& along) const;
  /// "tp=1" ; of a mesh without axes "rank 0".
  std::string describe(i64 rank) const;

 private:
  std::vector<Axis> axes_;
  i64 world_ = 1;
};

}  // namespace plait
