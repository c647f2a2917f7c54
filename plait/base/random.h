// Counter-based random numbers: a pure function of (stream, index), so that weights, masks and samples do not depend
// on the layout. splitmix64 finaliser (Steele, Lea, Flood 2014) over a keyed counter.
#pragma once
#include "plait/base/base.h"

namespace plait {

constexpr u64 mix64(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// FNV-1a: names a stream.
constexpr u64 stream_of(std::string_view name) {
  u64 h = 1469598103934665603ull;
  for (unsigned char c : name) h = (h ^ c) * 1099511628211ull;
  return h;
}

constexpr u64 random_bits(u64 stream, u64 index) { return mix64(mix64(stream) ^ index); }

/// Uniform in [0, 1), 53 bits.
constexpr double uniform(u64 stream, u64 index) {
  return static_cast<double>(random_bits(stream, index) >> 11) * 0x1p-53;
}

/// Mean 0, variance 1, support [-6, 6]: the sum of 12 uniforms (the same bits in any language with IEEE doubles).
constexpr double normal(u64 stream, u64 index) {
  double s = 0;
  for (u64 k = 0; k < 12; k++) s += uniform(stream + 77 * k, index);
  return s - 6;
}

}  // namespace plait
