#include "plait/io/convert.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plait/io/load_state.h"
#include "plait/models/family.h"

namespace plait::io {

namespace {

constexpr i64 kBlockBytes = i64{8} << 20;  // of the rows that are made at once, in f32

bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

std::optional<DType> stand_in(DType t) {
  switch (t) {
    case DType::q2_k:
    case DType::q3_k:
      return DType::q4_0;
    case DType::q4_k:
      return DType::q5_0;
    case DType::q5_k:
      return DType::q5_1;
    case DType::q6_k:
      return DType::q8_0;
    default:
      return is_quantized(t) ? std::optional(DType::f16) : std::nullopt;
  }
}

double bits_of(DType t) { return 8.0 * static_cast<double>(info(t).block_bytes) / static_cast<double>(info(t).block); }

/// A state of the model and where it lies in the target.
struct Source {
  std::string state;
  std::string dims;  // outermost first
  size_t row_dims;   // of them
  std::vector<i64> sizes;
  WeightSlice target;
  DType file_dtype = DType::f32;

  i64 cols() const {
    i64 n = 1;
    for (size_t d = row_dims; d < sizes.size(); d++) n *= sizes[d];
    return n;
  }
  i64 rows() const {
    i64 n = 1;
    for (size_t d = 0; d < row_dims; d++) n *= sizes[d];
    return n;
  }
  /// Rows of one index of the outermost dim.
  i64 unit() const { return rows() / sizes[0]; }
};

struct Target {
  const ModelFiles& files;
  const ModelConfig& config;
  kernels::Team& team;
  std::vector<Source> sources;  // in the order of their rows in the target

  /// Rows [first, first + count) of a source in the order of the target, as `dtype`; whole units.
  void read(const Source& s, i64 first, i64 count, DType dtype, std::byte* out) const {
    const i64 cols = s.cols(), row_bytes = bytes_of(dtype, cols);
    Box box{{first / s.unit(), (first + count) / s.unit()}};
    for (size_t d = 1; d < s.sizes.size(); d++) box.push_back({0, s.sizes[d]});
    if (!s.target.interleaved) {
      load_state(files, config, s.state, View{out, dtype, Layout::rows, box}, 0, 0, team);
    } else {
      Buffer rows(count * row_bytes);
      load_state(files, config, s.state, View{rows.data(), dtype, Layout::rows, box}, 0, 0, team);
      for (i64 r = 0; r < count; r++)
        std::memcpy(out + (s.target.file_row(first + r) - s.target.row0 - first) * row_bytes,
                    rows.data() + r * row_bytes, static_cast<size_t>(row_bytes));
    }
    if (s.target.less_one)
      for (i64 i = 0; i < count * cols; i++) reinterpret_cast<float*>(out)[i] -= 1;
  }

  void produce(DType dtype, const Sink& sink) const {
    if (sources[0].target.transposed) return produce_transposed(dtype, sink);
    for (const Source& s : sources) {
      const i64 cols = s.cols(), rows = s.rows(), unit = s.unit();
      const bool as_it_is = s.file_dtype == dtype && !s.target.less_one;
      const i64 step = std::max<i64>(1, kBlockBytes / 4 / cols / unit) * unit;
      Buffer values(std::min(step, rows) * cols * (as_it_is ? 8 : 4));
      Buffer converted(as_it_is ? 0 : bytes_of(dtype, std::min(step, rows) * cols));
      for (i64 r = 0; r < rows; r += step) {
        const i64 count = std::min(step, rows - r);
        read(s, r, count, as_it_is ? dtype : DType::f32, values.data());
        if (!as_it_is) convert(dtype, values.data(), converted.data(), count, cols);
        sink(as_it_is ? values.data() : converted.data(), bytes_of(dtype, count * cols));
      }
    }
  }

  /// [in][out], all parts of a row together: the whole tensor is made at once.
  void produce_transposed(DType dtype, const Sink& sink) const {
    const i64 cols = sources[0].cols();
    i64 all = 0, at = 0;
    for (const Source& s : sources) all += s.rows();
    Buffer turned(all * cols * 4), rows, converted(bytes_of(dtype, all * cols));
    auto* to = reinterpret_cast<float*>(turned.data());
    for (const Source& s : sources) {
      rows = Buffer(s.rows() * cols * 4);
      read(s, 0, s.rows(), DType::f32, rows.data());
      const auto* from = reinterpret_cast<const float*>(rows.data());
      for (i64 r = 0; r < s.rows(); r++)
        for (i64 c = 0; c < cols; c++) to[c * all + at + r] = from[r * cols + c];
      at += s.rows();
    }
    convert(dtype, turned.data(), converted.data(), cols, all);
    sink(converted.data(), converted.bytes());
  }

  void convert(DType dtype, const std::byte* values, std::byte* out, i64 rows, i64 cols) const {
    team.split(rows, 1, [&](Range part) {
      for (i64 r = part.begin; r < part.end; r++)
        from_f32(dtype, reinterpret_cast<const float*>(values) + r * cols, out + r * bytes_of(dtype, cols), cols);
    });
  }
};

/// The type of a tensor in the target.
struct Choice {
  DType dtype;
  std::optional<DType> instead_of;
};

Choice choose(const Target& t, const ModelConfig& c, FileFormat to, std::optional<DType> wanted, i64 row) {
  const Source& s = t.sources[0];
  const bool matrix = s.row_dims < s.sizes.size();
  if (to == FileFormat::gguf && (!matrix || s.state == "positions")) return {DType::f32, {}};
  if (!wanted && !is_quantized(s.file_dtype)) return {is_float(s.file_dtype) ? s.file_dtype : DType::f32, {}};
  DType dtype = wanted.value_or(s.file_dtype);
  const bool logits = s.state == "output" || (s.state == "embedding" && c.tied);
  if (wanted && logits && bits_of(dtype) < bits_of(DType::q6_k)) dtype = DType::q6_k;
  const DType first = dtype;
  while (row % info(dtype).block != 0) dtype = *stand_in(dtype);
  return {dtype, dtype == first ? std::nullopt : std::optional(first)};
}

/// A folder has one type for all: that of the matrices, f32 where they differ or are in blocks.
DType one_type(const ModelFiles& files, const ModelConfig& config, const std::vector<std::string>& states) {
  std::optional<DType> one;
  for (auto& state : states) {
    if (weight_row(config, state).dims.find('|') == std::string::npos || state == "positions") continue;
    const DType t = file_dtype(files, config, state);
    if (!is_float(t) || (one && t != *one)) return DType::f32;
    one = t;
  }
  return one.value_or(DType::f32);
}

}  // namespace

std::vector<ConvertedTensor> convert_tensors(const ModelFiles& files, const ModelConfig& config, FileFormat to,
                                             std::optional<DType> dtype, kernels::Team& team) {
  if (dtype && !is_float(*dtype) && !(to == FileFormat::gguf && is_quantized(*dtype)))
    fail(Code::usage, "--dtype {}: {} files hold f32, f16 and bf16{}", name_of(*dtype),
         to == FileFormat::gguf ? "GGUF" : "safetensors", to == FileFormat::gguf ? " and block types" : "");
  const Graph g = build_serving(config, {});
  const auto states = weights_of(g);
  check_files(files, config, states);
  if (!dtype && to == FileFormat::hf) dtype = one_type(files, config, states);
  std::vector<std::string> names;  // in order of appearance
  std::map<std::string, std::shared_ptr<Target>> targets;
  for (auto& state : states) {
    const WeightSlice slice = weight_slice(config, to, state);
    const std::string& name = slice.tensors[0];
    auto& target = targets[name];
    if (!target) {
      target = std::make_shared<Target>(Target{files, config, team, {}});
      names.push_back(name);
    }
    Source s{state, g.at(g.named.at(state)).dims, 0, {}, slice};
    const std::string& dims = weight_row(config, state).dims;
    s.row_dims = std::min(dims.find('|'), dims.size());
    for (char d : s.dims) s.sizes.push_back(g.size(d));
    s.file_dtype = file_dtype(files, config, state);
    target->sources.push_back(std::move(s));
  }
  std::vector<ConvertedTensor> out;
  for (auto& name : names) {
    auto& t = targets.at(name);
    std::sort(t->sources.begin(), t->sources.end(), [](auto& a, auto& b) { return a.target.row0 < b.target.row0; });
    const std::vector<i64>& shape = t->sources[0].target.file_shape;
    const Choice c = choose(*t, config, to, dtype, shape.back());
    out.push_back(
        {name, shape, c.dtype, c.instead_of, [t, dtype = c.dtype](const Sink& sink) { t->produce(dtype, sink); }});
  }
  return out;
}

void write_config(GgufWriter& w, const ModelConfig& c, const std::string& name, std::optional<DType> dtype) {
  const std::string a = family_of(c).gguf_architecture;
  auto u32 = [&](const char* key, i64 v) { w.set_u32(a + "." + key, static_cast<std::uint32_t>(v)); };
  auto f32 = [&](const char* key, double v) { w.set_f32(a + "." + key, static_cast<float>(v)); };
  w.set_text("general.architecture", a);
  w.set_text("general.type", "model");
  w.set_text("general.name", name);
  // llama.cpp's numbers of what most matrices are.
  const std::pair<DType, std::uint32_t> kFileTypes[] = {
      {DType::f32, 0},   {DType::f16, 1},   {DType::q4_0, 2},  {DType::q4_1, 3},  {DType::q8_0, 7},
      {DType::q5_0, 8},  {DType::q5_1, 9},  {DType::q2_k, 10}, {DType::q3_k, 11}, {DType::q4_k, 14},
      {DType::q5_k, 16}, {DType::q6_k, 18}, {DType::bf16, 32}};
  for (auto& [t, number] : kFileTypes)
    if (t == dtype) w.set_u32("general.file_type", number);
  w.set_u32("general.quantization_version", 2);
  u32("block_count", c.layers);
  u32("context_length", c.max_positions);
  u32("embedding_length", c.D);
  u32("feed_forward_length", c.F);
  u32("attention.head_count", c.N);
  u32("vocab_size", c.V);
  if (c.family == "gpt2") {
    f32("attention.layer_norm_epsilon", c.eps);
    return;
  }
  u32("attention.head_count_kv", c.K);
  if (c.N * c.H != c.D || c.family == "gemma3") {
    u32("attention.key_length", c.H);
    u32("attention.value_length", c.H);
  }
  u32("rope.dimension_count", c.H);
  f32("attention.layer_norm_rms_epsilon", c.eps);
  f32("rope.freq_base", c.rope_base);
  if (c.rope_factor != 1) {
    w.set_text(a + ".rope.scaling.type", "linear");
    f32("rope.scaling.factor", c.rope_factor);
  }
  if (c.window > 0) {
    u32("attention.sliding_window", c.window);
    f32("rope.freq_base_swa", c.local_rope_base);
    i64 period = 1;  // layers from one that sees all positions to the next
    while (period <= c.layers && c.is_local(period - 1)) period++;
    for (i64 l = 0; l < c.layers; l++)
      if (c.is_local(l) == ((l + 1) % period == 0))
        fail(Code::usage, "layer {} breaks the pattern of local layers, which GGUF keeps as one period", l);
    u32("attention.sliding_window_pattern", period);
  }
  if (const auto& s = c.rope_scaling) {
    std::vector<float> factors;
    for (i64 i = 0; i < c.H / 2; i++) {
      const double frequency = std::pow(c.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(c.H));
      const double waves = static_cast<double>(s->original_positions) * frequency / (2 * std::numbers::pi);
      const double smooth = (waves - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
      factors.push_back(static_cast<float>(waves > s->high_freq_factor  ? 1
                                           : waves < s->low_freq_factor ? s->factor
                                                                        : 1 / ((1 - smooth) / s->factor + smooth)));
    }
    const auto size = static_cast<i64>(factors.size());
    w.add("rope_freqs.weight", DType::f32, {size},
          [factors](const Sink& sink) { sink(factors.data(), static_cast<i64>(factors.size() * sizeof(float))); });
  }
}

}  // namespace plait::io
