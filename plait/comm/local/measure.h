// How long collectives of the local back end take on this machine: ranks as threads, back to back, so that skew between
// the ranks is not part of it. Print the ping-pong beside the numbers: on virtual machines the distance of two cores
// changes within minutes, and everything with it (references/limits.md).
#pragma once
#include <vector>

#include "plait/comm/communicator.h"

namespace plait::comm {

struct MeasureOptions {
  i64 ranks = 2;
  std::vector<i64> bytes{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
  std::vector<DType> dtypes{DType::f32, DType::i64};
  i64 batches = 200;      // samples of one size; a sample is a batch of equal calls
  std::vector<int> cpus;  // rank r on cpus[r % size]; empty: processor r % (number of processors)
};

struct CollectiveTime {
  const char* collective;  // "all_reduce" (in place, sum), "staged all_reduce" (stored in the slot, stores
                           // included), "barrier"
  i64 ranks, bytes;
  DType dtype;
  double median_us, p90_us;
  i64 samples, disturbed;  // disturbed: batches left out because a rank lost its core in them (ranks <= processors)
};

/// Barrier first, then for each type and size all_reduce and staged all_reduce. Takes about a second for 2 ranks.
std::vector<CollectiveTime> measure_collectives(const MeasureOptions& options = {});

/// One way between two processors, a flag in one line each way; median, ns.
double measure_ping_pong_ns(int cpu_a = 0, int cpu_b = 1);

/// Quantile q of the values, 0 <= q <= 1; 0 when there are none.
double quantile(std::vector<double> values, double q);

}  // namespace plait::comm
