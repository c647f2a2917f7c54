// A cheap clock without a unit: the processor's time stamp counter where there is one. Counters convert it with the
// steady clock.
#pragma once
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "plait/comm/local/region.h"

namespace plait::comm {

inline u64 ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<u64>(now_ns());
#endif
}

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace plait::comm
