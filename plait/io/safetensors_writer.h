// Writes safetensors: one file, or shards with their index (see safetensors.h for the format).
//
// Tensors of wider types come first and the header is padded to 8 bytes, so that every tensor is aligned for its type.
#pragma once
#include <map>
#include <vector>

#include "plait/io/output_file.h"
#include "plait/io/safetensors.h"

namespace plait::io {

class SafetensorsWriter {
 public:
  void set_metadata(const std::string& key, const std::string& value);
  /// A tensor of F32, F16, BF16, F64, I64 or I32. `data` is read by write().
  void add(const std::string& name, DType dtype, std::vector<i64> shape, const void* data);
  void add(const std::string& name, DType dtype, std::vector<i64> shape, Producer data);

  /// errors  bad_file with the system's reason; a name given twice; a producer of another number of bytes
  void write(const std::string& path) const;
  std::string to_bytes() const;
  /// FOLDER/model.safetensors, or shards of at most `max_shard_bytes` of data each (but at least one tensor) and
  /// FOLDER/model.safetensors.index.json, written last.
  void write_folder(const std::string& folder, i64 max_shard_bytes) const;

 private:
  struct Entry {
    std::string name;
    const SafetensorsType* type;
    std::vector<i64> shape;
    i64 bytes;
    Producer data;
  };
  using Entries = std::vector<const Entry*>;
  Entries in_order() const;
  void write_to(const Entries& entries, const Sink& sink) const;
  void write_file(const Entries& entries, const std::string& path) const;

  std::map<std::string, std::string> metadata_;
  std::vector<Entry> tensors_;
};

}  // namespace plait::io
