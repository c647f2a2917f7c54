#include "plait/tensor/blocks.h"

namespace plait {

namespace {

template <class B>
B load(const void* p) {
  B b;
  std::memcpy(&b, p, sizeof b);
  return b;
}

void nibbles(const std::uint8_t (&q)[16], int offset, BlockParts& out) {
  for (int i = 0; i < 16; i++) {
    out.q[i] = static_cast<std::int8_t>((q[i] & 15) - offset);
    out.q[i + 16] = static_cast<std::int8_t>((q[i] >> 4) - offset);
  }
}

void fifth_bits(const std::uint8_t (&qh)[4], BlockParts& out) {
  for (int i = 0; i < 32; i++) out.q[i] = static_cast<std::int8_t>(out.q[i] + (qh[i / 8] >> (i % 8) & 1) * 16);
}

void take_q2_k(const BlockQ2_K& b, BlockParts& out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int s = 0; s < 16; s++) {
    out.scale[s] = d * static_cast<float>(b.scales[s] & 15);
    out.minimum[s] = dmin * static_cast<float>(b.scales[s] >> 4);
  }
  for (int i = 0; i < 256; i++) out.q[i] = static_cast<std::int8_t>(b.q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
}

void take_q3_k(const BlockQ3_K& b, BlockParts& out) {
  const float d = f16_to_f32(b.d);
  for (int s = 0; s < 16; s++) {
    const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4, high = b.scales[8 + s % 4] >> (s / 4 * 2) & 3;
    out.scale[s] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; i++) {
    const int low = b.q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3, high = b.hmask[i % 32] >> (i / 32) & 1;
    out.q[i] = static_cast<std::int8_t>((low | high << 2) - 4);
  }
}

void scales_q4_k(std::uint16_t d_bits, std::uint16_t dmin_bits, const std::uint8_t (&packed)[12], BlockParts& out) {
  const float d = f16_to_f32(d_bits), dmin = f16_to_f32(dmin_bits);
  std::uint8_t scales[16];
  unpack_scales_q4_k(packed, scales);
  for (int s = 0; s < 8; s++) {
    out.scale[s] = d * static_cast<float>(scales[s]);
    out.minimum[s] = dmin * static_cast<float>(scales[s + 8]);
  }
}

void nibbles_q4_k(const std::uint8_t (&q)[128], BlockParts& out) {
  for (int i = 0; i < 256; i++) out.q[i] = static_cast<std::int8_t>(q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

void take_q6_k(const BlockQ6_K& b, BlockParts& out) {
  const float d = f16_to_f32(b.d);
  for (int s = 0; s < 16; s++) out.scale[s] = d * static_cast<float>(b.scales[s]);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, j = i / 32 % 4;
    const int low = b.q[half * 64 + i % 64] >> (j / 2 * 4) & 15, high = b.qh[half * 32 + i % 32] >> (j * 2) & 3;
    out.q[i] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
}

}  // namespace

bool has_minimum(DType t) {
  return t == DType::q4_1 || t == DType::q5_1 || t == DType::q2_k || t == DType::q4_k || t == DType::q5_k;
}

i64 sub_block(DType t) { return t == DType::q2_k || t == DType::q3_k || t == DType::q6_k ? 16 : 32; }

void unpack_scales_q4_k(const std::uint8_t (&packed)[12], std::uint8_t (&out)[16]) {
  for (int j = 0; j < 4; j++) {
    out[j] = packed[j] & 63;
    out[j + 8] = packed[j + 4] & 63;
    out[j + 4] = static_cast<std::uint8_t>((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
    out[j + 12] = static_cast<std::uint8_t>((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
  }
}

void pack_scales_q4_k(const std::uint8_t (&scales)[16], std::uint8_t (&out)[12]) {
  for (int j = 0; j < 4; j++) {
    out[j] = static_cast<std::uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<std::uint8_t>(scales[j + 8] | (scales[j + 12] >> 4) << 6);
    out[j + 8] = static_cast<std::uint8_t>((scales[j + 4] & 15) | (scales[j + 12] & 15) << 4);
  }
}

void take_apart(DType t, const void* block, BlockParts& out) {
  switch (t) {
    case DType::q4_0: {
      auto b = load<BlockQ4_0>(block);
      out.scale[0] = f16_to_f32(b.d);
      return nibbles(b.q, 8, out);
    }
    case DType::q4_1: {
      auto b = load<BlockQ4_1>(block);
      out.scale[0] = f16_to_f32(b.d);
      out.minimum[0] = -f16_to_f32(b.m);
      return nibbles(b.q, 0, out);
    }
    case DType::q5_0: {
      auto b = load<BlockQ5_0>(block);
      out.scale[0] = f16_to_f32(b.d);
      nibbles(b.q, 16, out);
      return fifth_bits(b.qh, out);
    }
    case DType::q5_1: {
      auto b = load<BlockQ5_1>(block);
      out.scale[0] = f16_to_f32(b.d);
      out.minimum[0] = -f16_to_f32(b.m);
      nibbles(b.q, 0, out);
      return fifth_bits(b.qh, out);
    }
    case DType::q8_0: {
      auto b = load<BlockQ8_0>(block);
      out.scale[0] = f16_to_f32(b.d);
      std::memcpy(out.q, b.q, 32);
      return;
    }
    case DType::q2_k:
      return take_q2_k(load<BlockQ2_K>(block), out);
    case DType::q3_k:
      return take_q3_k(load<BlockQ3_K>(block), out);
    case DType::q4_k: {
      auto b = load<BlockQ4_K>(block);
      scales_q4_k(b.d, b.dmin, b.scales, out);
      return nibbles_q4_k(b.q, out);
    }
    case DType::q5_k: {
      auto b = load<BlockQ5_K>(block);
      scales_q4_k(b.d, b.dmin, b.scales, out);
      nibbles_q4_k(b.q, out);
      for (int i = 0; i < 256; i++) out.q[i] = static_cast<std::int8_t>(out.q[i] | (b.qh[i % 32] >> (i / 32) & 1) << 4);
      return;
    }
    case DType::q6_k:
      return take_q6_k(load<BlockQ6_K>(block), out);
    default:
      PLAIT_CHECK(false, "no blocks of {}", name_of(t));
  }
}

void dequantize(DType from, const void* in, float* out, i64 count) {
  const i64 block = info(from).block, sub = sub_block(from);
  const bool minima = has_minimum(from);
  BlockParts parts;
  auto* p = static_cast<const std::byte*>(in);
  for (i64 b = 0; b < count; b += block, p += info(from).block_bytes, out += block) {
    take_apart(from, p, parts);
    for (i64 s = 0; s < block / sub; s++)
      for (i64 i = s * sub; i < (s + 1) * sub; i++) {
        const float y = parts.scale[s] * static_cast<float>(parts.q[i]);
        out[i] = minima ? y - parts.minimum[s] : y;
      }
  }
}

}  // namespace plait
