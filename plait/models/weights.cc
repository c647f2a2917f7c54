#include "plait/models/weights.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "plait/models/family.h"

namespace plait {

namespace {

/// The number between the dots of "layers.12.wq", and the name with "*" in its place; -1 and the name itself else.
std::pair<i64, std::string> split_layer(const std::string& state) {
  constexpr std::string_view kPrefix = "layers.";
  if (state.compare(0, kPrefix.size(), kPrefix) != 0) return {-1, state};
  i64 layer = 0;
  size_t i = kPrefix.size();
  for (; i < state.size() && std::isdigit(static_cast<unsigned char>(state[i])) != 0 && i < kPrefix.size() + 6; i++)
    layer = layer * 10 + (state[i] - '0');
  if (i == kPrefix.size() || i == state.size() || state[i] != '.') return {-1, state};
  return {layer, "layers.*" + state.substr(i)};
}

std::string with_layer(std::string name, i64 layer) {
  if (auto star = name.find('*'); star != std::string::npos) name.replace(star, 1, std::to_string(layer));
  return name;
}

i64 size_of(const ModelConfig& c, char dim) {
  switch (dim) {
    case 'D':
      return c.D;
    case 'N':
      return c.N;
    case 'K':
      return c.K;
    case 'H':
      return c.H;
    case 'F':
      return c.F;
    case 'V':
      return c.V;
    case 'W':
      return c.max_positions;
    default:
      PLAIT_CHECK(false, "dim {} of a weight", dim);
  }
  return 0;
}

i64 volume_of(const ModelConfig& c, std::string_view dims) {
  i64 n = 1;
  for (char d : dims) n = checked_mul(n, size_of(c, d), "a weight's size");
  return n;
}

bool ends_with(const std::string& s, const std::string& end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

const WeightRow& weight_row(const ModelConfig& c, const std::string& state) {
  const auto [layer, name] = split_layer(state);
  if (layer < c.layers && state.find('*') == std::string::npos)
    for (auto& row : family_of(c).weights)
      if (row.state == name) return row;
  fail(Code::bad_file, "{} is no weight of a {} of {} layers", state, c.family, c.layers);
}

WeightSlice weight_slice(const ModelConfig& c, FileFormat format, const std::string& state) {
  const WeightRow& row = weight_row(c, state);
  const i64 layer = split_layer(state).first;
  const auto bar = row.dims.find('|');
  const bool matrix = bar != std::string::npos;
  WeightSlice s;
  s.rows = volume_of(c, row.dims.substr(0, bar));
  s.cols = matrix ? volume_of(c, row.dims.substr(bar + 1)) : 1;
  s.row0 = row.part * s.rows;
  if (format == FileFormat::hf) {
    // A model saved without its head has no prefix of the whole: "model." or "transformer.".
    std::string name = with_layer(row.hf, layer);
    s.tensors = {name};
    for (std::string_view prefix : {"model.", "transformer."})
      if (name.compare(0, prefix.size(), prefix) == 0) s.tensors.push_back(name.substr(prefix.size()));
    s.transposed = matrix && row.hf_transposed;
    s.less_one = row.hf_less_one;
  } else {
    s.tensors = {with_layer(row.gguf, layer)};
    s.interleaved = row.gguf_interleaved;
    s.head = s.interleaved ? c.H : 0;
  }
  s.file_shape = {s.rows * row.parts};
  if (matrix) s.file_shape.push_back(s.cols);
  if (s.transposed) std::swap(s.file_shape[0], s.file_shape[1]);
  return s;
}

std::vector<std::string> weights_of(const Graph& g) {
  std::vector<std::string> names;
  for (auto& v : g.values)
    if (v.kind == Kind::state && v.name.find(".cache.") == std::string::npos) names.push_back(v.name);
  return names;
}

void check_shape(const WeightSlice& s, std::string_view file, std::string_view tensor, const std::vector<i64>& shape) {
  if (shape != s.file_shape)
    fail(Code::bad_file, "[{}] tensor {}: got shape [{}], want [{}]", file, tensor, fmt::join(shape, " "),
         fmt::join(s.file_shape, " "));
}

std::vector<std::string> unknown_tensors(const ModelConfig& c, FileFormat format,
                                         const std::vector<std::string>& names) {
  const Family& f = family_of(c);
  std::set<std::string> known;
  for (auto& row : f.weights) {
    const bool absent = (row.state == "output" && c.tied && format == FileFormat::gguf) ||
                        (row.state.find(".bias") != std::string::npos && row.state.find(".w") != std::string::npos &&
                         !c.attention_bias);
    if (absent) continue;
    const i64 count = row.state.find('*') == std::string::npos ? 1 : c.layers;
    for (i64 l = 0; l < count; l++)
      for (auto& t : weight_slice(c, format, with_layer(row.state, l)).tensors) known.insert(t);
  }
  std::vector<std::string> unknown;
  for (auto& n : names) {
    const bool ignored =
        std::any_of(f.ignored_tensors.begin(), f.ignored_tensors.end(), [&](auto& e) { return ends_with(n, e); });
    if (known.count(n) == 0 && !ignored) unknown.push_back(n);
  }
  return unknown;
}

}  // namespace plait
