#include "plait/io/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plait/io/cursor.h"
#include "plait/io/json_text.h"

namespace plait::io {

namespace {

using nlohmann::json;

// In the order in which writers lay tensors out: wide types first.
constexpr SafetensorsType kTypes[] = {
    {"U64", 64, {}},         {"I64", 64, DType::i64}, {"F64", 64, DType::f64}, {"C64", 64, {}},
    {"F32", 32, DType::f32}, {"U32", 32, {}},         {"I32", 32, DType::i32}, {"BF16", 16, DType::bf16},
    {"F16", 16, DType::f16}, {"U16", 16, {}},         {"I16", 16, {}},         {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},      {"F8_E8M0", 8, {}},      {"I8", 8, {}},           {"U8", 8, {}},
    {"F6_E3M2", 6, {}},      {"F6_E2M3", 6, {}},      {"F4", 4, {}},           {"BOOL", 8, {}},
};

constexpr i64 kMaxHeaderBytes = 100'000'000;
constexpr i64 kMaxIndexBytes = i64{32} << 20;
constexpr size_t kMaxTensors = 1 << 17, kMaxMetadata = 1 << 16;  // of a file
constexpr size_t kMaxTextBytes = 1 << 20;                        // of a name, a value, a number
constexpr size_t kMaxDims = 32;

/// The header's events:
///   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"key": "text"}}
class Header {
 public:
  Header(const std::string& file, std::vector<SafetensorsTensor>& tensors, std::map<std::string, std::string>& metadata)
      : file_(file), tensors_(tensors), metadata_(metadata) {}

  bool null() { return odd("null"); }
  bool boolean(bool) { return odd("a boolean"); }
  bool number_integer(json::number_integer_t v) { return odd(fmt::format("{}", v)); }
  bool number_float(json::number_float_t, const std::string& text) { return odd(shown(text)); }
  bool binary(json::binary_t&) { return odd("binary"); }

  bool number_unsigned(json::number_unsigned_t v) {
    if (place_ != Place::shape && place_ != Place::offsets) return odd(fmt::format("{}", v));
    if (v > static_cast<u64>(INT64_MAX)) return odd(fmt::format("{}", v));
    auto& list = place_ == Place::shape ? tensors_.back().shape : offsets_;
    list.push_back(static_cast<i64>(v));
    if (list.size() > kMaxDims) return odd(fmt::format("more than {} numbers", kMaxDims));
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata_value) {
      if (metadata_.size() == kMaxMetadata) return odd(fmt::format("more than {} entries", kMaxMetadata));
      if (!metadata_.emplace(key_, text).second) again(key_);
      place_ = Place::metadata;
    } else if (place_ == Place::dtype) {
      tensors_.back().type = safetensors_type(text);
      if (tensors_.back().type == nullptr) return odd(shown(text));
      place_ = Place::tensor;
    } else {
      return odd(shown(text));
    }
    return true;
  }

  bool start_object(size_t) {
    if (place_ == Place::start) {
      place_ = Place::names;
    } else if (place_ == Place::name) {
      place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
      if (place_ == Place::tensor) {
        if (tensors_.size() == kMaxTensors) return odd(fmt::format("more than {} tensors", kMaxTensors));
        tensors_.emplace_back().name = key_;
        offsets_.clear();
        has_shape_ = has_offsets_ = false;
      }
    } else {
      return odd("an object");
    }
    return true;
  }

  bool key(std::string& text) {
    if (place_ == Place::metadata) {
      key_ = text;
      place_ = Place::metadata_value;
    } else if (place_ == Place::names) {
      key_ = text;
      place_ = Place::name;
      if (key_ == "__metadata__" && std::exchange(has_metadata_, true)) again(key_);
    } else if (text == "dtype") {
      if (tensors_.back().type != nullptr) again(text);
      place_ = Place::dtype;
    } else if (text == "shape") {
      if (std::exchange(has_shape_, true)) again(text);
      place_ = Place::before_shape;
    } else if (text == "data_offsets") {
      if (std::exchange(has_offsets_, true)) again(text);
      place_ = Place::before_offsets;
    } else {
      return odd(shown(text));
    }
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::before_shape)
      place_ = Place::shape;
    else if (place_ == Place::before_offsets)
      place_ = Place::offsets;
    else
      return odd("an array");
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_.size() != 2) return odd(fmt::format("{} offsets", offsets_.size()));
    place_ = Place::tensor;
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      auto& t = tensors_.back();
      if (t.type == nullptr || !has_shape_ || !has_offsets_) return odd("an incomplete entry");
      if (offsets_[1] < offsets_[0]) return odd(fmt::format("data_offsets [{}, {}]", offsets_[0], offsets_[1]));
      t.offset = offsets_[0];
      t.bytes = offsets_[1] - offsets_[0];
    }
    place_ = Place::names;
    return true;
  }

  bool parse_error(size_t at, const std::string&, const json::exception&) {
    fail(Code::bad_file, "[{}] header at offset {}: got text that is not JSON, want the names of tensors", file_,
         8 + (at > 0 ? at - 1 : 0));
  }

 private:
  enum class Place {
    start,
    names,
    name,
    metadata,
    metadata_value,
    tensor,
    dtype,
    before_shape,
    shape,
    before_offsets,
    offsets,
  };

  bool odd(const std::string& got) const {
    const char* want = "the names of tensors";
    switch (place_) {
      case Place::metadata_value:
        want = "a text";
        break;
      case Place::name:
        want = "an object";
        break;
      case Place::tensor:
        want = "dtype, shape and data_offsets";
        break;
      case Place::dtype:
        want = "a dtype of the format";
        break;
      case Place::before_shape:
      case Place::shape:
        want = "a shape of at most 32 sizes, integers from 0 on";
        break;
      case Place::before_offsets:
      case Place::offsets:
        want = "two data_offsets, ascending integers from 0 on";
        break;
      default:
        break;
    }
    fail(Code::bad_file, "[{}] header, {}: got {}, want {}", file_, shown(key_), got, want);
  }

  [[noreturn]] void again(const std::string& key) const {
    fail(Code::bad_file, "[{}] header, {}: got {} again, want each key once", file_, shown(key_), shown(key));
  }

  const std::string& file_;
  std::vector<SafetensorsTensor>& tensors_;
  std::map<std::string, std::string>& metadata_;
  Place place_ = Place::start;
  std::string key_;
  std::vector<i64> offsets_;
  bool has_metadata_ = false, has_shape_ = false, has_offsets_ = false;
};

/// The parser keeps several copies of the text or number that it is in.
void check_texts(std::string_view header, const std::string& file) {
  bool in_text = false;
  size_t begin = 0;
  for (size_t i = 0; i < header.size(); i++) {
    if (i - begin > kMaxTextBytes)
      fail(Code::bad_file, "[{}] header at offset {}: got a text of more than {} bytes, want at most that", file,
           8 + begin, kMaxTextBytes);
    if (in_text && header[i] == '\\')
      i++;
    else if (header[i] == '"' || (!in_text && (header[i] == ',' || header[i] == ':'))) {
      in_text ^= header[i] == '"';
      begin = i;
    }
  }
}

}  // namespace

const SafetensorsType* safetensors_type(std::string_view name) {
  for (const auto& t : kTypes)
    if (name == t.name) return &t;
  return nullptr;
}

const SafetensorsType* safetensors_type_of(DType dtype) {
  for (const auto& t : kTypes)
    if (t.dtype == dtype) return &t;
  return nullptr;
}

Safetensors::Safetensors(const std::string& path) : path_(path) {
  if (path.ends_with(".json")) {
    read_index(path);
  } else {
    files_.emplace_back(path);
    tensors_ = read(0);
  }
  name_tensors();
}

Safetensors::Safetensors(MappedFile file) : path_(file.path()) {
  files_.push_back(std::move(file));
  tensors_ = read(0);
  name_tensors();
}

std::vector<SafetensorsTensor> Safetensors::read(size_t file) {
  const auto& f = files_[file];
  Cursor c(f);
  i64 header_bytes = c.count("header length", 1);
  if (header_bytes > kMaxHeaderBytes)
    c.bad("header length", 0, header_bytes, fmt::format("at most {}", kMaxHeaderBytes));
  const auto* text = reinterpret_cast<const char*>(c.take(header_bytes, "header"));
  if (header_bytes == 0 || text[0] != '{') c.bad("header", 8, header_bytes == 0 ? "nothing" : shown({text, 1}), "'{'");
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
  Header header(f.path(), tensors, metadata);
  if (const void* nul = std::memchr(text, 0, static_cast<size_t>(header_bytes));
      nul != nullptr)  // the parser ends there
    c.bad("header", static_cast<const std::byte*>(nul) - f.data(), "a NUL byte", "JSON");
  check_texts({text, static_cast<size_t>(header_bytes)}, f.path());
  json::sax_parse(text, text + header_bytes, &header);
  metadata_.merge(metadata);  // of shards, the first one's values

  std::unordered_set<std::string_view> names;
  for (const auto& t : tensors)
    if (!names.insert(t.name).second)
      fail(Code::bad_file, "[{}] header: got tensor {} again, want each once", f.path(), shown(t.name));
  std::sort(tensors.begin(), tensors.end(),
            [](auto& a, auto& b) { return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes); });
  i64 end = 0;
  const i64 room = c.left(), data_begin = c.offset();
  for (auto& t : tensors) {
    const auto what = fmt::format("tensor {}", shown(t.name));
    i64 bits = t.type->bits;
    for (auto n : t.shape) bits = checked_mul(bits, n, fmt::format("[{}] {} bits", f.path(), what));
    if (bits % 8 != 0 || bits / 8 != t.bytes)
      fail(Code::bad_file, "[{}] {}: got {} bytes, want {} bits for its shape and dtype", f.path(), what, t.bytes,
           bits);
    if (t.offset != end)
      fail(Code::bad_file, "[{}] {}: got data from {} on, want from {} on, where the tensor before ends", f.path(),
           what, t.offset, end);
    if (t.bytes > room - t.offset)
      fail(Code::bad_file, "[{}] {}: got data up to {}, want within the {} bytes of data", f.path(), what,
           t.offset + t.bytes, room);
    end = t.offset + t.bytes;
    t.offset += data_begin;
    t.data = f.data() + t.offset;
    t.file = file;
  }
  if (end != room)
    fail(Code::bad_file, "[{}] got {} bytes of data, want {} for the tensors of the header", f.path(), room, end);
  f.check_whole();
  return tensors;
}

std::map<std::string, std::unordered_set<std::string>> shards_of_index(std::string_view text,
                                                                       const std::string& where) {
  const auto index = parse_json(text, where);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty())
    fail(Code::bad_file, "[{}] got no object weight_map, want tensor -> shard", where);
  std::map<std::string, std::unordered_set<std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const auto* name = shard.get_ptr<const std::string*>();
    if (name == nullptr || !name->ends_with(".safetensors") ||
        name->find_first_of(std::string_view("/\\\0", 3)) != name->npos)
      fail(Code::bad_file, "[{}] shard of {}: got {}, want the name of a .safetensors file in this folder", where,
           shown(tensor), name != nullptr ? shown(*name) : std::string(shard.type_name()));
    shards[*name].insert(tensor);
  }
  return shards;
}

void Safetensors::read_index(const std::string& path) {
  const MappedFile index(path);
  if (index.size() > kMaxIndexBytes)
    fail(Code::bad_file, "[{}] got {} bytes, want at most {} for an index", path, index.size(), kMaxIndexBytes);
  const auto shards = shards_of_index(index.text(), path);
  index.check_whole();
  const auto folder = std::filesystem::path(path).parent_path();
  for (const auto& [shard, names] : shards) {
    files_.emplace_back((folder / shard).string());
    size_t found = 0;
    for (auto& t : read(files_.size() - 1)) {
      if (!names.contains(t.name)) continue;
      tensors_.push_back(std::move(t));
      found++;
    }
    if (found == names.size()) continue;
    std::unordered_set<std::string_view> have;
    for (const auto& t : tensors_) have.insert(t.name);
    for (auto name : names)
      if (!have.contains(name))
        fail(Code::bad_file, "[{}] got no tensor {} in shard {}, want it there as the index says", path, shown(name),
             shard);
  }
}

void Safetensors::name_tensors() {
  for (size_t i = 0; i < tensors_.size(); i++) tensor_of_.emplace(tensors_[i].name, i);
}

const SafetensorsTensor* Safetensors::find_tensor(std::string_view name) const {
  auto it = tensor_of_.find(name);
  return it == tensor_of_.end() ? nullptr : &tensors_[it->second];
}

const SafetensorsTensor& Safetensors::tensor(std::string_view name) const {
  const auto* t = find_tensor(name);
  if (t == nullptr) fail(Code::bad_file, "[{}] got no tensor {} among {}", path_, shown(name), tensors_.size());
  if (!t->type->dtype)
    fail(Code::bad_file, "[{}] tensor {}: got dtype {}, want F32, F16, BF16, F64, I64 or I32", path_, shown(name),
         t->type->name);
  return *t;
}

}  // namespace plait::io
