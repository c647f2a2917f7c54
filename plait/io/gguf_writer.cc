#include "plait/io/gguf_writer.h"

#include <bit>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {

template <class T>
void put(std::string& s, T value) {
  s.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& s, std::string_view text) {
  put<u64>(s, text.size());
  s.append(text);
}

template <class T>
std::string stored(T value) {
  std::string s;
  put(s, value);
  return s;
}

template <class T>
std::string stored_array(GgufType element, std::span<const T> values) {
  auto s = stored(static_cast<std::uint32_t>(element));
  put<u64>(s, values.size());
  for (T v : values) put(s, v);
  return s;
}

}  // namespace

GgufWriter::GgufWriter(int version, i64 alignment) : version_(version), alignment_(alignment) {
  if (version != 2 && version != 3) fail(Code::usage, "[gguf writer] got version {}, want 2 or 3", version);
  if (alignment < 8 || alignment > (1 << 20) || !std::has_single_bit(static_cast<u64>(alignment)))
    fail(Code::usage, "[gguf writer] got alignment {}, want a power of two in 8..{}", alignment, 1 << 20);
  if (alignment != 32) set_u32("general.alignment", static_cast<std::uint32_t>(alignment));
}

void GgufWriter::set_stored(std::string_view key, GgufType type, std::string bytes) {
  for (const auto& k : keys_)
    if (k.name == key) fail(Code::usage, "[gguf writer] got key {} again, want each once", shown(key));
  keys_.push_back({std::string(key), stored(static_cast<std::uint32_t>(type)) + bytes});
}

void GgufWriter::set_text(std::string_view key, std::string_view value) {
  std::string s;
  put_text(s, value);
  set_stored(key, GgufType::text, std::move(s));
}

void GgufWriter::set_flag(std::string_view key, bool v) { set_stored(key, GgufType::boolean, stored<std::uint8_t>(v)); }
void GgufWriter::set_u32(std::string_view key, std::uint32_t v) { set_stored(key, GgufType::u32, stored(v)); }
void GgufWriter::set_i32(std::string_view key, std::int32_t v) { set_stored(key, GgufType::i32, stored(v)); }
void GgufWriter::set_u64(std::string_view key, u64 v) { set_stored(key, GgufType::u64, stored(v)); }
void GgufWriter::set_i64(std::string_view key, i64 v) { set_stored(key, GgufType::i64, stored(v)); }
void GgufWriter::set_f32(std::string_view key, float v) { set_stored(key, GgufType::f32, stored(v)); }
void GgufWriter::set_f64(std::string_view key, double v) { set_stored(key, GgufType::f64, stored(v)); }

void GgufWriter::set_texts(std::string_view key, std::span<const std::string_view> values) {
  auto s = stored(static_cast<std::uint32_t>(GgufType::text));
  put<u64>(s, values.size());
  for (auto v : values) put_text(s, v);
  set_stored(key, GgufType::array, std::move(s));
}

void GgufWriter::set_i32s(std::string_view key, std::span<const std::int32_t> values) {
  set_stored(key, GgufType::array, stored_array(GgufType::i32, values));
}

void GgufWriter::set_f32s(std::string_view key, std::span<const float> values) {
  set_stored(key, GgufType::array, stored_array(GgufType::f32, values));
}

void GgufWriter::set_flags(std::string_view key, std::span<const bool> values) {
  set_stored(key, GgufType::array, stored_array(GgufType::boolean, values));
}

void GgufWriter::set(std::string_view key, const GgufValue& v) {
  std::string s;
  if (v.type == GgufType::text) put<u64>(s, static_cast<u64>(v.bytes));
  if (v.type == GgufType::array) {
    put(s, static_cast<std::uint32_t>(v.element));
    put<u64>(s, static_cast<u64>(v.count));
  }
  s.append(reinterpret_cast<const char*>(v.data), static_cast<size_t>(v.bytes));
  set_stored(key, v.type, std::move(s));
}

void GgufWriter::add(std::string_view name, DType dtype, std::vector<i64> shape, const void* data) {
  add(name, dtype, std::move(shape), Producer());
  auto& t = tensors_.back();
  t.data = [data, bytes = t.bytes](const Sink& sink) { sink(data, bytes); };
}

void GgufWriter::add(std::string_view name, DType dtype, std::vector<i64> shape, Producer data) {
  const auto* type = ggml_type_of(dtype);
  if (type == nullptr)
    fail(Code::usage, "[gguf writer] tensor {}: got {}, want a type of GGUF", shown(name), name_of(dtype));
  if (shape.size() > 4)
    fail(Code::usage, "[gguf writer] tensor {}: got {} dims, want at most 4", shown(name), shape.size());
  for (const auto& t : tensors_)
    if (t.name == name) fail(Code::usage, "[gguf writer] got tensor {} again, want each once", shown(name));
  i64 elements = 1;
  for (auto n : shape) {
    if (n <= 0) fail(Code::usage, "[gguf writer] tensor {}: got a dim of {}, want 1 or more", shown(name), n);
    elements = checked_mul(elements, n, name);
  }
  if ((shape.empty() ? 1 : shape.back()) % type->block != 0)
    fail(Code::usage, "[gguf writer] tensor {}: got rows of {} elements of {}, want a multiple of {}", shown(name),
         shape.empty() ? 1 : shape.back(), type->name, type->block);
  i64 bytes = checked_mul(elements / type->block, type->block_bytes, name);
  tensors_.push_back({std::string(name), type, std::move(shape), bytes, std::move(data)});
}

void GgufWriter::write_to(const Sink& sink) const {
  std::string head = "GGUF";
  put(head, static_cast<std::uint32_t>(version_));
  put<u64>(head, tensors_.size());
  put<u64>(head, keys_.size());
  for (const auto& k : keys_) {
    put_text(head, k.name);
    head += k.value;
  }
  i64 offset = 0;
  for (const auto& t : tensors_) {
    put_text(head, t.name);
    put(head, static_cast<std::uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) put(head, t.shape[d]);
    put(head, t.type->id);
    put(head, offset);
    offset = round_up(checked_add(offset, t.bytes, t.name), alignment_);
  }
  const std::string zeros(static_cast<size_t>(alignment_), '\0');
  auto size = static_cast<i64>(head.size());
  if (!tensors_.empty()) head.append(zeros, 0, static_cast<size_t>(round_up(size, alignment_) - size));
  sink(head.data(), static_cast<i64>(head.size()));
  for (const auto& t : tensors_) {
    i64 written = 0;
    t.data([&](const void* data, i64 bytes) {
      written += bytes;
      if (written <= t.bytes) sink(data, bytes);
    });
    if (written != t.bytes)
      fail(Code::usage, "[gguf writer] tensor {}: got {} bytes of data, want {}", shown(t.name), written, t.bytes);
    sink(zeros.data(), round_up(t.bytes, alignment_) - t.bytes);
  }
}

void GgufWriter::write(const std::string& path) const {
  OutputFile file(path);
  write_to([&](const void* data, i64 bytes) { file.write(data, bytes); });
  file.commit();
}

std::string GgufWriter::to_bytes() const {
  std::string s;
  write_to([&](const void* data, i64 bytes) { s.append(static_cast<const char*>(data), static_cast<size_t>(bytes)); });
  return s;
}

}  // namespace plait::io
