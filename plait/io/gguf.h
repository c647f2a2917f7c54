// GGUF files, versions 2 and 3, little endian: metadata (key -> typed value) and named tensors, read in place.
//
// Method: one pass over the header checks every length against the bytes left and notes where each value lies; texts,
// arrays and tensors are views into the mapping. Opening a file with 49,000 tokens costs about a millisecond.
// Source: the GGUF specification (ggml, docs/gguf.md). A model split over files (`split.count`) is opened by any of
// them; the others lie beside it, NAME-00001-of-0000N.gguf and so on, and the first has the metadata.
// Limits: tensors of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K; the others are listed, and refused
// when they are asked for.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "plait/io/mapped_file.h"
#include "plait/tensor/dtype.h"

namespace plait::io {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
const char* name_of(GgufType t);

/// One file of a split model, by its name: STEM-00002-of-00003.gguf is part 1 (from 0) of 3.
struct GgufPart {
  std::string stem;
  i64 no = 0, count = 1;
};
std::optional<GgufPart> gguf_part(std::string_view path);
/// The name of a part.
std::string part_path(const GgufPart& part);

/// How a tensor type of the format is stored.
struct GgmlType {
  std::uint32_t id;
  const char* name;
  i64 block, block_bytes;      // elements and bytes of a block
  std::optional<DType> dtype;  // absent: known to the format, not read here
};
/// nullptr for an id that the format does not know.
const GgmlType* ggml_type(std::uint32_t id);
/// The type that stores a dtype; nullptr where there is none.
const GgmlType* ggml_type_of(DType dtype);

/// A value of the metadata, where it lies in the file.
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  i64 count = 1;                    // elements of an array, bytes of a text
  const std::byte* data = nullptr;
  i64 bytes = 0;
};

/// A tensor as listed.
struct GgufTensor {
  std::string_view name;
  std::uint32_t type_id = 0;
  const GgmlType* type = nullptr;  // nullptr: unknown to the format
  std::vector<i64> shape;          // outermost first: [rows..., columns]
  i64 offset = 0;                  // in its file
  i64 bytes = 0;                   // 0 when the type is unknown
  const std::byte* data = nullptr;
  size_t file = 0;  // of a split model
};

class GgufFile {
 public:
  /// errors  bad_file: "[file] what at offset N: got ..., want ..."
  explicit GgufFile(const std::string& path) : GgufFile(MappedFile(path)) {}
  explicit GgufFile(MappedFile file);

  /// The file that was opened; of a split model its first.
  const std::string& path() const { return files_[0].path(); }
  int version() const { return version_; }
  i64 alignment() const { return alignment_; }
  const std::vector<MappedFile>& files() const { return files_; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue* find(std::string_view key) const;
  /// Keys in the file's order.
  const std::vector<std::string_view>& keys() const { return keys_; }

  /// The value of a key: nullopt when the key is absent, bad_file when it has another type (or does not fit i64).
  /// Any integer type reads as an integer, any integer or float type as a number. Texts are views into the mapping.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<i64> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<i64>> integers(std::string_view key) const;
  std::optional<std::vector<float>> numbers(std::string_view key) const;
  std::optional<std::vector<bool>> flags(std::string_view key) const;

  /// All tensors in the file's order, whatever their type.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  /// A tensor to be read. errors: bad_file when it is absent or of a type that is not read (both named).
  const GgufTensor& tensor(std::string_view name) const;

 private:
  /// What a file says of the model that it is a part of.
  struct Split {
    i64 no = 0, count = 1, tensors = -1;  // tensors of all parts, -1: not said
  };
  Split read(size_t file, const Split* want = nullptr);
  void open_parts(const Split& given);
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& v, const char* want) const;

  std::vector<MappedFile> files_;
  int version_ = 0;
  i64 alignment_ = 32;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_of_;
};

}  // namespace plait::io
