// The plan: how a model lies on a mesh. A file of about ten lines (TOML) that people and the planner write:
//
//   plan = 1
//   [[axis]]
//   name = "tp"
//   size = 4
//   dims = "N K F V"       # the first of these that an op has is cut along this axis
//   weights = [3, 1, 1, 1] # unequal ranks; left out: even
//   unit = "leaf"          # of a cut of T: leaf | sequence (data axes, whose inputs are fed cut)
//   [leaves]               # of the model that the plan was made for; another model's are an error
//   F = 96
//
// Order of axes is order of nesting where two cut one dim.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plait/mesh/mesh.h"

namespace plait {

struct PlanAxis {
  std::string name;
  i64 size = 1;
  std::string dims;          // letters in order of preference
  bool data = false;         // unit = "sequence"
  std::vector<i64> weights;  // of the coordinates; empty: even
};

struct Plan {
  std::vector<PlanAxis> axes;
  bool store_sums = false;     // ZeRO-2: accumulators too are stored as the weights are
  std::map<char, i64> leaves;  // leaf sizes by dim; empty: the model's, unchecked

  Mesh mesh() const;
  i64 world() const { return mesh().world(); }
  std::string text() const;
  /// Error(bad_file) with line and key: unknown keys, sizes out of range, unknown dims, weights that do not fit.
  static Plan parse(std::string_view toml, std::string_view where);
  /// Throws Error(usage) for what cannot be laid out at all (N leads on one axis and K on another ...).
  void verify() const;
};

/// tp = N K F V over `size` ranks, the plan of serving.
Plan tensor_parallel(i64 size, std::vector<i64> weights = {});

}  // namespace plait
