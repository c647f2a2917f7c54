// What this machine is and what it can do at most, measured now: `doctor` prints it, `bench` compares with it.
//
// Measurements are short. Bandwidth: of many pieces the time of the quickest quarter; peaks: the best; latency: the
// median. What else runs on the machine lowers them. On a virtual machine the distance of two cores changes within
// minutes: NEAR and FAR are told apart by the time that a cache line takes from one to the other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait::cli {

struct Feature {
  const char* name;  // as Linux writes it
  bool there;
};

struct Machine {
  std::string processor;
  bool virtual_machine = false;
  i64 cores = 0;                    // on line
  std::vector<int> cpus;            // that this process may use
  std::optional<double> cpu_quota;  // cores that the control group may use at once; nothing: no limit
  i64 cache_bytes = 0;              // the largest cache, of one core's view
  std::vector<Feature> features;
  std::string isa, detected_isa, isa_wanted;  // taken, possible, PLAIT_ISA

  i64 memory_bytes = 0, available_bytes = 0;
  std::optional<i64> memory_limit;                             // of the control group
  std::string huge_pages, shared_huge_pages, governor;         // empty: the system does not say
  std::optional<i64> locked_limit;                             // bytes; nothing: no limit
  std::optional<i64> shared_memory_bytes, shared_memory_free;  // of /dev/shm; nothing: not there
  double load = 0;                                             // programs that want a core, mean of the last minute
  std::string mpi;                                             // path of mpirun; empty: none
};
Machine inspect_machine();

/// Sentences about what is off; empty: nothing is.
std::vector<std::string> advice(const Machine& m);

/// Bytes a second that these processors read together, each `bytes` of its own, over and over.
double read_bandwidth(const std::vector<int>& cpus, i64 bytes);

struct Peaks {
  // A second, of all processors together; 0: no such instruction. int8: vpdpbusd, four products and their sum.
  double f32_flops = 0, bf16_flops = 0, int8_flops = 0;
};
Peaks peaks(const std::vector<int>& cpus);

/// One way from core to core; nothing where there is one core only.
struct Latency {
  double least_ns = 0, median_ns = 0, most_ns = 0;
  i64 pairs = 0;
  const char* regime() const { return median_ns >= 200 ? "FAR" : "NEAR"; }
};
std::optional<Latency> core_latency(const std::vector<int>& cpus, i64 most_pairs);

}  // namespace plait::cli
