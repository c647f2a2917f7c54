#include "plait/kernels/panels.h"

#include "plait/tensor/blocks.h"

namespace plait::kernels {

namespace {

constexpr i64 kVector = 64;

// Bytes of a block in the file before its quants, and vectors of quants of a block in a panel.
i64 head_bytes(DType t) { return t == DType::q4_1 ? 4 : 2; }
i64 vectors(DType t) { return t == DType::q8_0 ? 8 : 4; }

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

void pack_blocks(DType t, const std::byte* const (&row)[kPanel], i64 k, std::byte* out) {
  const i64 stride = info(t).block_bytes, head = head_bytes(t), words = vectors(t);
  const std::uint32_t flip = t == DType::q8_0 ? 0x80808080u : 0u;
  for (i64 b = 0; b < k / 32; b++) {
    PanelBlock at = panel_block(t, k, b);
    for (i64 c = 0; c < kPanel; c++) {
      const std::byte* block = row[c] != nullptr ? row[c] + b * stride : nullptr;
      if (block == nullptr) {
        std::memset(out + at.scales + 2 * c, 0, 2);
        if (t == DType::q4_1) std::memset(out + at.minima + 2 * c, 0, 2);
      } else {
        std::memcpy(out + at.scales + 2 * c, block, 2);
        if (t == DType::q4_1) std::memcpy(out + at.minima + 2 * c, block + 2, 2);
      }
      for (i64 w = 0; w < words; w++) {
        std::uint32_t word = (block != nullptr ? load_word(block + head + 4 * w) : 0) ^ flip;
        std::memcpy(out + at.quants + w * kVector + 4 * c, &word, 4);
      }
    }
  }
}

// The block in the file's format (block_bytes of t) of column c.
void take_block(DType t, const std::byte* panel, i64 k, i64 b, i64 c, std::byte* out) {
  const std::uint32_t flip = t == DType::q8_0 ? 0x80808080u : 0u;
  const PanelBlock at = panel_block(t, k, b);
  std::memcpy(out, panel + at.scales + 2 * c, 2);
  if (t == DType::q4_1) std::memcpy(out + 2, panel + at.minima + 2 * c, 2);
  for (i64 w = 0; w < vectors(t); w++) {
    std::uint32_t word = load_word(panel + at.quants + w * kVector + 4 * c) ^ flip;
    std::memcpy(out + head_bytes(t) + 4 * w, &word, 4);
  }
}

}  // namespace

bool has_panels(DType t) {
  return t == DType::f32 || t == DType::bf16 || t == DType::q4_0 || t == DType::q4_1 || t == DType::q8_0;
}

i64 bytes_of_panel(DType t, i64 k) {
  check_shape(t, k);
  if (t == DType::f32) return k * kVector;
  if (t == DType::bf16) return ceil_div(k, 2) * kVector;
  return bytes_of(t, k) * kPanel;
}

i64 panel_bytes(DType t, i64 n, i64 k) { return panels_of(n) * bytes_of_panel(t, k); }

PanelBlock panel_block(DType t, i64 k, i64 b) {
  const i64 heads = head_bytes(t) * kPanel, quants = vectors(t) * kVector;
  if (t == DType::q4_1) {  // head of a block: 64 bytes
    i64 begin = b * (heads + quants);
    return {begin, begin + 2 * kPanel, begin + heads};
  }
  const i64 pair = b / 2 * 2, in_pair = b - pair;
  const bool whole = pair + 1 < k / 32;  // the last block of an odd count stands alone
  const i64 begin = pair * (heads + quants);
  return {begin + in_pair * heads, 0, begin + (whole ? 2 : 1) * heads + in_pair * quants};
}

void pack_panels(DType t, const std::byte* rows, i64 row_stride, i64 n, i64 k, Range panels, std::byte* out) {
  const i64 bytes = bytes_of_panel(t, k);
  PLAIT_CHECK(Range(0, panels_of(n)).contains(panels), "panels {} of {} rows", to_string(panels), n);
  for (i64 p = panels.begin; p < panels.end; p++) {
    const std::byte* row[kPanel];
    for (i64 c = 0; c < kPanel; c++) row[c] = p * kPanel + c < n ? rows + (p * kPanel + c) * row_stride : nullptr;
    if (t == DType::f32)
      pack_f32(row, k, out + p * bytes);
    else if (t == DType::bf16)
      pack_bf16(row, k, out + p * bytes);
    else
      pack_blocks(t, row, k, out + p * bytes);
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
  for (i64 b = 0; b < k / 32; b++) take_block(t, panel, k, b, c, out + b * info(t).block_bytes);
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
  for (i64 b = 0; b < k / 32; b++) {
    alignas(8) std::byte block[sizeof(BlockQ8_0)];
    take_block(t, panel, k, b, row % kPanel, block);
    to_f32(t, block, out + 32 * b, 32);
  }
}

}  // namespace plait::kernels
