// ShardedGraph -> Program: one rank's straight list of kernel and communication calls.
//
// A reshard becomes `start` and `wait`: starts stand as early as their operand is made, waits as late as the result is
// read. A node or reshard that this rank has no part in (another stage) is left out. Symbols (T, R) are still open.
#pragma once
#include <memory>

#include "plait/shard/shard.h"

namespace plait {

struct Call {
  enum class Kind : std::uint8_t { kernel, start, wait };
  Kind kind = Kind::kernel;
  i64 step = -1;  // of the sharded graph
  bool operator==(const Call&) const = default;
};

struct Program {
  std::shared_ptr<const ShardedGraph> sharded;
  i64 rank = 0;
  std::vector<Call> calls;

  const Step& step(const Call& c) const { return sharded->steps[static_cast<size_t>(c.step)]; }
  const Node& node(const Call& c) const { return sharded->graph.nodes[static_cast<size_t>(step(c).node)]; }
  /// "layers.3.wo": of a kernel its label, of a reshard the value's.
  std::string label(const Call& c) const;
  std::string text() const;
  static Program parse(std::string_view text);
  /// Every operand is made before it is read, every wait has one start before it and every start one wait after it.
  void verify() const;
};

Program partition(std::shared_ptr<const ShardedGraph> sharded, i64 rank);

}  // namespace plait
