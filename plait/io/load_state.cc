#include "plait/io/load_state.h"

#include <cstring>

#include "plait/kernels/panels.h"
#include "plait/models/family.h"

namespace plait::io {

namespace {

FileFormat file_format(const ModelFiles& f) {
  return f.format() == ModelFiles::Format::gguf ? FileFormat::gguf : FileFormat::hf;
}

std::string tensor_of(const ModelFiles& files, const WeightSlice& slice, const std::string& state) {
  for (auto& t : slice.tensors)
    if (files.has_tensor(t)) return t;
  fail(Code::bad_file, "[{}] no tensor for {}: want {}", files.path(), state, fmt::join(slice.tensors, " or "));
}

/// Dims of a state's box that make rows, and those that make columns, as contiguous ranges of the matrix.
struct Matrix {
  Range rows, cols;
};

Range flatten(const Box& box, const std::vector<i64>& sizes, size_t begin, size_t end, const std::string& state) {
  Range r{0, 1};
  bool outer = true;  // every dim but the first non-trivial one is whole
  for (size_t d = begin; d < end; d++) {
    if (!outer && box[d].size() != sizes[d])
      PLAIT_CHECK(r.size() <= 1, "{}: a part of {} that is no range of rows", state, to_string(box));
    r = {r.begin * sizes[d] + box[d].begin, (r.end - 1) * sizes[d] + box[d].end};
    outer = false;
  }
  return r;
}

/// A tied model reads its embedding twice; a head of its own that such a file also has would be lost without a word.
void check_tied_head(const ModelFiles& files, const ModelConfig& config) {
  const WeightSlice slice = weight_slice(config, FileFormat::hf, "output");
  for (auto& name : slice.tensors) {
    if (!files.has_tensor(name)) continue;
    const FileTensor head = files.tensor(name),
                     embedding =
                         files.tensor(tensor_of(files, weight_slice(config, FileFormat::hf, "embedding"), "embedding"));
    if (head.dtype != embedding.dtype || head.bytes != embedding.bytes ||
        std::memcmp(head.data, embedding.data, static_cast<size_t>(head.bytes)) != 0)
      fail(Code::bad_file, "[{}] {} is not the embedding, want equal tensors or tie_word_embeddings false",
           files.path(), name);
  }
}

}  // namespace

void check_files(const ModelFiles& files, const ModelConfig& config, const std::vector<std::string>& states) {
  for (auto& state : states) {
    WeightSlice slice = weight_slice(config, file_format(files), state);
    std::string name = tensor_of(files, slice, state);
    check_shape(slice, files.path(), name, *files.shape_of(name));
  }
  if (config.tied && file_format(files) == FileFormat::hf) check_tied_head(files, config);
  auto unknown = unknown_tensors(config, file_format(files), files.tensor_names());
  if (!unknown.empty())
    fail(Code::bad_file, "[{}] {} tensors that a {} model does not have, the first is {}", files.path(), unknown.size(),
         config.family, unknown[0]);
}

DType file_dtype(const ModelFiles& files, const ModelConfig& config, const std::string& state) {
  return files.tensor(tensor_of(files, weight_slice(config, file_format(files), state), state)).dtype;
}

void load_state(const ModelFiles& files, const ModelConfig& config, const std::string& state, const View& to, i64 n,
                i64 k, kernels::Team& team) {
  if (to.elements() == 0) return;
  const WeightSlice slice = weight_slice(config, file_format(files), state);
  const std::string name = tensor_of(files, slice, state);
  const FileTensor tensor = files.tensor(name);
  check_shape(slice, files.path(), name, tensor.shape);
  const std::string& dims = weight_row(config, state).dims;  // "NH|D"
  const size_t bar = dims.find('|');
  const size_t row_dims = bar == std::string::npos ? to.box.size() : bar;
  std::vector<i64> sizes;
  for (char c : dims)
    if (c != '|') {
      const std::map<char, i64> size{{'D', config.D},
                                     {'N', config.N},
                                     {'K', config.K},
                                     {'H', config.H},
                                     {'F', config.F},
                                     {'V', config.V},
                                     {'W', config.max_positions}};
      sizes.push_back(size.at(c));
    }
  PLAIT_CHECK(sizes.size() == to.box.size(), "{}: {} dims, want {}", state, to.box.size(), dims);
  const Range rows = flatten(to.box, sizes, 0, row_dims, state),
              cols = flatten(to.box, sizes, row_dims, to.box.size(), state);

  // Rows [first, first + count) of the part, as `to.dtype`, row-major.
  auto read = [&](i64 first, i64 count, std::byte* out) {
    if (tensor.shape.size() == 1 && slice.interleaved) {
      for (i64 r = 0; r < count; r++) {
        const i64 row = slice.file_row(first + r);
        read_slice(tensor, {{row, row + 1}}, to.dtype, out + r * bytes_of(to.dtype, 1));
      }
    } else if (tensor.shape.size() == 1) {
      read_slice(tensor, {{slice.file_row(first), slice.file_row(first) + count}}, to.dtype, out);
    } else if (slice.transposed) {
      const i64 width = bytes_of(to.dtype, 1);
      Buffer turned(cols.size() * count * width);
      read_slice(tensor, {cols, {slice.row0 + first, slice.row0 + first + count}}, to.dtype, turned.data());
      for (i64 r = 0; r < count; r++)
        for (i64 c = 0; c < cols.size(); c++)
          std::memcpy(out + (r * cols.size() + c) * width, turned.data() + (c * count + r) * width,
                      static_cast<size_t>(width));
    } else if (slice.interleaved) {
      for (i64 r = 0; r < count; r++) {
        i64 row = slice.file_row(first + r);
        read_slice(tensor, {{row, row + 1}, cols}, to.dtype, out + r * bytes_of(to.dtype, cols.size()));
      }
    } else {
      i64 row = slice.file_row(first);
      read_slice(tensor, {{row, row + count}, cols}, to.dtype, out);
    }
  };

  if (slice.less_one) {
    PLAIT_CHECK(to.layout == Layout::rows && to.dtype == DType::f32 && cols.size() == 1, "{}: less one in {}", state,
                name_of(to.dtype));
    read(rows.begin, rows.size(), static_cast<std::byte*>(to.data));
    for (i64 i = 0; i < rows.size(); i++) to.as<float>()[i] += 1;  // the gain itself, rounded to f32 once
    done_with(tensor);
    return;
  }
  auto* out = static_cast<std::byte*>(to.data);
  if (to.layout == Layout::rows) {
    constexpr i64 kRows = 64;
    const i64 row_bytes = bytes_of(to.dtype, cols.size());
    team.split(rows.size(), kRows, [&](Range part) {
      for (i64 r = part.begin; r < part.end; r += kRows)
        read(rows.begin + r, std::min(kRows, part.end - r), out + r * row_bytes);
    });
    done_with(tensor);
    return;
  }
  PLAIT_CHECK(to.layout == Layout::panels && rows.size() == n && cols.size() == k,
              "{}: panels of {} x {} for a part of {} x {}", state, n, k, rows.size(), cols.size());
  const i64 row_bytes = bytes_of(to.dtype, k), panel = kernels::bytes_of_panel(to.dtype, k);
  constexpr i64 kGrain = 8;
  team.split(kernels::panels_of(n), kGrain, [&](Range part) {
    Buffer one(kernels::kPanel * row_bytes);
    for (i64 p = part.begin; p < part.end; p++) {
      const i64 first = p * kernels::kPanel, count = std::min(kernels::kPanel, n - first);
      read(rows.begin + first, count, one.data());
      kernels::pack_panels(to.dtype, one.data(), row_bytes, count, k, {0, 1}, out + p * panel);
    }
  });
  done_with(tensor);
}

}  // namespace plait::io
