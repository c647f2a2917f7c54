#include "plait/io/file_tensor.h"

#include <algorithm>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {

constexpr i64 kChunk = 1024;  // elements, a multiple of every block

bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64; }

/// `count` elements from flat index `begin`, converted through f32.
void convert(const FileTensor& t, i64 begin, i64 count, DType to, std::byte* out) {
  const i64 block = info(t.dtype).block, out_bytes = info(to).block_bytes;
  alignas(64) std::byte raw[kChunk * 8];
  alignas(64) float values[kChunk];
  while (count > 0) {
    const i64 first = begin / block * block, skip = begin - first;
    const i64 n = std::min(count, kChunk - skip), covered = round_up(skip + n, block);
    std::memcpy(raw, t.data + bytes_of(t.dtype, first), static_cast<size_t>(bytes_of(t.dtype, covered)));
    to_f32(t.dtype, raw, values, covered);
    from_f32(to, values + skip, out, n);
    begin += n;
    count -= n;
    out += n * out_bytes;
  }
}

}  // namespace

Box whole(const FileTensor& t) {
  Box b;
  for (auto n : t.shape) b.push_back({0, n});
  return b;
}

void read_slice(const FileTensor& t, const Box& box, DType to, void* out) {
  if (box.size() != t.shape.size())
    fail(Code::bad_file, "[tensor {}] got a box of {} dims, want {}", shown(t.name), box.size(), t.shape.size());
  if (std::any_of(box.begin(), box.end(), [](Range r) { return r.empty(); })) return;
  for (size_t d = 0; d < box.size(); d++)
    if (box[d].begin < 0 || box[d].end > t.shape[d])
      fail(Code::bad_file, "[tensor {}] got {} of dim {}, want a range inside its {}", shown(t.name), to_string(box[d]),
           d, t.shape[d]);
  const bool raw = to == t.dtype;
  const i64 block = info(t.dtype).block;
  if (raw && block > 1 && !box.empty() && (box.back().begin % block != 0 || box.back().end % block != 0))
    fail(Code::bad_file, "[tensor {}] got {} of its rows, want multiples of {} for {}", shown(t.name),
         to_string(box.back()), block, name_of(t.dtype));
  if (!raw && !(is_float(to) && (is_float(t.dtype) || is_quantized(t.dtype))))
    fail(Code::bad_file, "[tensor {}] got {}, want a type that converts to {}", shown(t.name), name_of(t.dtype),
         name_of(to));

  // The inner dims that are whole, and one more, lie in one run of the file.
  size_t outer = box.empty() ? 0 : box.size() - 1;
  i64 run = box.empty() ? 1 : box.back().size();
  while (outer > 0 && box[outer] == Range{0, t.shape[outer]}) {
    outer--;
    run *= box[outer].size();
  }
  const i64 out_run = raw ? bytes_of(to, run) : run * info(to).block_bytes;
  auto* p = static_cast<std::byte*>(out);
  for_each(Box(box.begin(), box.begin() + static_cast<std::ptrdiff_t>(outer)), [&](const std::vector<i64>& x) {
    i64 begin = 0;
    for (size_t d = 0; d < box.size(); d++) begin = begin * t.shape[d] + (d < outer ? x[d] : box[d].begin);
    if (raw)
      std::memcpy(p, t.data + bytes_of(to, begin), static_cast<size_t>(out_run));
    else
      convert(t, begin, run, to, p);
    p += out_run;
  });
  if (t.file != nullptr) t.file->check_whole();
}

void will_need(const FileTensor& t) {
  if (t.file != nullptr) t.file->will_need(t.data - t.file->data(), t.bytes);
}
void done_with(const FileTensor& t) {
  if (t.file != nullptr) t.file->dont_need(t.data - t.file->data(), t.bytes);
}

i64 hf_row_of_gguf(i64 head_dim, i64 row) {
  i64 in_head = row % head_dim;
  return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

i64 gguf_row_of_hf(i64 head_dim, i64 row) {
  i64 in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

}  // namespace plait::io
