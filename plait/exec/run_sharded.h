// A sharded graph on ranks as threads, fed from whole tensors: what tests, `verify --train` and the example use to hold
// a plan against one device.
#pragma once
#include "plait/exec/executor.h"

namespace plait {

/// Every (rank, value) that was made, copied; values of the sharded graph, reshards included.
struct ShardedRun {
  std::vector<std::map<ValueId, Tensor>> made;  // by rank
  std::vector<Program> programs;

  Tensor whole(const ShardedGraph& s, ValueId v, const Symbols& symbols) const;
};

/// A whole value from the parts of the ranks (null: a rank without one), joined as a reshard to "whole" would.
Tensor join_parts(const ShardedGraph& s, ValueId v, const Symbols& symbols,
                  const std::function<const View*(i64 rank)>& part);

/// named: whole tensors of the inputs and states, in rows; each rank copies its part.
ShardedRun run_sharded(std::shared_ptr<const ShardedGraph> s, const std::map<std::string, View>& named,
                       const Symbols& symbols, const ExecutorOptions& options = {.reference = true});

/// The first element of the parts of complete values that is not, bit for bit, the same element of `want` (by logical
/// value; values without an entry are skipped). Empty when all are equal.
std::string first_difference(const ShardedGraph& s, const ShardedRun& run,
                             const std::function<const View*(ValueId logical)>& want);

}  // namespace plait
