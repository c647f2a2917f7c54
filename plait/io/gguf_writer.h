// Writes GGUF files, version 2 or 3 (see gguf.h for the format and its source).
#pragma once
#include <span>
#include <vector>

#include "plait/io/gguf.h"
#include "plait/io/output_file.h"

namespace plait::io {

class GgufWriter {
 public:
  /// alignment: of the tensors' data, a power of two from 8 on; written as `general.alignment` when it is not 32.
  explicit GgufWriter(int version = 3, i64 alignment = 32);

  void set_text(std::string_view key, std::string_view value);
  void set_flag(std::string_view key, bool value);
  void set_u32(std::string_view key, std::uint32_t value);
  void set_i32(std::string_view key, std::int32_t value);
  void set_u64(std::string_view key, u64 value);
  void set_i64(std::string_view key, i64 value);
  void set_f32(std::string_view key, float value);
  void set_f64(std::string_view key, double value);
  void set_texts(std::string_view key, std::span<const std::string_view> values);
  void set_i32s(std::string_view key, std::span<const std::int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set_flags(std::string_view key, std::span<const bool> values);
  /// Any value of another file, as it is stored there.
  void set(std::string_view key, const GgufValue& value);

  /// A tensor of a type that GgufFile reads; shape outermost first, at most 4 dims. `data` is read by write().
  void add(std::string_view name, DType dtype, std::vector<i64> shape, const void* data);
  void add(std::string_view name, DType dtype, std::vector<i64> shape, Producer data);

  /// errors  bad_file with the system's reason; a key or a name given twice; a producer of another number of bytes
  void write(const std::string& path) const;
  std::string to_bytes() const;

 private:
  struct Key {
    std::string name, value;  // value: type and bytes as stored
  };
  struct Entry {
    std::string name;
    const GgmlType* type;
    std::vector<i64> shape;
    i64 bytes;
    Producer data;
  };
  void set_stored(std::string_view key, GgufType type, std::string bytes);
  void write_to(const Sink& sink) const;

  int version_;
  i64 alignment_;
  std::vector<Key> keys_;
  std::vector<Entry> tensors_;
};

}  // namespace plait::io
