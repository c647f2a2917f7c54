// Sums that ranks join where they lie, many in one collective.
//
// An accumulator (a state that is a sum) of which one all_reduce is all that is read before it is zeroed is joined in
// its own memory: no copy of it is ever made. Such reshards of the same ranks share collectives, buckets, of up to
// kBucketBytes; the executor lays their states one after the other. A bucket starts when the last of its sums is made
// and is waited for where the first is read, so a program that makes the sums itself overlaps with it. Elements are
// joined one by one, so which of them travel together changes no bit.
#pragma once
#include "plait/shard/shard.h"

namespace plait {

/// Small enough that the first bucket is under way while most sums are still made, large enough that latencies vanish
/// (PyTorch's DistributedDataParallel takes the same).
inline constexpr i64 kBucketBytes = i64{25} << 20;

/// Steps of reshards that go together, by bucket, in order of the first; a sum larger than the limit goes alone, in
/// place all the same. limit: of the largest part that a rank has.
std::vector<std::vector<i64>> find_buckets(const ShardedGraph& s, i64 limit_bytes = kBucketBytes);

}  // namespace plait
