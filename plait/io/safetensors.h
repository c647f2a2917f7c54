// Safetensors: a header of JSON (name -> dtype, shape, bytes) and the tensors' bytes behind it, read in place; one
// file, or shards named by `model.safetensors.index.json`.
//
// Method: the header is read by events straight into the list of tensors, so that nesting and odd values end at once
// and no tree of the header is built. Source and rules: the format's README and its reference reader: header of at most
// 100 MB, starting with '{'; every key once; the tensors' bytes start at 0, touch each other and end at the file's end.
// Limits: F32, F16, BF16, F64, I64 and I32 are read; the other types are listed and refused when asked for. A tensor's
// bytes may lie unaligned for its type: read through read_slice.
#pragma once
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plait/io/mapped_file.h"
#include "plait/tensor/dtype.h"

namespace plait::io {

struct SafetensorsType {
  const char* name;
  i64 bits;
  std::optional<DType> dtype;  // absent: known to the format, not read here
};
/// Entries of one table, wide types first: pointers compare in the order in which writers lay tensors out.
const SafetensorsType* safetensors_type(std::string_view name);
const SafetensorsType* safetensors_type_of(DType dtype);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<i64> shape;
  i64 offset = 0;  // in its file
  i64 bytes = 0;
  const std::byte* data = nullptr;
  size_t file = 0;  // of a sharded model
};

/// The text of an index: the names of a shard's tensors, by the shard's file name, which is one of the index's own
/// folder.
///   where   the file, for messages
///   errors  bad_file: no JSON object with a weight_map of tensor -> shard; a name that leaves the folder
std::map<std::string, std::unordered_set<std::string>> shards_of_index(std::string_view text, const std::string& where);

class Safetensors {
 public:
  /// path: NAME.safetensors, or an index (a name that ends in .json) with its shards beside it.
  /// errors  bad_file: "[file] what: got ..., want ..."; a shard that is missing, or lacks a tensor of the index
  explicit Safetensors(const std::string& path);
  explicit Safetensors(MappedFile file);

  const std::vector<MappedFile>& files() const { return files_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// In the order of their bytes; of a sharded model, the tensors that the index names.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* find_tensor(std::string_view name) const;
  /// errors  bad_file when it is absent or of a type that is not read
  const SafetensorsTensor& tensor(std::string_view name) const;

 private:
  std::vector<SafetensorsTensor> read(size_t file);
  void read_index(const std::string& path);
  void name_tensors();

  std::string path_;
  std::vector<MappedFile> files_;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_of_;
};

}  // namespace plait::io
