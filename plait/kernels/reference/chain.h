// The chain of a product: which elements of each operand follow each other, and where a leaf ends.
#pragma once
#include "plait/kernels/reference/loop.h"

namespace plait::kernels::reference {

/// Offsets of the contracted elements in the order of their fma.
struct Chain {
  std::vector<i64> x, y;
  std::vector<char> last;  // of a leaf
  i64 size() const { return static_cast<i64>(x.size()); }
};

/// Contracted factors ascending, the one with leaves outermost. exact: leaves end there, else the whole is one. pairs:
/// of two elements the odd one comes first (bf16 weights).
Chain chain_of(const Args& a, bool exact, bool pairs = false);

/// Whether a product takes its elements in pairs: the type of the weight decides.
inline bool in_pairs(const Args& a) { return a.in[1].dtype == DType::bf16; }

/// matmul in tiles of 4 rows and 16 columns, packed; threads take columns. Declines rules whose factors are not rows
/// and columns of one product.
template <class R>
Result<Run> tiled_matmul(const Args& a);

}  // namespace plait::kernels::reference
