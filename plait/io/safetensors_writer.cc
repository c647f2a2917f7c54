#include "plait/io/safetensors_writer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {
/// A JSON string. errors: usage when it is not UTF-8.
std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(Code::usage, "[safetensors writer] got {}, want UTF-8", shown(text));
  }
}
}  // namespace

void SafetensorsWriter::set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

void SafetensorsWriter::add(const std::string& name, DType dtype, std::vector<i64> shape, const void* data) {
  add(name, dtype, std::move(shape), Producer());
  auto& t = tensors_.back();
  t.data = [data, bytes = t.bytes](const Sink& sink) { sink(data, bytes); };
}

void SafetensorsWriter::add(const std::string& name, DType dtype, std::vector<i64> shape, Producer data) {
  const auto* type = safetensors_type_of(dtype);
  if (type == nullptr)
    fail(Code::usage, "[safetensors writer] tensor {}: got {}, want a type of safetensors", shown(name),
         name_of(dtype));
  if (name == "__metadata__") fail(Code::usage, "[safetensors writer] got tensor '__metadata__', want another name");
  i64 bytes = type->bits / 8;
  for (auto n : shape) {
    if (n < 0) fail(Code::usage, "[safetensors writer] tensor {}: got a dim of {}, want 0 or more", shown(name), n);
    bytes = checked_mul(bytes, n, name);
  }
  tensors_.push_back({name, type, std::move(shape), bytes, std::move(data)});
}

SafetensorsWriter::Entries SafetensorsWriter::in_order() const {
  Entries order;
  for (const auto& t : tensors_) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](auto* a, auto* b) { return std::pair(a->type, a->name) < std::pair(b->type, b->name); });
  std::vector<std::string_view> names;
  for (const auto& t : tensors_) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  if (auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail(Code::usage, "[safetensors writer] got tensor {} again, want each once", shown(*twice));
  return order;
}

void SafetensorsWriter::write_to(const Entries& entries, const Sink& sink) const {
  std::string head(8, '\0'), comma;
  head += '{';
  if (!metadata_.empty()) {
    head += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_) {
      head += std::exchange(comma, ",") + json_text(key) + ':' + json_text(value);
    }
    head += '}';
  }
  i64 offset = 0;
  for (const auto* t : entries) {
    i64 end = checked_add(offset, t->bytes, t->name);
    head += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", std::exchange(comma, ","),
                        json_text(t->name), t->type->name, fmt::join(t->shape, ","), offset, end);
    offset = end;
  }
  head += '}';
  head.resize((head.size() + 7) / 8 * 8, ' ');
  u64 header_bytes = head.size() - 8;
  std::memcpy(head.data(), &header_bytes, 8);
  sink(head.data(), static_cast<i64>(head.size()));
  for (const auto* t : entries) {
    i64 written = 0;
    t->data([&](const void* data, i64 bytes) {
      written += bytes;
      if (written <= t->bytes) sink(data, bytes);
    });
    if (written != t->bytes)
      fail(Code::usage, "[safetensors writer] tensor {}: got {} bytes of data, want {}", shown(t->name), written,
           t->bytes);
  }
}

void SafetensorsWriter::write_file(const Entries& entries, const std::string& path) const {
  OutputFile file(path);
  write_to(entries, [&](const void* data, i64 bytes) { file.write(data, bytes); });
  file.commit();
}

void SafetensorsWriter::write(const std::string& path) const { write_file(in_order(), path); }

std::string SafetensorsWriter::to_bytes() const {
  std::string s;
  write_to(in_order(),
           [&](const void* data, i64 bytes) { s.append(static_cast<const char*>(data), static_cast<size_t>(bytes)); });
  return s;
}

void SafetensorsWriter::write_folder(const std::string& folder, i64 max_shard_bytes) const {
  const auto base = std::filesystem::path(folder);
  std::vector<Entries> shards(1);
  i64 in_shard = 0, total = 0;
  for (const auto* t : in_order()) {
    if (!shards.back().empty() && t->bytes > max_shard_bytes - in_shard) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(t);
    in_shard += t->bytes;
    total = checked_add(total, t->bytes, t->name);
  }
  if (shards.size() == 1) return write_file(shards[0], (base / "model.safetensors").string());
  nlohmann::json index;
  index["metadata"]["total_size"] = total;
  for (size_t i = 0; i < shards.size(); i++) {
    const auto name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_file(shards[i], (base / name).string());
    for (const auto* t : shards[i]) index["weight_map"][t->name] = name;
  }
  const auto text = index.dump(2) + '\n';
  OutputFile file((base / "model.safetensors.index.json").string());
  file.write(text.data(), static_cast<i64>(text.size()));
  file.commit();
}

}  // namespace plait::io
