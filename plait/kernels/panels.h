// A weight as the products read it: one resident copy, the same for every instruction set.
//
// A weight is n outputs by k inputs. It is cut into panels of 16 consecutive outputs; a panel holds for ascending k
// what one vector instruction needs of its 16 columns (little-endian, no gaps):
//   f32        for each k: 16 floats
//   bf16       for each pair of k: 16 x {k even, k odd}; with odd k the last partner is zero
//   blocks     for each block of 32 or 256 k: the f16 scales of 16 columns (types with minima: then their f16 minima),
//              then vectors of 64 bytes in which column c owns bytes 4c .. 4c+3: the 32-bit words of its block in the
//              file, so that the bytes of a word belong to 4 consecutive k, as an int8 dot product wants them. Of types
//              without minima two blocks share their head, so that everything starts on a multiple of 64 bytes:
//              scales of both, then the vectors of both.
// Within a block words stand as in the file, but
//   q8_0       with sign bits flipped (unsigned, offset 128)
//   q5_0 q5_1  fifth bits: bit w of byte j is that of k = 4w + j
//   q3_k q6_k  scales first; of q6_k then for each half of the block 32 bytes of q, qh, 32 bytes of q
// The bytes are those of the file in another order (4 a weight, 2, 0.5625, ...). The last panel is filled up with
// columns of zeros; kernels mask them.
//
// Words: row = one output (a row of the [n][k] matrix in a file), column = its place in a panel.
#pragma once
#include "plait/tensor/dtype.h"
#include "plait/tensor/range.h"

namespace plait::kernels {

constexpr i64 kPanel = 16;

/// Whether panels of this type exist: f32, bf16, block types.
bool has_panels(DType t);

/// Panels of n outputs.
constexpr i64 panels_of(i64 n) { return ceil_div(n, kPanel); }

/// Bytes of one panel, and of all panels of n outputs. k is a multiple of the block (checked).
i64 bytes_of_panel(DType t, i64 k);
i64 panel_bytes(DType t, i64 n, i64 k);

/// Packs panels [panels.begin, panels.end) of a matrix [n][k] whose rows (in the file's format) lie row_stride bytes
/// apart. `out` is the start of panel 0, aligned to 64 bytes. Callers may pack disjoint ranges at the same time.
void pack_panels(DType t, const std::byte* rows, i64 row_stride, i64 n, i64 k, Range panels, std::byte* out);

/// Row `row` in the file's format: bytes_of(t, k) bytes. The inverse of pack_panels.
void unpack_row(DType t, const std::byte* panels, i64 n, i64 k, i64 row, std::byte* out);

/// Row `row` as f32, k elements: a lookup in a table whose panels serve a product too (tied embeddings).
void panel_row(DType t, const std::byte* panels, i64 n, i64 k, i64 row, float* out);

/// Where block b of a panel lies, in bytes from the panel's start (block types only).
struct PanelBlock {
  i64 scales;  // 16 f16
  i64 minima;  // 16 f16 (types with minima), else 0
  i64 words;   // vectors of 64 bytes
};
PanelBlock panel_block(DType t, i64 k, i64 b);

/// Block b of a column of one panel, in the file's format (block types only): block_bytes of t.
void panel_block_of(DType t, const std::byte* panel, i64 k, i64 b, i64 column, std::byte* out);

}  // namespace plait::kernels
