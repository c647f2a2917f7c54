#include "plait/io/gguf.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>

#include "plait/io/cursor.h"

namespace plait::io {

static_assert(std::endian::native == std::endian::little, "numbers are read in place");

namespace {

constexpr int kMaxArrayDepth = 4;
constexpr i64 kMaxNameBytes = 1024;
constexpr i64 kMaxAlignment = i64{1} << 20;
constexpr i64 kMaxFiles = 4096;
constexpr i64 kMaxTensors = 1 << 17, kMaxKeys = 1 << 16;  // of a file

/// Bytes of a value of a fixed-size type; 0 for texts and arrays.
i64 fixed_bytes(GgufType t) {
  switch (t) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    default:
      return 0;
  }
}

template <class S>
S load(const std::byte* p) {
  S s;
  std::memcpy(&s, p, sizeof s);
  return s;
}

std::optional<i64> as_integer(GgufType t, const std::byte* p) {
  switch (t) {
    case GgufType::u8:
      return load<std::uint8_t>(p);
    case GgufType::i8:
      return load<std::int8_t>(p);
    case GgufType::u16:
      return load<std::uint16_t>(p);
    case GgufType::i16:
      return load<std::int16_t>(p);
    case GgufType::u32:
      return load<std::uint32_t>(p);
    case GgufType::i32:
      return load<std::int32_t>(p);
    case GgufType::i64:
      return load<i64>(p);
    case GgufType::u64: {
      auto v = load<u64>(p);
      if (v > static_cast<u64>(std::numeric_limits<i64>::max())) return std::nullopt;
      return static_cast<i64>(v);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> as_number(GgufType t, const std::byte* p) {
  if (t == GgufType::f32) return load<float>(p);
  if (t == GgufType::f64) return load<double>(p);
  if (t == GgufType::u64) return static_cast<double>(load<u64>(p));
  auto i = as_integer(t, p);
  return i ? std::optional<double>(static_cast<double>(*i)) : std::nullopt;
}

GgufType read_type(Cursor& c, std::string_view what) {
  i64 at = c.offset();
  auto t = c.number<std::uint32_t>(what);
  if (t > static_cast<std::uint32_t>(GgufType::f64)) c.bad(what, at, t, "a value type in 0..12");
  return static_cast<GgufType>(t);
}

/// Reads a value's extent; what it points to is checked to be in the file, booleans to be 0 or 1.
GgufValue read_value(Cursor& c, GgufType type, const std::string& what, int depth) {
  GgufValue v;
  v.type = type;
  i64 begin = c.offset();
  if (type == GgufType::text) {
    auto t = c.text(what);
    v.data = reinterpret_cast<const std::byte*>(t.data());
    v.count = v.bytes = static_cast<i64>(t.size());
    return v;
  }
  if (type != GgufType::array) {
    v.bytes = fixed_bytes(type);
    v.data = c.take(v.bytes, what);
    if (type == GgufType::boolean && load<std::uint8_t>(v.data) > 1)
      c.bad(what, begin, load<std::uint8_t>(v.data), "a boolean, 0 or 1");
    return v;
  }
  if (depth >= kMaxArrayDepth)
    c.bad(what, begin, "deeper arrays", fmt::format("at most {} arrays in each other", kMaxArrayDepth));
  v.element = read_type(c, what);
  i64 fixed = fixed_bytes(v.element);
  v.count = c.count(what, fixed != 0 ? fixed : v.element == GgufType::text ? 8 : 12);
  begin = c.offset();
  v.data = c.take(0, what);
  if (fixed != 0) {
    c.take(v.count * fixed, what);
  } else if (v.element == GgufType::text) {
    for (i64 i = 0; i < v.count; i++) c.text(what);
  } else {
    for (i64 i = 0; i < v.count; i++) read_value(c, GgufType::array, what, depth + 1);
  }
  if (v.element == GgufType::boolean)
    for (i64 i = 0; i < v.count; i++)
      if (load<std::uint8_t>(v.data + i) > 1)
        c.bad(what, begin + i, load<std::uint8_t>(v.data + i), "a boolean, 0 or 1");
  v.bytes = c.offset() - begin;
  return v;
}

std::string_view read_name(Cursor& c, std::string_view what) {
  i64 at = c.offset();
  auto name = c.text(what);
  if (name.empty() || static_cast<i64>(name.size()) > kMaxNameBytes || name.find('\0') != name.npos)
    c.bad(what, at, shown(name), fmt::format("1 to {} bytes without NUL", kMaxNameBytes));
  return name;
}

/// The entry of a tensor; where it lies is not known yet (offset is relative to the data).
GgufTensor read_tensor(Cursor& c) {
  GgufTensor t;
  t.name = read_name(c, "tensor name");
  const auto what = fmt::format("tensor {}", shown(t.name));
  i64 at = c.offset();
  auto dims = c.number<std::uint32_t>(what);
  if (dims > 4) c.bad(what, at, fmt::format("{} dims", dims), "at most 4");
  t.shape.resize(dims);
  i64 elements = 1;
  for (auto d = static_cast<i64>(dims) - 1; d >= 0; d--) {
    at = c.offset();
    i64 n = c.number<i64>(what);
    if (n <= 0) c.bad(what, at, fmt::format("a dim of {}", n), "1 or more");
    t.shape[static_cast<size_t>(d)] = n;
    elements = checked_mul(elements, n, fmt::format("[{}] {} elements", c.path(), what));
  }
  at = c.offset();
  t.type_id = c.number<std::uint32_t>(what);
  t.type = ggml_type(t.type_id);
  if (t.type != nullptr) {
    i64 columns = t.shape.empty() ? 1 : t.shape.back();
    if (columns % t.type->block != 0)
      c.bad(what, at, fmt::format("rows of {} elements of {}", columns, t.type->name),
            fmt::format("a multiple of {}", t.type->block));
    t.bytes = checked_mul(elements / t.type->block, t.type->block_bytes, fmt::format("[{}] {} bytes", c.path(), what));
  }
  t.offset = c.number<i64>(what);
  return t;
}

using Values = std::unordered_map<std::string_view, GgufValue>;

/// An integer of the metadata in [low, high], or `otherwise` where it is absent.
i64 integer_of(const Cursor& c, const Values& values, std::string_view key, i64 low, i64 high, i64 otherwise) {
  auto it = values.find(key);
  if (it == values.end()) return otherwise;
  const auto& v = it->second;
  const auto i = as_integer(v.type, v.data);
  if (!i || *i < low || *i > high)
    fail(Code::bad_file, "[{}] value of {}: got {}, want an integer in {}..{}", c.path(), shown(key),
         i ? fmt::format("{}", *i) : name_of(v.type), low, high);
  return *i;
}

}  // namespace

const char* name_of(GgufType t) {
  constexpr const char* kNames[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "text", "array", "u64", "i64", "f64"};
  return kNames[static_cast<int>(t)];
}

GgufFile::GgufFile(MappedFile file) {
  files_.push_back(std::move(file));
  if (const Split split = read(0); split.count > 1) open_parts(split);
  for (auto& f : files_) f.check_whole();
}

GgufFile::Split GgufFile::read(size_t file, const Split* want) {
  Cursor c(files_[file]);
  if (auto magic = c.take(4, "magic"); std::memcmp(magic, "GGUF", 4) != 0)
    c.bad("magic", 0, shown({reinterpret_cast<const char*>(magic), 4}), "'GGUF'");
  auto version = c.number<std::uint32_t>("version");
  if (__builtin_bswap32(version) == 2 || __builtin_bswap32(version) == 3)
    c.bad("version", 4, "a big-endian file", "a little-endian one");
  if (version != 2 && version != 3) c.bad("version", 4, version, "2 or 3");
  i64 num_tensors = c.count("number of tensors", 24), num_keys = c.count("number of keys", 13);
  if (num_tensors > kMaxTensors) c.bad("number of tensors", 8, num_tensors, fmt::format("at most {}", kMaxTensors));
  if (num_keys > kMaxKeys) c.bad("number of keys", 16, num_keys, fmt::format("at most {}", kMaxKeys));

  i64 alignment = 32;
  std::unordered_map<std::string_view, GgufValue> values;
  std::vector<std::string_view> keys;
  for (i64 i = 0; i < num_keys; i++) {
    i64 at = c.offset();
    auto key = read_name(c, "key");
    const auto what = fmt::format("value of {}", shown(key));
    auto type = read_type(c, what);
    i64 value_at = c.offset();
    auto value = read_value(c, type, what, 0);
    if (!values.emplace(key, value).second) c.bad("key", at, fmt::format("{} again", shown(key)), "each key once");
    keys.push_back(key);
    if (key == "general.alignment") {
      alignment = type == GgufType::u32 ? static_cast<i64>(load<std::uint32_t>(value.data)) : 0;
      if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<u64>(alignment)))
        c.bad(what, value_at, type == GgufType::u32 ? fmt::format("{}", alignment) : name_of(type),
              fmt::format("a u32, a power of two in 8..{}", kMaxAlignment));
    }
  }
  Split split;
  split.count = integer_of(c, values, "split.count", 0, kMaxFiles, 1);
  split.no = integer_of(c, values, "split.no", 0, std::max<i64>(split.count, 1) - 1, 0);
  split.tensors = integer_of(c, values, "split.tensors.count", 0, kMaxFiles * kMaxTensors, -1);
  if (want != nullptr && (split.count != want->count || split.no != want->no))
    fail(Code::bad_file, "[{}] split files: got part {} of {} in this file, want part {} of {}", c.path(), split.no + 1,
         split.count, want->no + 1, want->count);
  if (want != nullptr && want->tensors >= 0 && split.tensors >= 0 && split.tensors != want->tensors)
    fail(Code::bad_file, "[{}] split files: got a part of a model of {} tensors, want one of {}", c.path(),
         split.tensors, want->tensors);
  if (file == 0) {
    version_ = static_cast<int>(version);
    alignment_ = alignment;
    values_ = std::move(values);
    keys_ = std::move(keys);
  }

  size_t first = tensors_.size();
  for (i64 i = 0; i < num_tensors; i++) {
    i64 at = c.offset();
    auto t = read_tensor(c);
    t.file = file;
    if (!tensor_of_.emplace(t.name, tensors_.size()).second)
      c.bad("tensor name", at, fmt::format("{} again", shown(t.name)), "each tensor once");
    tensors_.push_back(std::move(t));
  }
  if (num_tensors == 0) return split;

  const i64 size = files_[file].size(), begin = round_up(c.offset(), alignment), room = size - begin;
  if (room < 0) c.bad("tensor data", begin, fmt::format("the file's end at {}", size), "the tensors");
  std::vector<const GgufTensor*> order;
  for (size_t i = first; i < tensors_.size(); i++) {
    auto& t = tensors_[i];
    const auto what = fmt::format("tensor {}", shown(t.name));
    if (t.offset < 0 || t.offset % alignment != 0)
      c.bad(what, begin, fmt::format("data offset {}", t.offset), fmt::format("a multiple of {}", alignment));
    if (t.offset > room || t.bytes > room - t.offset)
      c.bad(what, begin, fmt::format("data offset {} and {} bytes", t.offset, t.bytes),
            fmt::format("both within the {} bytes of data", room));
    t.offset += begin;
    t.data = files_[file].data() + t.offset;
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); i++)
    if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes)
      c.bad(fmt::format("tensor {}", shown(order[i]->name)), order[i]->offset,
            fmt::format("the bytes of tensor {}", shown(order[i - 1]->name)), "bytes of its own");
  return split;
}

void GgufFile::open_parts(const Split& given) {
  const std::string opened = path();
  const auto name = gguf_part(opened);
  if (!name || name->no != given.no || name->count != given.count)
    fail(Code::bad_file,
         "[{}] split files: got part {} of {} under this name, want a name that ends in -{:05}-of-{:05}.gguf", opened,
         given.no + 1, given.count, given.no + 1, given.count);
  std::vector<std::string> paths;
  for (i64 i = 0; i < given.count; i++) {
    paths.push_back(part_path({name->stem, i, given.count}));
    std::error_code e;
    if (!std::filesystem::exists(paths.back(), e))
      fail(Code::bad_file, "[{}] split files: got no {}, want all {} parts beside each other", opened, paths.back(),
           given.count);
  }
  size_t read_already = 1;
  if (given.no != 0) {  // the first part has the metadata
    keys_.clear();
    values_.clear();
    tensor_of_.clear();
    tensors_.clear();
    files_.clear();
    read_already = 0;
  }
  for (size_t i = read_already; i < paths.size(); i++) {
    files_.emplace_back(paths[i]);
    const Split want{static_cast<i64>(i), given.count, given.tensors};
    read(i, &want);
  }
  if (given.tensors >= 0 && given.tensors != static_cast<i64>(tensors_.size()))
    fail(Code::bad_file, "[{}] split files: got {} tensors in {} files, want {}", path(), tensors_.size(), given.count,
         given.tensors);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void GgufFile::wrong_type(std::string_view key, const GgufValue& v, const char* want) const {
  auto got = v.type == GgufType::array ? fmt::format("array of {} {}", v.count, name_of(v.element))
                                       : std::string(name_of(v.type));
  fail(Code::bad_file, "[{}] value of {} at offset {}: got {}, want {}", path(), shown(key), v.data - files_[0].data(),
       got, want);
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::text) wrong_type(key, *v, "text");
  return std::string_view(reinterpret_cast<const char*>(v->data), static_cast<size_t>(v->bytes));
}

std::optional<i64> GgufFile::integer(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  auto i = as_integer(v->type, v->data);
  if (!i) wrong_type(key, *v, "an integer of 63 bits");
  return i;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  auto d = as_number(v->type, v->data);
  if (!d) wrong_type(key, *v, "a number");
  return d;
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::boolean) wrong_type(key, *v, "bool");
  return load<std::uint8_t>(v->data) != 0;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array || v->element != GgufType::text) wrong_type(key, *v, "array of text");
  std::vector<std::string_view> r;
  r.reserve(static_cast<size_t>(v->count));
  const std::byte* p = v->data;
  for (i64 i = 0; i < v->count; i++) {
    auto n = load<u64>(p);
    r.emplace_back(reinterpret_cast<const char*>(p + 8), n);
    p += 8 + n;
  }
  return r;
}

std::optional<std::vector<i64>> GgufFile::integers(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array) wrong_type(key, *v, "array of integers");
  std::vector<i64> r(static_cast<size_t>(v->count));
  i64 step = fixed_bytes(v->element);
  for (i64 i = 0; i < v->count; i++) {
    auto x = as_integer(v->element, v->data + i * step);
    if (!x) wrong_type(key, *v, "array of integers of 63 bits");
    r[static_cast<size_t>(i)] = *x;
  }
  return r;
}

std::optional<std::vector<float>> GgufFile::numbers(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array) wrong_type(key, *v, "array of numbers");
  std::vector<float> r(static_cast<size_t>(v->count));
  i64 step = fixed_bytes(v->element);
  for (i64 i = 0; i < v->count; i++) {
    auto x = as_number(v->element, v->data + i * step);
    if (!x) wrong_type(key, *v, "array of numbers");
    r[static_cast<size_t>(i)] = static_cast<float>(*x);
  }
  return r;
}

std::optional<std::vector<bool>> GgufFile::flags(std::string_view key) const {
  auto* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array || v->element != GgufType::boolean) wrong_type(key, *v, "array of bool");
  std::vector<bool> r(static_cast<size_t>(v->count));
  for (size_t i = 0; i < r.size(); i++) r[i] = load<std::uint8_t>(v->data + i) != 0;
  return r;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  auto it = tensor_of_.find(name);
  return it == tensor_of_.end() ? nullptr : &tensors_[it->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  auto* t = find_tensor(name);
  if (t == nullptr) fail(Code::bad_file, "[{}] got no tensor {} among {}", path(), shown(name), tensors_.size());
  if (t->type == nullptr || !t->type->dtype)
    fail(Code::bad_file, "[{}] tensor {}: got type {}, want F32, F16, BF16, Q4_0 to Q8_0 or Q2_K to Q6_K", path(),
         shown(name),
         t->type != nullptr ? std::string(t->type->name) : fmt::format("{}, which GGUF does not know", t->type_id));
  return *t;
}

}  // namespace plait::io
