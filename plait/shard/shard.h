// Graph + plan -> ShardedGraph: every node knows which factor each axis cuts, every value its placement, and every
// reshard is a step of its own with its cause.
//
// No fixpoint and no seeds: for a node and an axis the first name in the axis' list that a cuttable factor of the node
// has is cut; operands and outputs follow by the rule; a reshard stands where *made* does not cover *wanted*.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plait/graph/graph.h"
#include "plait/placement/placement.h"

namespace plait {

/// What an axis cuts of a node. `group` empty: nothing.
struct Cut {
  char name = 0;      // dim
  std::string group;  // factor group of the rule
  bool contracted = false;
  Holders holders;
  bool operator==(const Cut&) const = default;
};

/// A node of the graph (node >= 0), or a reshard source -> value.
struct Step {
  i64 node = -1;
  std::vector<ValueId> in;  // of a node: which versions of its operands it reads
  ValueId source = kNone, value = kNone;
  std::string cause;  // of a reshard: who wants what, and what was made
};

struct ShardedGraph {
  Graph graph;
  Plan plan;
  std::vector<std::vector<Cut>> cuts;  // by node, by axis
  std::vector<Placement> placement;    // by value; reshards append values
  std::vector<ValueId> origin;         // by value: the value of the graph that it is
  std::vector<Step> steps;

  const Value& logical(ValueId v) const { return graph.at(origin[static_cast<size_t>(v)]); }
  const Placement& of(ValueId v) const { return placement[static_cast<size_t>(v)]; }
  std::string text() const;
  static ShardedGraph parse(std::string_view text);
  /// A cut of a summed factor has leaves; sums added are placed alike; an in-place output lies as its state; no cut of
  /// a whole factor; every operand covers what its node wants. Throws Error(bad_file) naming the step.
  void verify() const;
};

struct PropagateOptions {
  const Plan* stored = nullptr;                        // placements of states where they are not those of `plan` (ZeRO)
  std::map<std::string, Placement>* states = nullptr;  // table shared by graphs: read, and filled with this graph's
  bool strict = false;                                 // a reshard that the plan did not ask for is an error
};

/// Error(usage) when the plan cuts a sum inside a leaf, with the op, the dim and what to do.
ShardedGraph propagate(Graph graph, const Plan& plan, const PropagateOptions& options = {});

/// What is bound before T is: every dim of the graph whose size is not a symbol.
Sizes static_sizes(const Graph& g);

/// Placement of an operand or output of a node under its cuts: what the node reads or makes.
Placement place(const Graph& g, const Node& n, const Plan& plan, const std::vector<Cut>& cuts, const Rule::Term& term,
                ValueId v, bool output);

/// The cuts that give a factor group its range in a node.
std::vector<Binding::Use> group_uses(const Node& n, const std::vector<Cut>& cuts, const std::string& group, char dim,
                                     const Plan& plan);

}  // namespace plait
