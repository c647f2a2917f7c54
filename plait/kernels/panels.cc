#include "plait/kernels/panels.h"

#include "plait/tensor/blocks.h"

namespace plait::kernels {

namespace {

constexpr i64 kVector = 64;

/// How a block of a type lies in the file: where its f16 are, and where its 32-bit words begin that a panel has as
/// vectors.
struct Format {
  i64 d = 0, m = -1, words_at = 2, words = 4;
  std::uint32_t flip = 0;              // bits that panels hold the other way round
  bool fifth = false;                  // the first word: fifth bits, as spread() has them
  const std::int8_t* order = nullptr;  // of the words in a panel; null: as in the file
};

constexpr std::int8_t kOrderQ3K[] = {24, 25, 26, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10,
                                     11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
constexpr std::int8_t kOrderQ6K[] = {48, 49, 50, 51,                  // scales
                                     0,  1,  2,  3,  4,  5,  6,  7,   // first half: 32 bytes of q,
                                     32, 33, 34, 35, 36, 37, 38, 39,  // qh,
                                     8,  9,  10, 11, 12, 13, 14, 15,  // 32 bytes of q;
                                     16, 17, 18, 19, 20, 21, 22, 23,  // second half
                                     40, 41, 42, 43, 44, 45, 46, 47,  //
                                     24, 25, 26, 27, 28, 29, 30, 31};
static_assert(std::size(kOrderQ3K) == 27 && std::size(kOrderQ6K) == 52);

constexpr Format format(DType t) {
  switch (t) {
    case DType::q4_1:
      return {0, 2, 4, 4};
    case DType::q5_0:
      return {0, -1, 2, 5, 0, true};
    case DType::q5_1:
      return {0, 2, 4, 5, 0, true};
    case DType::q8_0:
      return {0, -1, 2, 8, 0x80808080u};
    case DType::q2_k:
      return {80, 82, 0, 20};
    case DType::q3_k:
      return {108, -1, 0, 27, 0, false, kOrderQ3K};
    case DType::q4_k:
      return {0, 2, 4, 35};
    case DType::q5_k:
      return {0, 2, 4, 43};
    case DType::q6_k:
      return {208, -1, 0, 52, 0, false, kOrderQ6K};
    default:
      return {};
  }
}

PanelBlock place(const Format& f, i64 blocks, i64 b) {
  const i64 heads = (f.m >= 0 ? 4 : 2) * kPanel, words = f.words * kVector;
  if (f.m >= 0) {  // head of a block: 64 bytes
    const i64 begin = b * (heads + words);
    return {begin, begin + 2 * kPanel, begin + heads};
  }
  const i64 pair = b / 2 * 2, in_pair = b - pair;
  const bool whole = pair + 1 < blocks;  // the last block of an odd count stands alone
  const i64 begin = pair * (heads + words);
  return {begin + in_pair * heads, 0, begin + (whole ? 2 : 1) * heads + in_pair * words};
}

/// Bit 4w + j -> bit w of byte j, so that one shift brings the bits of 4 consecutive k to the same place of 4 bytes.
std::uint32_t spread(std::uint32_t word) {
  std::uint32_t r = 0;
  for (int w = 0; w < 8; w++) r |= ((word >> 4 * w & 15u) * 0x00204081u & 0x01010101u) << w;
  return r;
}
std::uint32_t unspread(std::uint32_t bits) {
  std::uint32_t r = 0;
  for (int w = 0; w < 8; w++) r |= ((bits >> w & 0x01010101u) * 0x01020408u >> 24 & 15u) << 4 * w;
  return r;
}

std::uint32_t load_word(const std::byte* p) {
  std::uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

void check_shape(DType t, i64 k) {
  PLAIT_CHECK(has_panels(t), "no panels of {}", name_of(t));
  PLAIT_CHECK(k % info(t).block == 0, "panels of {} with k = {}", name_of(t), k);
}

void pack_f32(const std::byte* const (&row)[kPanel], i64 k, std::byte* out) {
  for (i64 j = 0; j < k; j++)
    for (i64 c = 0; c < kPanel; c++, out += 4) {
      if (row[c] != nullptr)
        std::memcpy(out, row[c] + j * 4, 4);
      else
        std::memset(out, 0, 4);
    }
}

void pack_bf16(const std::byte* const (&row)[kPanel], i64 k, std::byte* out) {
  for (i64 j = 0; j < k / 2; j++)
    for (i64 c = 0; c < kPanel; c++, out += 4) {
      std::uint32_t pair = row[c] != nullptr ? load_word(row[c] + j * 4) : 0;
      std::memcpy(out, &pair, 4);
    }
  if (k % 2 == 0) return;
  for (i64 c = 0; c < kPanel; c++, out += 4) {
    std::memset(out, 0, 4);
    if (row[c] != nullptr) std::memcpy(out, row[c] + (k - 1) * 2, 2);
  }
}

/// Of one type, so that the loop over its words has no questions to ask: packing is a good part of loading.
template <DType t>
void pack_blocks(const std::byte* const (&row)[kPanel], i64 k, std::byte* out) {
  constexpr Format f = format(t);
  const i64 stride = info(t).block_bytes, blocks = k / info(t).block;
  constexpr std::byte kZeros[kLargestBlockBytes] = {};
  for (i64 b = 0; b < blocks; b++) {
    const PanelBlock at = place(f, blocks, b);
    for (i64 c = 0; c < kPanel; c++) {
      const std::byte* block = row[c] != nullptr ? row[c] + b * stride : kZeros;
      std::memcpy(out + at.scales + 2 * c, block + f.d, 2);
      if (f.m >= 0) std::memcpy(out + at.minima + 2 * c, block + f.m, 2);
      for (i64 w = 0; w < f.words; w++) {
        std::uint32_t word = load_word(block + f.words_at + 4 * (f.order != nullptr ? f.order[w] : w)) ^ f.flip;
        if (f.fifth && w == 0) word = spread(word);
        std::memcpy(out + at.words + w * kVector + 4 * c, &word, 4);
      }
    }
  }
}

void pack_panel(DType t, const std::byte* const (&row)[kPanel], i64 k, std::byte* out) {
  switch (t) {
    case DType::f32:
      return pack_f32(row, k, out);
    case DType::bf16:
      return pack_bf16(row, k, out);
    case DType::q4_0:
      return pack_blocks<DType::q4_0>(row, k, out);
    case DType::q4_1:
      return pack_blocks<DType::q4_1>(row, k, out);
    case DType::q5_0:
      return pack_blocks<DType::q5_0>(row, k, out);
    case DType::q5_1:
      return pack_blocks<DType::q5_1>(row, k, out);
    case DType::q8_0:
      return pack_blocks<DType::q8_0>(row, k, out);
    case DType::q2_k:
      return pack_blocks<DType::q2_k>(row, k, out);
    case DType::q3_k:
      return pack_blocks<DType::q3_k>(row, k, out);
    case DType::q4_k:
      return pack_blocks<DType::q4_k>(row, k, out);
    case DType::q5_k:
      return pack_blocks<DType::q5_k>(row, k, out);
    case DType::q6_k:
      return pack_blocks<DType::q6_k>(row, k, out);
    default:
      PLAIT_CHECK(false, "no panels of {}", name_of(t));
  }
}

}  // namespace

void panel_block_of(DType t, const std::byte* panel, i64 k, i64 b, i64 column, std::byte* out) {
  const Format f = format(t);
  const PanelBlock at = place(f, k / info(t).block, b);
  std::memcpy(out + f.d, panel + at.scales + 2 * column, 2);
  if (f.m >= 0) std::memcpy(out + f.m, panel + at.minima + 2 * column, 2);
  for (i64 w = 0; w < f.words; w++) {
    std::uint32_t word = load_word(panel + at.words + w * kVector + 4 * column);
    if (f.fifth && w == 0) word = unspread(word);
    word ^= f.flip;
    std::memcpy(out + f.words_at + 4 * (f.order != nullptr ? f.order[w] : w), &word, 4);
  }
}

bool has_panels(DType t) { return t == DType::f32 || t == DType::bf16 || is_quantized(t); }

i64 bytes_of_panel(DType t, i64 k) {
  check_shape(t, k);
  if (t == DType::f32) return k * kVector;
  if (t == DType::bf16) return ceil_div(k, 2) * kVector;
  return bytes_of(t, k) * kPanel;
}

i64 panel_bytes(DType t, i64 n, i64 k) { return panels_of(n) * bytes_of_panel(t, k); }

PanelBlock panel_block(DType t, i64 k, i64 b) { return place(format(t), k / info(t).block, b); }

void pack_panels(DType t, const std::byte* rows, i64 row_stride, i64 n, i64 k, Range panels, std::byte* out) {
  const i64 bytes = bytes_of_panel(t, k);
  PLAIT_CHECK(Range(0, panels_of(n)).contains(panels), "panels {} of {} rows", to_string(panels), n);
  for (i64 p = panels.begin; p < panels.end; p++) {
    const std::byte* row[kPanel];
    for (i64 c = 0; c < kPanel; c++) row[c] = p * kPanel + c < n ? rows + (p * kPanel + c) * row_stride : nullptr;
    pack_panel(t, row, k, out + p * bytes);
  }
}

void unpack_row(DType t, const std::byte* panels, i64 n, i64 k, i64 row, std::byte* out) {
  PLAIT_CHECK(row >= 0 && row < n, "row {} of {}", row, n);
  const std::byte* panel = panels + row / kPanel * bytes_of_panel(t, k);
  const i64 c = row % kPanel;
  if (t == DType::f32) {
    for (i64 j = 0; j < k; j++) std::memcpy(out + 4 * j, panel + j * kVector + 4 * c, 4);
    return;
  }
  if (t == DType::bf16) {
    for (i64 j = 0; j < k / 2; j++) std::memcpy(out + 4 * j, panel + j * kVector + 4 * c, 4);
    if (k % 2 != 0) std::memcpy(out + 2 * (k - 1), panel + k / 2 * kVector + 4 * c, 2);
    return;
  }
  for (i64 b = 0; b < k / info(t).block; b++) panel_block_of(t, panel, k, b, c, out + b * info(t).block_bytes);
}

void panel_row(DType t, const std::byte* panels, i64 n, i64 k, i64 row, float* out) {
  if (t == DType::f32) {
    unpack_row(t, panels, n, k, row, reinterpret_cast<std::byte*>(out));
    return;
  }
  if (t == DType::bf16) {
    PLAIT_CHECK(row >= 0 && row < n, "row {} of {}", row, n);
    const std::byte* at = panels + row / kPanel * bytes_of_panel(t, k) + 4 * (row % kPanel);
    for (i64 j = 0; j < k; j += 2, at += kVector) {
      std::uint32_t pair = load_word(at);
      out[j] = std::bit_cast<float>(pair << 16);
      if (j + 1 < k) out[j + 1] = std::bit_cast<float>(pair & 0xffff0000u);
    }
    return;
  }
  // One block at a time through the file's format: to_f32 holds the only definition of a block's value.
  PLAIT_CHECK(row >= 0 && row < n, "row {} of {}", row, n);
  const std::byte* panel = panels + row / kPanel * bytes_of_panel(t, k);
  const i64 block = info(t).block;
  for (i64 b = 0; b < k / block; b++) {
    std::byte bytes[kLargestBlockBytes];
    panel_block_of(t, panel, k, b, row % kPanel, bytes);
    to_f32(t, bytes, out + block * b, block);
  }
}

}  // namespace plait::kernels
