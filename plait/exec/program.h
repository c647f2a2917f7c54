// ShardedGraph -> Program: one rank's straight list of kernel and communication calls.
//
// A reshard becomes `start` and `wait`: starts stand as early as their operand is made, waits as late as the result is
// read. Sums of states that are joined in place go together (buckets.h): one start and one wait for many reshards. A
// node or reshard that this rank has no part in (another stage) is left out. Symbols (T, R) are still open.
#pragma once
#include <memory>
#include <span>

#include "plait/shard/shard.h"

namespace plait {

struct Call {
  enum class Kind : std::uint8_t { kernel, start, wait };
  Kind kind = Kind::kernel;
  i64 step = -1;            // of the sharded graph
  std::vector<i64> bucket;  // the reshards that this one goes with, itself first, all in place; empty: it goes alone
  std::span<const i64> steps() const { return bucket.empty() ? std::span(&step, 1) : std::span(bucket); }
  bool operator==(const Call&) const = default;
};

struct Program {
  std::shared_ptr<const ShardedGraph> sharded;
  i64 rank = 0;
  std::vector<Call> calls;

  const Step& step(const Call& c) const { return step(c.step); }
  const Step& step(i64 i) const { return sharded->steps[static_cast<size_t>(i)]; }
  const Node& node(const Call& c) const { return sharded->graph.nodes[static_cast<size_t>(step(c).node)]; }
  /// What is made when the call has run: nothing by a start.
  std::vector<ValueId> makes(const Call& c) const;
  /// "layers.3.wo": of a kernel its label, of a reshard the (first) value's.
  std::string label(const Call& c) const;
  std::string text() const;
  static Program parse(std::string_view text);
  /// Every operand is made before it is read, every wait has one start before it and every start one wait after it;
  /// buckets are those of the sharded graph.
  void verify() const;
};

Program partition(std::shared_ptr<const ShardedGraph> sharded, i64 rank);

}  // namespace plait
