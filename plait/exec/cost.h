// What a call of a program has to do at least: arithmetic, by the unit that does it, and bytes. `bench --profile` and
// `trace` hold it against the time that the call took.
//
// Flops are the datasheet's, a multiplication or an addition each: flops_per_point times the sizes of all factors, on
// the rank's ranges. Bytes are of the values that go in and out, each once, as this rank holds them; of a table or a
// cache only the rows that are read or written.
#pragma once
#include <span>

#include "plait/exec/program.h"

namespace plait {

struct Work {
  double f32_flops = 0, bf16_flops = 0, int8_flops = 0;
  double weight_bytes = 0, cache_bytes = 0, other_bytes = 0;  // other: what is neither a weight nor a cache

  double flops() const { return f32_flops + bf16_flops + int8_flops; }
  double bytes() const { return weight_bytes + cache_bytes + other_bytes; }
  Work& operator+=(const Work& o);
};
/// All of it, so many times.
Work operator*(Work w, double times);

/// What the tokens of a run attend to, which only positions tell: all pairs of a token and a position, and positions of
/// caches that are read.
struct Attended {
  double pairs = 0, positions = 0;
};

/// Flops of a node: of the rank at these coordinates, or, for nullptr, of a rank that does everything.
double flops_of(const ShardedGraph& s, i64 node, const Binding& b, const Coords* at, const Attended& attended);

/// Of calls that are done in one go: what one makes and another reads is counted once. Of a start the bytes that it
/// hands in, of a wait nothing.
Work work_of(const Program& p, std::span<const Call> calls, const Binding& b, const Attended& attended);

}  // namespace plait
