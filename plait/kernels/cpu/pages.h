// Keys of a KV cache as attention reads them (Layout::pages), a cache [C K H] of C slots: for every 16 slots and every
// KV head one panel, [C/16][K] panels, so that the scores of a query against 16 positions are one small product.
//   f32   [H][16]                bf16  [H/2][16][2], pairs of h; with an odd H the last partner is zero
// A page of the cache is one or several of these groups of 16 slots. Values are plain rows [C][K][H].
#pragma once
#include "plait/tensor/tensor.h"

namespace plait::kernels {

inline constexpr i64 kPageSlots = 16;

/// Elements of one panel; f32 or bf16.
constexpr i64 page_panel_elements(DType t, i64 h) { return kPageSlots * (t == DType::bf16 ? round_up(h, 2) : h); }

/// Bytes of a cache [slots][heads][h] in pages; slots is a multiple of 16.
constexpr i64 pages_bytes(DType t, i64 slots, i64 heads, i64 h) {
  return slots / kPageSlots * heads * page_panel_elements(t, h) * (t == DType::bf16 ? 2 : 4);
}

/// Offset in elements of (slot, head, i), counted from the first slot and head of the cache.
constexpr i64 page_offset(DType t, i64 heads, i64 h, i64 slot, i64 head, i64 i) {
  i64 panel = (slot / kPageSlots * heads + head) * page_panel_elements(t, h), place = slot % kPageSlots;
  return panel + (t == DType::bf16 ? (i / 2 * kPageSlots + place) * 2 + i % 2 : i * kPageSlots + place);
}

/// The row (slot, head) of a cache in pages or rows, as f32; indices are global, as the view's box. For `verify`.
void read_cache_row(const View& cache, i64 slot, i64 head, float* out);

}  // namespace plait::kernels
