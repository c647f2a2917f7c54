// A graph on whole tensors, node after node, with reference kernels: no plan, no ranks, no arena. The oracle of tests.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plait/graph/graph.h"
#include "plait/kernels/kernel.h"
#include "plait/placement/placement.h"
#include "plait/tensor/tensor.h"

namespace plait {

struct Evaluation {
  std::vector<Tensor> values;  // by value; named ones are empty, they stay with the caller
  bool overflow = false;

  /// The value that nodes of this label made (the first, where there are several); a broken invariant if none did.
  const Tensor& of(const Graph& g, const std::string& label) const;
};

/// named: whole tensors of the graph's inputs and states, in rows. They are not written: an in-place output is a value
/// like any other. Kernels are of the graph's real type (f32 or f64). sizes: of every dim (bound_sizes).
///   errors  bad_file: a named tensor is missing or has another type or box
Evaluation evaluate(const Graph& g, const std::map<std::string, View>& named, const Sizes& sizes);

/// Box of a whole value.
Box whole_box(const std::string& dims, const Sizes& sizes);

/// What a kernel is told about a node on whole tensors, the views aside.
kernels::Args whole_args(const Graph& g, const Node& n, const Sizes& sizes);

}  // namespace plait
