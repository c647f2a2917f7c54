// f32 -> blocks (from_f32). How the numbers of a block are chosen:
//   q8_0, q4_0, q4_1, q5_0, q5_1   as ggml's reference: from the extremes of the block, one pass; the same bits
//   q2_k, q4_k, q5_k               scale and minimum of a sub-block by least squares, see fit_with_minimum
//   q3_k, q6_k                     scale of a sub-block by least squares, see fit_scale
// Squares are weighted: a weight of large magnitude counts more, since it is met by activations as large as the others
// are and so makes more of the result. The order of arithmetic is fixed, so a file is the same wherever it is made.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plait/tensor/blocks.h"

namespace plait {

namespace {

constexpr std::uint16_t kNan = 0x7e00;

bool finite(const float* x, i64 n) {
  std::uint32_t largest = 0;
  for (i64 i = 0; i < n; i++) largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  return largest < 0x7f800000u;
}

/// 1 / d; 0 where there is none.
float inverse(float d) {
  const float r = 1.0f / d;
  return std::fabs(r) <= std::numeric_limits<float>::max() ? r : 0.0f;
}

/// Towards zero, clamped; v is finite.
int cut(float v, int low, int high) {
  return static_cast<int>(std::clamp(v, static_cast<float>(low), static_cast<float>(high)));
}

/// Nearest, halves away from zero.
int nearest(float v, int low, int high) {
  v = std::clamp(v, static_cast<float>(low), static_cast<float>(high));
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0);
}

struct Extremes {
  float low, high, most;  // most: of the largest magnitude, with its sign, the first of equals
};
Extremes extremes(const float* x, i64 n) {
  Extremes e{x[0], x[0], x[0]};
  for (i64 i = 1; i < n; i++) {
    e.low = std::min(e.low, x[i]);
    e.high = std::max(e.high, x[i]);
    if (std::fabs(x[i]) > std::fabs(e.most)) e.most = x[i];
  }
  return e;
}

void put_nibbles(const int (&q)[32], std::uint8_t (&out)[16]) {
  for (int i = 0; i < 16; i++) out[i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}
void put_fifth_bits(const int (&q)[32], std::uint8_t (&out)[4]) {
  for (int i = 0; i < 4; i++) {
    int bits = 0;
    for (int j = 0; j < 8; j++) bits |= (q[8 * i + j] >> 4) << j;
    out[i] = static_cast<std::uint8_t>(bits);
  }
}

/// 32 levels around zero: d = most / -offset, q = x / d + offset.
template <int kOffset>
std::uint16_t levels_around_zero(const float* x, int (&q)[32]) {
  const float d = extremes(x, 32).most / static_cast<float>(-kOffset), inv = inverse(d);
  for (int i = 0; i < 32; i++) q[i] = cut(x[i] * inv + (static_cast<float>(kOffset) + 0.5f), 0, 2 * kOffset - 1);
  return f32_to_f16(d);
}

/// Levels from the lowest element to the highest.
template <int kMost>
void levels_between(const float* x, int (&q)[32], std::uint16_t& d_bits, std::uint16_t& m_bits) {
  const auto [low, high, most] = extremes(x, 32);
  const float d = (high - low) / static_cast<float>(kMost), inv = inverse(d);
  for (int i = 0; i < 32; i++) q[i] = cut((x[i] - low) * inv + 0.5f, 0, kMost);
  d_bits = f32_to_f16(d);
  m_bits = f32_to_f16(low);
}

void make(const float* x, BlockQ4_0& b) {
  int q[32];
  b.d = levels_around_zero<8>(x, q);
  put_nibbles(q, b.q);
}
void make(const float* x, BlockQ5_0& b) {
  int q[32];
  b.d = levels_around_zero<16>(x, q);
  put_nibbles(q, b.q);
  put_fifth_bits(q, b.qh);
}
void make(const float* x, BlockQ4_1& b) {
  int q[32];
  levels_between<15>(x, q, b.d, b.m);
  put_nibbles(q, b.q);
}
void make(const float* x, BlockQ5_1& b) {
  int q[32];
  levels_between<31>(x, q, b.d, b.m);
  put_nibbles(q, b.q);
  put_fifth_bits(q, b.qh);
}
void make(const float* x, BlockQ8_0& b) {
  const float d = std::fabs(extremes(x, 32).most) / 127.0f, inv = inverse(d);
  for (int i = 0; i < 32; i++) b.q[i] = static_cast<std::int8_t>(nearest(x[i] * inv, -128, 127));
  b.d = f32_to_f16(d);
}

// Sums of a trial in eight lanes, so that compilers may use vectors in the same order everywhere.
constexpr int kLanes = 8;
struct Sums {
  float q[kLanes] = {}, qq[kLanes] = {}, qx[kLanes] = {};
  static double total(const float (&v)[kLanes]) {
    double s = 0;
    for (float f : v) s += static_cast<double>(f);
    return s;
  }
};

/// Sums of w q, w q^2, w q x with q = nearest(x * inv + shift) in [low, high].
template <int kN>
Sums trial(const float* x, const float* w, float inv, float shift, int low, int high) {
  Sums s;
  // halves up, above an offset that makes every number positive: a cut is then a floor
  const float up = shift + 0.5f + static_cast<float>(-low), most = static_cast<float>(high - low);
  for (int i = 0; i < kN; i += kLanes)
    for (int j = 0; j < kLanes; j++) {
      float v = x[i + j] * inv + up;
      v = v < 0 ? 0 : v;
      v = v > most ? most : v;
      const auto q = static_cast<float>(static_cast<int>(v) + low);
      const float wq = w[i + j] * q;
      s.q[j] += wq;
      s.qq[j] += wq * q;
      s.qx[j] += wq * x[i + j];
    }
  return s;
}

struct Fit {
  double scale = 0, minimum = 0;  // y = scale * q - minimum
};

constexpr int kTrials = 21;

/// Least squares of y = scale * q - minimum, q in [0, levels], minimum >= 0: the best of some widths of the grid.
template <int kN>
Fit fit_with_minimum(const float* x, const float* w, int levels) {
  const auto [lowest, high, most] = extremes(x, kN);
  const float low = std::min(lowest, 0.0f);
  double sw = 0, sx = 0, sxx = 0;
  for (int i = 0; i < kN; i++) {
    const double wi = static_cast<double>(w[i]), xi = static_cast<double>(x[i]);
    sw += wi;
    sx += wi * xi;
    sxx += wi * xi * xi;
  }
  if (!(high > low)) return {0, static_cast<double>(-low)};
  Fit best{0, static_cast<double>(-low)};
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < kTrials; t++) {
    const float inv = (static_cast<float>(levels) - 1.0f + 0.1f * static_cast<float>(t)) / (high - low);
    if (!(inv <= std::numeric_limits<float>::max())) continue;
    const Sums s = trial<kN>(x, w, inv, -low * inv, 0, levels);
    const double sq = Sums::total(s.q), sqq = Sums::total(s.qq), sqx = Sums::total(s.qx);
    if (!(sqq > 0)) continue;
    const double determinant = sw * sqq - sq * sq;
    const bool solvable = determinant > 1e-5 * sw * sqq;  // not all q are equal
    double scale = sqx / sqq, minimum = 0;
    if (solvable && sq * sqx > sqq * sx) {
      scale = (sw * sqx - sq * sx) / determinant;
      minimum = (sq * sqx - sqq * sx) / determinant;
    }
    const double error = sxx - 2 * scale * sqx + 2 * minimum * sx + scale * scale * sqq - 2 * scale * minimum * sq +
                         minimum * minimum * sw;
    if (scale > 0 && error < least) {
      least = error;
      best = {scale, minimum};
    }
  }
  return best;
}

/// Least squares of y = scale * q, q in [-levels, levels - 1], scale of either sign.
template <int kN>
double fit_scale(const float* x, const float* w, int levels) {
  const float most = extremes(x, kN).most;
  double best = 0, gain = 0;
  for (int t = 0; t < kTrials; t++) {
    const float inv = -(static_cast<float>(levels) - 1.0f + 0.1f * static_cast<float>(t)) / most;
    if (!(std::fabs(inv) <= std::numeric_limits<float>::max())) continue;
    const Sums s = trial<kN>(x, w, inv, 0, -levels, levels - 1);
    const double sqq = Sums::total(s.qq), sqx = Sums::total(s.qx);
    if (sqq > 0 && sqx * sqx > gain * sqq) {
      gain = sqx * sqx / sqq;
      best = sqx / sqq;
    }
  }
  return best;
}

/// The weight of each square: the magnitude beside the root mean square of its sub-block.
template <int kN>
void weigh(const float* x, float* w) {
  double squares = 0;
  for (int i = 0; i < kN; i++) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto typical = static_cast<float>(std::sqrt(squares / kN));
  for (int i = 0; i < kN; i++) w[i] = typical + std::fabs(x[i]);
}

/// Scales and minima of a block of 256 in sub-blocks of kN, as multiples of two f16.
template <int kN>
struct WithMinima {
  static constexpr int kSubs = 256 / kN;
  std::uint16_t d, dmin;
  std::uint8_t scales[kSubs], minima[kSubs];
  std::uint8_t q[256];

  WithMinima(const float* x, int levels, int most) {
    Fit fits[kSubs];
    double largest_scale = 0, largest_minimum = 0;
    for (int s = 0; s < kSubs; s++) {
      float w[kN];
      weigh<kN>(x + s * kN, w);
      fits[s] = fit_with_minimum<kN>(x + s * kN, w, levels);
      largest_scale = std::max(largest_scale, fits[s].scale);
      largest_minimum = std::max(largest_minimum, fits[s].minimum);
    }
    d = f32_to_f16(static_cast<float>(largest_scale / most));
    dmin = f32_to_f16(static_cast<float>(largest_minimum / most));
    const float unit = f16_to_f32(d), unit_min = f16_to_f32(dmin);
    const float inv = inverse(unit), inv_min = inverse(unit_min);
    for (int s = 0; s < kSubs; s++) {
      scales[s] = static_cast<std::uint8_t>(nearest(static_cast<float>(fits[s].scale) * inv, 0, most));
      minima[s] = static_cast<std::uint8_t>(nearest(static_cast<float>(fits[s].minimum) * inv_min, 0, most));
      const float step = inverse(unit * static_cast<float>(scales[s]));
      const float minimum = unit_min * static_cast<float>(minima[s]);
      for (int i = s * kN; i < (s + 1) * kN; i++)
        q[i] = static_cast<std::uint8_t>(nearest((x[i] + minimum) * step, 0, levels));
    }
  }
};

/// Scales of a block of 256 in sub-blocks of 16, as multiples of one f16 from -most to most - 1; q from 0 on.
struct Scales {
  std::uint16_t d;
  int scales[16];
  std::uint8_t q[256];

  Scales(const float* x, int levels, int most) {
    double fits[16], largest = 0;
    for (int s = 0; s < 16; s++) {
      float w[16];
      weigh<16>(x + 16 * s, w);
      fits[s] = fit_scale<16>(x + 16 * s, w, levels);
      if (std::fabs(fits[s]) > std::fabs(largest)) largest = fits[s];
    }
    d = f32_to_f16(static_cast<float>(largest / -most));
    const float unit = f16_to_f32(d), inv = inverse(unit);
    for (int s = 0; s < 16; s++) {
      scales[s] = nearest(static_cast<float>(fits[s]) * inv, -most, most - 1);
      const float step = inverse(unit * static_cast<float>(scales[s]));
      for (int i = 16 * s; i < 16 * (s + 1); i++)
        q[i] = static_cast<std::uint8_t>(nearest(x[i] * step, -levels, levels - 1) + levels);
    }
  }
};

void put_two_bits(const std::uint8_t (&q)[256], std::uint8_t (&out)[64]) {
  for (int i = 0; i < 64; i++) {
    const std::uint8_t* from = q + i / 32 * 128 + i % 32;
    out[i] = static_cast<std::uint8_t>((from[0] & 3) | (from[32] & 3) << 2 | (from[64] & 3) << 4 | (from[96] & 3) << 6);
  }
}
void put_nibbles(const std::uint8_t (&q)[256], std::uint8_t (&out)[128]) {
  for (int i = 0; i < 128; i++) {
    const std::uint8_t* from = q + i / 32 * 64 + i % 32;
    out[i] = static_cast<std::uint8_t>((from[0] & 15) | (from[32] & 15) << 4);
  }
}
/// Bit `bit` of 8 sub-blocks, beside each other.
void put_bits(const std::uint8_t (&q)[256], int bit, std::uint8_t (&out)[32]) {
  for (int i = 0; i < 32; i++) {
    int bits = 0;
    for (int s = 0; s < 8; s++) bits |= (q[32 * s + i] >> bit & 1) << s;
    out[i] = static_cast<std::uint8_t>(bits);
  }
}

void make(const float* x, BlockQ2_K& b) {
  const WithMinima<16> m(x, 3, 15);
  b.d = m.d;
  b.dmin = m.dmin;
  for (int s = 0; s < 16; s++) b.scales[s] = static_cast<std::uint8_t>(m.scales[s] | m.minima[s] << 4);
  put_two_bits(m.q, b.q);
}
void make(const float* x, BlockQ3_K& b) {
  const Scales m(x, 4, 32);
  b.d = m.d;
  std::fill(std::begin(b.scales), std::end(b.scales), std::uint8_t{0});
  for (int s = 0; s < 16; s++) {
    const int v = m.scales[s] + 32;
    b.scales[s % 8] = static_cast<std::uint8_t>(b.scales[s % 8] | (v & 15) << (s / 8 * 4));
    b.scales[8 + s % 4] = static_cast<std::uint8_t>(b.scales[8 + s % 4] | (v >> 4) << (s / 4 * 2));
  }
  put_two_bits(m.q, b.q);
  put_bits(m.q, 2, b.hmask);
}
void put_scales(const WithMinima<32>& m, std::uint16_t& d, std::uint16_t& dmin, std::uint8_t (&packed)[12]) {
  d = m.d;
  dmin = m.dmin;
  std::uint8_t scales[16];
  std::copy_n(m.scales, 8, scales);
  std::copy_n(m.minima, 8, scales + 8);
  pack_scales_q4_k(scales, packed);
}
void make(const float* x, BlockQ4_K& b) {
  const WithMinima<32> m(x, 15, 63);
  put_scales(m, b.d, b.dmin, b.scales);
  put_nibbles(m.q, b.q);
}
void make(const float* x, BlockQ5_K& b) {
  const WithMinima<32> m(x, 31, 63);
  put_scales(m, b.d, b.dmin, b.scales);
  put_nibbles(m.q, b.q);
  put_bits(m.q, 4, b.qh);
}
void make(const float* x, BlockQ6_K& b) {
  const Scales m(x, 32, 128);
  b.d = m.d;
  for (int s = 0; s < 16; s++) b.scales[s] = static_cast<std::int8_t>(m.scales[s]);
  for (int i = 0; i < 128; i++) {
    const std::uint8_t* from = m.q + i / 64 * 128 + i % 64;
    b.q[i] = static_cast<std::uint8_t>((from[0] & 15) | (from[64] & 15) << 4);
  }
  for (int i = 0; i < 64; i++) {
    const std::uint8_t* from = m.q + i / 32 * 128 + i % 32;
    b.qh[i] = static_cast<std::uint8_t>(from[0] >> 4 | from[32] >> 4 << 2 | from[64] >> 4 << 4 | from[96] >> 4 << 6);
  }
}

template <class B>
void make_all(i64 block, const float* in, void* out, i64 count) {
  auto* p = static_cast<std::byte*>(out);
  for (i64 i = 0; i < count; i += block, p += sizeof(B)) {
    B b{};
    if (finite(in + i, block))
      make(in + i, b);
    else
      b.d = kNan;
    std::memcpy(p, &b, sizeof b);
  }
}

}  // namespace

void quantize_blocks(DType to, const float* in, void* out, i64 count) {
  switch (to) {
    case DType::q4_0:
      return make_all<BlockQ4_0>(32, in, out, count);
    case DType::q4_1:
      return make_all<BlockQ4_1>(32, in, out, count);
    case DType::q5_0:
      return make_all<BlockQ5_0>(32, in, out, count);
    case DType::q5_1:
      return make_all<BlockQ5_1>(32, in, out, count);
    case DType::q8_0:
      return make_all<BlockQ8_0>(32, in, out, count);
    case DType::q2_k:
      return make_all<BlockQ2_K>(256, in, out, count);
    case DType::q3_k:
      return make_all<BlockQ3_K>(256, in, out, count);
    case DType::q4_k:
      return make_all<BlockQ4_K>(256, in, out, count);
    case DType::q5_k:
      return make_all<BlockQ5_K>(256, in, out, count);
    case DType::q6_k:
      return make_all<BlockQ6_K>(256, in, out, count);
    default:
      PLAIT_CHECK(false, "no blocks of {}", name_of(to));
  }
}

}  // namespace plait
