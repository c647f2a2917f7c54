// Copies into slots, and hints to the caches. A slot's lines were read by the peers a few steps ago, so to write one
// first fetches it back; hints hide much of that.
//
// Measured on a Xeon 6 (2 cores of a VM, ping-pong 150 ns one way), 2 ranks, all-reduce of f32, us:
//   bytes                              64    1K    4K   16K   64K  256K    1M
//   plain stores                      .25   .46  1.31  4.14   7.3  28.4   135
//   rep movsb                         .23   .51  1.37  3.61   6.7  25.0   105
//   four streams, lines asked for       -     -  1.05  3.01   5.2  19.6    90
//   stores + fetch the next slot      .22   .38   .80  2.90   7.0  27.5   117
//   + push the written lines out      .17   .32   .97  3.95  13.5    53   172
// On Zen 5 (references/limits.md) rep movsb gives 1.6x to 2.9x over stores from 16 KB on, asking for lines gives
// nothing, and pushing is ignored. So Intel's processors copy in streams, others with rep movsb.
#pragma once
#include <cstring>

#include <algorithm>

#include "plait/comm/join.h"

namespace plait::comm {

inline constexpr i64 kMovsbFrom = 4096, kStreamsFrom = 32768;  // bytes; below, memcpy
inline constexpr i64 kFetchUpTo = 8192;                        // lines of the next slot to fetch ahead
inline constexpr i64 kDemoteUpTo = 2048;  // contributions whose lines are pushed towards the shared cache
inline constexpr i64 kTimedFrom = 4096;   // payloads whose copies are timed for the counters (two clock reads)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline bool streams_are_better() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel");
  return intel;
#else
  return true;
#endif
}

inline void copy_bytes(std::byte* to, const std::byte* from, i64 bytes) {
  if (bytes <= 0 || to == from) return;
  const bool streams = kSanitized || streams_are_better();
  if (streams && bytes >= kStreamsFrom) {
    copy_streams(to, from, bytes);
  } else if (streams || bytes < kMovsbFrom) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else {
#if defined(__x86_64__)
    auto n = static_cast<size_t>(bytes);
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#endif
  }
}

/// Reads what a peer wrote. Loads beat rep movsb here (Xeon 6: 21 against 14 GB/s), four streams beat one (27).
inline void copy_out(std::byte* to, const std::byte* from, i64 bytes) {
  if (bytes < kStreamsFrom) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  i64 part = bytes / 4 / 64 * 64;
  for (i64 i = 0; i < part; i += 64)
    for (i64 k = 0; k < 4; k++) std::memcpy(to + k * part + i, from + k * part + i, 64);
  std::memcpy(to + 4 * part, from + 4 * part, static_cast<size_t>(bytes - 4 * part));
}

/// Asks for ownership of the lines that will be written next.
inline void fetch_for_writing(std::byte* p, i64 bytes) {
#if defined(__x86_64__)
  for (i64 i = 0; i < std::min(bytes, kFetchUpTo); i += 64) asm volatile("prefetchw %0" : : "m"(p[i]));
#else
  (void)p, (void)bytes;
#endif
}

/// Pushes written lines to the cache that the peers share (a hint; no operation where the processor lacks it).
inline void demote(const std::byte* p, i64 bytes) {
#if defined(__x86_64__)
  if (bytes <= kDemoteUpTo)
    for (i64 i = 0; i < bytes; i += 64) asm volatile("cldemote %0" : : "m"(p[i]));
#else
  (void)p, (void)bytes;
#endif
}

}  // namespace plait::comm
