// The loops of join_parts, for one instruction set: included by join_base.cc, join_avx2.cc and join_avx512.cc, each
// with its own PLAIT_JOIN_NAME. Vectors of the compiler, 64 bytes wide; it splits them where registers are narrower.
//
// Two contributions are read in one pass. More are added a tile at a time (kTile bytes stay in the first cache), so
// that every contribution is read once, front to back, as the prefetchers like it. Long parts are walked as kStreams
// streams at once: reads of lines that another core holds are limited by what one stream keeps in flight
// (Xeon 6, 256 KB: 27 GB/s with four, 21 with one).
#pragma once
#include "plait/comm/join.h"

namespace plait::comm::PLAIT_JOIN_NAME {
namespace {

constexpr i64 kTile = 2048, kStreams = 4, kStreamsFrom = 32768, kAhead = 256, kOwnAhead = 512;

template <class T, int kBytes = 64>
struct Vec {
  typedef T type __attribute__((vector_size(kBytes)));
};
using F32 = Vec<float>::type;
using U32 = Vec<std::uint32_t>::type;
using U16 = Vec<std::uint16_t, 32>::type;

template <class V>
V load(const std::byte* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
void store(std::byte* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Asks for the line to be written; the builtin asks for a shared one.
inline void own_line(const std::byte* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1);
#endif
}

// An element type and a join: N bytes at a time through `wide`, the rest through `one`.
template <class T>
struct Add {
  static constexpr i64 kElement = sizeof(T);
  template <int N>
  static void wide(std::byte* out, const std::byte* a, const std::byte* b) {
    using V = typename Vec<T, N>::type;
    store(out, load<V>(a) + load<V>(b));
  }
  static void one(std::byte* out, const std::byte* a, const std::byte* b) {
    T x, y;
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
    x = static_cast<T>(x + y);
    __builtin_memcpy(out, &x, sizeof x);
  }
};

// x > m or x is NaN: x; equal: the bits of both (so +0 wins over -0); else m.
template <class T, class Bits>
struct Max {
  static constexpr i64 kElement = sizeof(T);
  template <int N>
  static void wide(std::byte* out, const std::byte* a, const std::byte* b) {
    using V = typename Vec<T, N>::type;
    using B = typename Vec<Bits, N>::type;
    V m = load<V>(a), x = load<V>(b);
    B take = reinterpret_cast<B>(x > m) | reinterpret_cast<B>(x != x), same = reinterpret_cast<B>(x == m);
    B mb = reinterpret_cast<B>(m), xb = reinterpret_cast<B>(x);
    store(out, (take & xb) | (same & mb & xb) | (~(take | same) & mb));
  }
  static void one(std::byte* out, const std::byte* a, const std::byte* b) {
    T m, x;
    Bits mb, xb;
    __builtin_memcpy(&m, a, sizeof m);
    __builtin_memcpy(&x, b, sizeof x);
    __builtin_memcpy(&mb, a, sizeof m);
    __builtin_memcpy(&xb, b, sizeof x);
    Bits r = (x > m || x != x) ? xb : x == m ? static_cast<Bits>(mb & xb) : mb;
    __builtin_memcpy(out, &r, sizeof r);
  }
};

struct Or {
  static constexpr i64 kElement = 1;
  template <int N>
  static void wide(std::byte* out, const std::byte* a, const std::byte* b) {
    using V = typename Vec<u64, N>::type;
    store(out, load<V>(a) | load<V>(b));
  }
  static void one(std::byte* out, const std::byte* a, const std::byte* b) { *out = *a | *b; }
};

struct Add128 {
  static constexpr i64 kElement = 16;
  static void one(std::byte* out, const std::byte* a, const std::byte* b) {
    unsigned __int128 x, y;
    __builtin_memcpy(&x, a, 16);
    __builtin_memcpy(&y, b, 16);
    x += y;
    __builtin_memcpy(out, &x, 16);
  }
  template <int N>
  static void wide(std::byte* out, const std::byte* a, const std::byte* b) {
    for (i64 i = 0; i < N; i += 16) one(out + i, a + i, b + i);
  }
};

template <class O>
void pair_run(std::byte* out, const std::byte* a, const std::byte* b, i64 bytes) {
  i64 i = 0;
  for (; i + 256 <= bytes; i += 256)
#pragma GCC unroll 4
    for (i64 j = i; j < i + 256; j += 64) O::template wide<64>(out + j, a + j, b + j);
  for (; i + 64 <= bytes; i += 64) O::template wide<64>(out + i, a + i, b + i);
  for (; i + 32 <= bytes; i += 32) O::template wide<32>(out + i, a + i, b + i);
  for (; i + 16 <= bytes; i += 16) O::template wide<16>(out + i, a + i, b + i);
  for (; i < bytes; i += O::kElement) O::one(out + i, a + i, b + i);
}

template <class O>
void pair_streams(std::byte* out, const std::byte* a, const std::byte* b, i64 bytes) {
  i64 part = bytes / kStreams / 64 * 64;
  for (i64 i = 0; i < part; i += 64)
#pragma GCC unroll 4
    for (i64 k = 0; k < kStreams; k++) O::template wide<64>(out + k * part + i, a + k * part + i, b + k * part + i);
  i64 done = kStreams * part;
  pair_run<O>(out + done, a + done, b + done, bytes - done);
}

// As pair_run, of two parts of which `theirs` is one: its lines become ours, and `next`, if any, takes its place.
template <class O, bool kNext>
void swap_pair(std::byte* out, const std::byte* a, const std::byte* b, std::byte* theirs, const std::byte* next,
               i64 bytes) {
  auto line = [=](i64 i) {
    O::template wide<64>(out + i, a + i, b + i);
    if constexpr (kNext) store(theirs + i, load<F32>(next + i));
  };
  i64 part = 0, streams = 1;
  if (bytes >= kStreamsFrom) {
    streams = kStreams;
    part = bytes / kStreams / 64 * 64;
    for (i64 i = 0; i < part; i += 64)
#pragma GCC unroll 4
      for (i64 k = 0; k < kStreams; k++) {
        own_line(theirs + k * part + i + kAhead);
        line(k * part + i);
      }
  } else {
    part = bytes / 64 * 64;
    for (i64 i = 0; i < std::min(part, kOwnAhead); i += 64) own_line(theirs + i);
    for (i64 i = 0; i < part; i += 64) {
      if (i + kOwnAhead < part) own_line(theirs + i + kOwnAhead);
      line(i);
    }
  }
  i64 done = streams * part;
  pair_run<O>(out + done, a + done, b + done, bytes - done);
  if constexpr (kNext) __builtin_memcpy(theirs + done, next + done, static_cast<size_t>(bytes - done));
}

template <class O>
void swap_as(std::byte* out, const std::byte* const* parts, std::byte* theirs, const std::byte* next, i64 bytes) {
  if (next != nullptr)
    swap_pair<O, true>(out, parts[0], parts[1], theirs, next, bytes);
  else
    swap_pair<O, false>(out, parts[0], parts[1], theirs, next, bytes);
}

// out may be a part: of the tile everything is read into `sum` before anything is written.
template <class O>
void many(std::byte* out, std::span<const std::byte* const> parts, i64 bytes) {
  alignas(64) std::byte sum[kTile];
  for (i64 i = 0; i < bytes; i += kTile) {
    i64 n = std::min(kTile, bytes - i);
    pair_run<O>(sum, parts[0] + i, parts[1] + i, n);
    for (size_t r = 2; r + 1 < parts.size(); r++) pair_run<O>(sum, sum, parts[r] + i, n);
    pair_run<O>(out + i, sum, parts[parts.size() - 1] + i, n);
  }
}

template <class O>
void join_as(std::byte* out, std::span<const std::byte* const> parts, i64 bytes) {
  if (parts.size() > 2)
    many<O>(out, parts, bytes);
  else if (bytes >= kStreamsFrom)
    pair_streams<O>(out, parts[0], parts[1], bytes);
  else
    pair_run<O>(out, parts[0], parts[1], bytes);
}

F32 widen(const std::byte* p) { return reinterpret_cast<F32>(__builtin_convertvector(load<U16>(p), U32) << 16); }
// Nearest even; NaN stays NaN: class bf16 of dtype.h.
U16 narrow(F32 f) {
  U32 u = reinterpret_cast<U32>(f);
  U32 nan = reinterpret_cast<U32>((u & 0x7fffffffu) > 0x7f800000u);
  U32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((nan & quiet) | (~nan & rounded), U16);
}

template <bool kMax>
F32 bf16_add(F32 s, F32 x) {
  if constexpr (!kMax) return s + x;
  F32 m;
  Max<float, std::uint32_t>::wide<64>(reinterpret_cast<std::byte*>(&m), reinterpret_cast<const std::byte*>(&s),
                                      reinterpret_cast<const std::byte*>(&x));
  return m;
}

// Sums of a tile stay in f32 until the last part; `count` elements, a multiple of 16. out may be a part.
template <bool kMax>
void bf16_tile(std::byte* out, std::span<const std::byte* const> parts, i64 at, i64 count) {
  alignas(64) std::byte sum[kTile];
  const std::byte *a = parts[0] + 2 * at, *b = parts[1] + 2 * at;
  if (parts.size() == 2) {
    for (i64 i = 0; i < count; i += 16)
      store(out + 2 * (at + i), narrow(bf16_add<kMax>(widen(a + 2 * i), widen(b + 2 * i))));
    return;
  }
  for (i64 i = 0; i < count; i += 16) store(sum + 4 * i, bf16_add<kMax>(widen(a + 2 * i), widen(b + 2 * i)));
  for (size_t r = 2; r < parts.size(); r++) {
    const std::byte* p = parts[r] + 2 * at;
    for (i64 i = 0; i < count; i += 16) store(sum + 4 * i, bf16_add<kMax>(load<F32>(sum + 4 * i), widen(p + 2 * i)));
  }
  for (i64 i = 0; i < count; i += 16) store(out + 2 * (at + i), narrow(load<F32>(sum + 4 * i)));
}

// The rest of less than 16 elements goes through a padded copy, so that there is one rounding routine.
template <bool kMax>
void bf16_parts(std::byte* out, std::span<const std::byte* const> parts, i64 count) {
  const i64 whole = count / 16 * 16, tile = kTile / 4;
  for (i64 i = 0; i < whole; i += tile) {
    // The arithmetic of a tile is long enough to hide the fetching of the next one, but not of what the core sees
    // ahead.
    for (auto* p : parts)
      for (i64 k = i + tile; k < std::min(i + 2 * tile, whole); k += 32) __builtin_prefetch(p + 2 * k);
    bf16_tile<kMax>(out, parts, i, std::min(tile, whole - i));
  }
  if (whole == count) return;
  auto rest = static_cast<size_t>(2 * (count - whole));
  alignas(64) std::byte pad[32];
  F32 sum{};
  for (size_t r = 0; r < parts.size(); r++) {
    __builtin_memset(pad, 0, sizeof pad);
    __builtin_memcpy(pad, parts[r] + 2 * whole, rest);
    sum = r == 0 ? widen(pad) : bf16_add<kMax>(sum, widen(pad));
  }
  store(pad, narrow(sum));
  __builtin_memcpy(out + 2 * whole, pad, rest);
}

}  // namespace

// kStreams streams of vector stores, asking for the lines to be written a little ahead.
void copy_streams(std::byte* to, const std::byte* from, i64 bytes) {
  using V = Vec<u64>::type;
  i64 part = bytes / kStreams / 64 * 64;
  for (i64 i = 0; i < part; i += 64)
#pragma GCC unroll 4
    for (i64 k = 0; k < kStreams; k++) {
      own_line(to + k * part + i + kAhead);
      store(to + k * part + i, load<V>(from + k * part + i));
    }
  if (i64 done = kStreams * part; done < bytes)
    __builtin_memcpy(to + done, from + done, static_cast<size_t>(bytes - done));
}

void join(std::byte* out, std::span<const std::byte* const> parts, i64 count, DType t, Join j) {
  const i64 bytes = bytes_of(t, count);
  if (j == Join::one) return join_as<Or>(out, parts, bytes);
  switch (t) {
    case DType::f32:
      return j == Join::sum ? join_as<Add<float>>(out, parts, bytes)
                            : join_as<Max<float, std::uint32_t>>(out, parts, bytes);
    case DType::f64:
      return j == Join::sum ? join_as<Add<double>>(out, parts, bytes) : join_as<Max<double, u64>>(out, parts, bytes);
    case DType::i32:
      return j == Join::sum ? join_as<Add<std::uint32_t>>(out, parts, bytes)
                            : join_as<Max<std::int32_t, std::uint32_t>>(out, parts, bytes);
    case DType::i64:
      return j == Join::sum ? join_as<Add<u64>>(out, parts, bytes) : join_as<Max<std::int64_t, u64>>(out, parts, bytes);
    case DType::i128:
      return join_as<Add128>(out, parts, bytes);
    default:
      return j == Join::sum ? bf16_parts<false>(out, parts, count) : bf16_parts<true>(out, parts, count);
  }
}

void swap_join(std::byte* out, const std::byte* const* parts, std::byte* theirs, const std::byte* next, i64 count,
               DType t, Join j) {
  const i64 bytes = bytes_of(t, count);
  if (j == Join::one) return swap_as<Or>(out, parts, theirs, next, bytes);
  if (j == Join::sum && t == DType::f32) return swap_as<Add<float>>(out, parts, theirs, next, bytes);
  if (j == Join::sum && t == DType::f64) return swap_as<Add<double>>(out, parts, theirs, next, bytes);
  if (j == Join::sum && t == DType::i32) return swap_as<Add<std::uint32_t>>(out, parts, theirs, next, bytes);
  if (j == Join::sum && t == DType::i64) return swap_as<Add<u64>>(out, parts, theirs, next, bytes);
  if (j == Join::sum && t == DType::i128) return swap_as<Add128>(out, parts, theirs, next, bytes);
  join(out, {parts, 2}, count, t, j);
  if (next != nullptr) __builtin_memcpy(theirs, next, static_cast<size_t>(bytes));
}

}  // namespace plait::comm::PLAIT_JOIN_NAME
