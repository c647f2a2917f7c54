// A tensor as it lies in a file, whatever the format, and reading a box of it.
#pragma once
#include <optional>
#include <vector>

#include "plait/io/mapped_file.h"
#include "plait/tensor/dtype.h"
#include "plait/tensor/range.h"

namespace plait::io {

struct FileTensor {
  std::string name;  // as in the file
  DType dtype = DType::f32;
  std::vector<i64> shape;           // outermost first
  const std::byte* data = nullptr;  // row-major; may be unaligned for its type
  i64 bytes = 0;
  const MappedFile* file = nullptr;  // that holds data
};

/// Reads a box, row-major, and touches only the bytes of the box.
///   box     one range a dim, inside the shape
///   to      the tensor's own dtype (bits as they are; for block types the innermost range lies on multiples of the
///   block), or
///           f32, bf16, f16, f64 from any float or block type (rounded once to f32 where the source is f64 and `to`
///           differs, then to `to`)
///   out     volume(box) elements of `to`, aligned for it
///   errors  bad_file: a box outside the shape, off the blocks, or a type without conversion; the tensor is named
/// Any number of threads may read at once.
void read_slice(const FileTensor& t, const Box& box, DType to, void* out);

/// The whole tensor's box.
Box whole(const FileTensor& t);

/// The tensor is about to be read, or has been: hints to the system, no change of any result.
void will_need(const FileTensor& t);
void done_with(const FileTensor& t);

/// GGUF stores the rows of Q and K of Llama with the two halves of each head interleaved: in a head of H rows, file row
/// 2j + s is row s * H/2 + j of the Hugging Face order (s = 0, 1). Row -> row, over all heads; head_dim is even.
i64 hf_row_of_gguf(i64 head_dim, i64 row);
i64 gguf_row_of_hf(i64 head_dim, i64 row);

}  // namespace plait::io
