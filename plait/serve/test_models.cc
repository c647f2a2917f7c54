#include "plait/serve/test_models.h"

#include <cstring>
#include <mutex>

#include "plait/base/hash.h"
#include "plait/io/gguf_writer.h"
#include "plait/io/json_text.h"
#include "plait/io/safetensors_writer.h"
#include "plait/models/random_weights.h"

namespace plait::serve {

namespace {

Values transposed(const Values& w, i64 rows, i64 cols) {
  Values t(w.size());
  for (i64 r = 0; r < rows; r++)
    for (i64 c = 0; c < cols; c++) t[static_cast<size_t>(c * rows + r)] = w[static_cast<size_t>(r * cols + c)];
  return t;
}

Values joined(std::initializer_list<Values> parts) {
  Values all;
  for (auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

/// llama.cpp's order of Q and K: w.reshape(heads, 2, H / 2, cols).swapaxes(1, 2).
Values permuted(const Values& w, i64 heads, i64 H, i64 cols) {
  Values p;
  for (i64 h = 0; h < heads; h++)
    for (i64 j = 0; j < H / 2; j++)
      for (i64 s = 0; s < 2; s++) {
        auto row = w.begin() + (h * H + s * (H / 2) + j) * cols;
        p.insert(p.end(), row, row + cols);
      }
  return p;
}

/// add(name, shape, values, state) for every tensor of a Hugging Face file.
template <class Add>
void hf_tensors(const RandomModel& m, Add add) {
  const i64 D = m.D, F = m.F, Q = m.N * m.H, KV = m.K * m.H;
  auto plain = [&](const std::string& name, const std::string& state, std::vector<i64> shape) {
    i64 n = 1;
    for (i64 s : shape) n *= s;
    add(name, shape, m.weight(state, n), state);
  };
  auto gain = [&](const std::string& name, const std::string& state, i64 width) {
    Values g = m.weight(state, width);
    if (m.gemma)
      for (float& x : g) x -= 1;
    add(name, {width}, std::move(g), state);
  };
  const std::string top = m.gpt2 ? "transformer." : "model.";
  plain(top + (m.gpt2 ? "wte.weight" : "embed_tokens.weight"), "embedding", {m.V, D});
  gain(top + (m.gpt2 ? "ln_f.weight" : "norm.weight"), "norm", D);
  if (!m.tied) plain("lm_head.weight", "output", {m.V, D});
  if (m.gpt2) {
    plain(top + "ln_f.bias", "norm.bias", {D});
    plain(top + "wpe.weight", "positions", {m.W, D});
  }
  for (i64 l = 0; l < m.layers; l++) {
    const std::string p = fmt::format("layers.{}.", l), h = top + fmt::format("{}.{}.", m.gpt2 ? "h" : "layers", l);
    if (m.gpt2) {
      // Conv1D keeps [in][out].
      auto conv = [&](const std::string& name, const std::string& state, i64 out, i64 in) {
        add(h + name + ".weight", std::vector<i64>{in, out}, transposed(m.weight(p + state, out * in), out, in),
            p + state);
        plain(h + name + ".bias", p + state + ".bias", {out});
      };
      add(h + "attn.c_attn.weight", std::vector<i64>{D, 3 * D},
          transposed(joined({m.weight(p + "wq", D * D), m.weight(p + "wk", D * D), m.weight(p + "wv", D * D)}), 3 * D,
                     D),
          p + "wq");
      add(h + "attn.c_attn.bias", std::vector<i64>{3 * D},
          joined({m.weight(p + "wq.bias", D), m.weight(p + "wk.bias", D), m.weight(p + "wv.bias", D)}), p + "wq.bias");
      conv("attn.c_proj", "wo", D, D);
      conv("mlp.c_fc", "up", F, D);
      conv("mlp.c_proj", "down", D, F);
      for (auto [ours, theirs] : {std::pair{"attention_norm", "ln_1"}, std::pair{"ffn_norm", "ln_2"}}) {
        plain(h + theirs + ".weight", p + ours, {D});
        plain(h + theirs + ".bias", p + ours + std::string(".bias"), {D});
      }
      continue;
    }
    struct Projection {
      const char* name;
      i64 rows, cols;
    };
    for (auto [name, rows, cols] :
         {Projection{"q", Q, D}, Projection{"k", KV, D}, Projection{"v", KV, D}, Projection{"o", D, Q}}) {
      plain(h + fmt::format("self_attn.{}_proj.weight", name), p + "w" + name, {rows, cols});
      if (m.biases) plain(h + fmt::format("self_attn.{}_proj.bias", name), p + "w" + name + ".bias", {rows});
    }
    gain(h + "input_layernorm.weight", p + "attention_norm", D);
    if (m.gemma) {
      gain(h + "self_attn.q_norm.weight", p + "q_norm", m.H);
      gain(h + "self_attn.k_norm.weight", p + "k_norm", m.H);
      gain(h + "post_attention_layernorm.weight", p + "post_attention_norm", D);
      gain(h + "pre_feedforward_layernorm.weight", p + "ffn_norm", D);
      gain(h + "post_feedforward_layernorm.weight", p + "post_ffn_norm", D);
    } else {
      gain(h + "post_attention_layernorm.weight", p + "ffn_norm", D);
    }
    plain(h + "mlp.gate_proj.weight", p + "gate", {F, D});
    plain(h + "mlp.up_proj.weight", p + "up", {F, D});
    plain(h + "mlp.down_proj.weight", p + "down", {D, F});
  }
}

/// The used part of a session's caches by (state, KV head); ranks may hold a head twice and must then agree.
using CacheParts = std::map<std::pair<std::string, i64>, std::string>;
void collect_cache(Session& s, i64 page, CacheParts& parts) {
  const Graph& g = s.executor().program().sharded->graph;
  for (auto& [name, v] : g.named) {
    if (g.at(v).kind != Kind::state || name.find(".cache.") == std::string::npos) continue;
    const View& view = s.executor().state(name);
    const i64 heads = view.size(1), H = view.size(2), width = bytes_of(view.dtype, 1);
    const bool paged = view.layout == Layout::pages;
    // Keys lie in pages, for each head one stretch of [page H] elements in an order of the kernels' own.
    const i64 unit = (paged ? page * H : H) * width, count = paged ? ceil_div(s.position(), page) : s.position();
    for (i64 h = 0; h < heads; h++) {
      std::string bytes;
      for (i64 i = 0; i < count; i++) bytes.append(view.as<char>() + (i * heads + h) * unit, static_cast<size_t>(unit));
      auto [it, fresh] = parts.try_emplace({name, view.box[1].begin + h}, bytes);
      if (!fresh && it->second != bytes)
        fail(Code::differs, "{} head {}: rank {} holds other bits than a rank before it", name, view.box[1].begin + h,
             s.rank());
    }
  }
}

}  // namespace

bool long_run() {
  const char* v = std::getenv("PLAIT_LONG");
  return v != nullptr && *v != 0 && *v != '0';
}

json reference(const std::string& name) { return io::read_json("tests/data/" + name); }

std::string model_named(const std::string& name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != 0 ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return root + "/plait/models/" + name;
}

std::string smollm2() {
  const char* file = std::getenv("PLAIT_MODEL");
  return file != nullptr && *file != 0 ? file : model_named("SmolLM2-135M-Instruct.Q4_1.gguf");
}

RandomModel::RandomModel(json c) : config(std::move(c)) {
  gpt2 = config.at("model_type") == "gpt2";
  gemma = config.at("model_type") == "gemma3_text";
  auto get = [&](const char* llama, const char* other) { return config.at(gpt2 ? other : llama).get<i64>(); };
  D = get("hidden_size", "n_embd");
  N = get("num_attention_heads", "n_head");
  K = get("num_key_value_heads", "n_head");
  H = gpt2 ? D / N : config.at("head_dim").get<i64>();
  F = gpt2 ? 4 * D : config.at("intermediate_size").get<i64>();
  V = config.at("vocab_size");
  W = get("max_position_embeddings", "n_positions");
  layers = get("num_hidden_layers", "n_layer");
  biases = gpt2 || config.at("attention_bias").get<bool>();
  tied = gpt2 || config.at("tie_word_embeddings").get<bool>();
}

i64 RandomModel::gemma_pattern() const {
  const json& kinds = config.at("layer_types");
  return std::find(kinds.begin(), kinds.end(), "full_attention") - kinds.begin() + 1;
}

Values RandomModel::weight(const std::string& state, i64 count) const {
  Values w(static_cast<size_t>(count));
  for (i64 i = 0; i < count; i++) w[static_cast<size_t>(i)] = random_weight(state, i);
  if (change) change(state, w);
  return w;
}

void write_hf(const RandomModel& m, const std::string& folder, const HfStyle& style) {
  io::write_file(folder + "/config.json", m.config.dump());
  io::SafetensorsWriter w;
  w.set_metadata("format", "pt");
  std::vector<std::unique_ptr<Values>> kept;
  hf_tensors(m, [&](std::string name, const std::vector<i64>& shape, Values values, const std::string&) {
    if (style.without_prefix && name.rfind("lm_head", 0) != 0) name = name.substr(name.find('.') + 1);
    kept.push_back(std::make_unique<Values>(std::move(values)));
    w.add(name, DType::f32, shape, kept.back()->data());
  });
  for (i64 l = 0; style.masks && l < m.layers; l++) {
    kept.push_back(std::make_unique<Values>(static_cast<size_t>(m.W * m.W), 1.f));
    w.add(fmt::format("h.{}.attn.bias", l), DType::f32, {1, 1, m.W, m.W}, kept.back()->data());
  }
  w.write_folder(folder, style.max_shard_bytes);
}

std::string quantized(DType to, const Values& x) {
  std::string out(static_cast<size_t>(bytes_of(to, static_cast<i64>(x.size()))), '\0');
  from_f32(to, x.data(), out.data(), static_cast<i64>(x.size()));
  return out;
}

void write_gguf(const RandomModel& m, const std::string& path, const TypeOf& type_of) {
  io::GgufWriter w;
  const std::string a = m.gpt2 ? "gpt2" : m.gemma ? "gemma3" : "llama";
  auto u32 = [&](const char* key, i64 v) { w.set_u32(a + "." + key, static_cast<std::uint32_t>(v)); };
  w.set_text("general.architecture", a);
  w.set_text("general.name", "random");
  u32("context_length", m.W);
  u32("embedding_length", m.D);
  u32("feed_forward_length", m.F);
  u32("block_count", m.layers);
  u32("attention.head_count", m.N);
  if (m.gpt2) {
    w.set_f32("gpt2.attention.layer_norm_epsilon", m.config.at("layer_norm_epsilon").get<float>());
  } else {
    u32("attention.head_count_kv", m.K);
    if (m.gemma) {
      u32("attention.sliding_window", m.config.at("sliding_window").get<i64>());
      u32("attention.sliding_window_pattern", m.gemma_pattern());
      if (m.config.contains("rope_scaling")) {
        w.set_text("gemma3.rope.scaling.type", "linear");
        w.set_f32("gemma3.rope.scaling.factor", m.config["rope_scaling"]["factor"].get<float>());
      }
    } else {
      u32("rope.dimension_count", m.H);
    }
    if (m.gemma || m.H * m.N != m.D) {
      u32("attention.key_length", m.H);
      u32("attention.value_length", m.H);
    }
    w.set_f32(a + ".attention.layer_norm_rms_epsilon", m.config.at("rms_norm_eps").get<float>());
    w.set_f32(a + ".rope.freq_base", m.config.at("rope_theta").get<float>());
  }
  std::vector<std::unique_ptr<std::string>> kept;
  auto add = [&](const std::string& name, std::vector<i64> shape, const std::string& state, const Values& values) {
    const DType t = shape.size() > 1 && type_of ? type_of(state) : DType::f32;
    kept.push_back(std::make_unique<std::string>(quantized(t, values)));
    w.add(name, t, std::move(shape), kept.back()->data());
  };
  const i64 D = m.D, F = m.F, Q = m.N * m.H, KV = m.K * m.H;
  add("token_embd.weight", {m.V, D}, "embedding", m.weight("embedding", m.V * D));
  add("output_norm.weight", {D}, "norm", m.weight("norm", D));
  if (!m.tied) add("output.weight", {m.V, D}, "output", m.weight("output", m.V * D));
  if (m.gpt2) {
    add("output_norm.bias", {D}, "norm.bias", m.weight("norm.bias", D));
    add("position_embd.weight", {m.W, D}, "positions", m.weight("positions", m.W * D));
  } else if (!m.gemma && m.config.contains("rope_scaling")) {
    // What the converter makes of Llama 3's settings: a divisor of each pair's frequency.
    const json& s = m.config["rope_scaling"];
    const double factor = s["factor"], low = s["low_freq_factor"], high = s["high_freq_factor"];
    const double original = s["original_max_position_embeddings"], base = m.config["rope_theta"];
    Values divisors;
    for (i64 i = 0; i < m.H; i += 2) {
      const double length = 2 * M_PI * std::pow(base, static_cast<double>(i) / static_cast<double>(m.H));
      if (length < original / high)
        divisors.push_back(1);
      else if (length > original / low)
        divisors.push_back(static_cast<float>(factor));
      else
        divisors.push_back(static_cast<float>(
            1 / ((1 - (original / length - low) / (high - low)) / factor + (original / length - low) / (high - low))));
    }
    add("rope_freqs.weight", {m.H / 2}, "rope", divisors);
  }
  for (i64 l = 0; l < m.layers; l++) {
    const std::string p = fmt::format("layers.{}.", l), b = fmt::format("blk.{}.", l);
    auto plain = [&](const std::string& name, const std::string& state, std::vector<i64> shape) {
      i64 n = 1;
      for (i64 s : shape) n *= s;
      add(b + name, std::move(shape), p + state, m.weight(p + state, n));
    };
    plain("attn_norm.weight", "attention_norm", {D});
    plain("ffn_norm.weight", "ffn_norm", {D});
    plain("attn_output.weight", "wo", {D, Q});
    plain("ffn_up.weight", "up", {F, D});
    plain("ffn_down.weight", "down", {D, F});
    if (m.biases) plain("attn_output.bias", "wo.bias", {D});
    if (m.gpt2) {
      plain("attn_norm.bias", "attention_norm.bias", {D});
      plain("ffn_norm.bias", "ffn_norm.bias", {D});
      plain("ffn_up.bias", "up.bias", {F});
      plain("ffn_down.bias", "down.bias", {D});
      add(b + "attn_qkv.weight", {3 * D, D}, p + "wq",
          joined({m.weight(p + "wq", D * D), m.weight(p + "wk", D * D), m.weight(p + "wv", D * D)}));
      add(b + "attn_qkv.bias", {3 * D}, p + "wq.bias",
          joined({m.weight(p + "wq.bias", D), m.weight(p + "wk.bias", D), m.weight(p + "wv.bias", D)}));
      continue;
    }
    plain("ffn_gate.weight", "gate", {F, D});
    plain("attn_v.weight", "wv", {KV, D});
    if (m.gemma) {
      plain("attn_q.weight", "wq", {Q, D});
      plain("attn_k.weight", "wk", {KV, D});
      plain("attn_q_norm.weight", "q_norm", {m.H});
      plain("attn_k_norm.weight", "k_norm", {m.H});
      plain("post_attention_norm.weight", "post_attention_norm", {D});
      plain("post_ffw_norm.weight", "post_ffn_norm", {D});
      continue;
    }
    add(b + "attn_q.weight", {Q, D}, p + "wq", permuted(m.weight(p + "wq", Q * D), m.N, m.H, D));
    add(b + "attn_k.weight", {KV, D}, p + "wk", permuted(m.weight(p + "wk", KV * D), m.K, m.H, D));
    if (m.biases) {
      plain("attn_v.bias", "wv.bias", {KV});
      add(b + "attn_q.bias", {Q}, p + "wq.bias", permuted(m.weight(p + "wq.bias", Q), m.N, m.H, 1));
      add(b + "attn_k.bias", {KV}, p + "wk.bias", permuted(m.weight(p + "wk.bias", KV), m.K, m.H, 1));
    }
  }
  w.write(path);
}

Outcome run(const io::ModelFiles& files, const ServingOptions& options, const RunRequest& q,
            const EngineOptions& engine_options) {
  ServingOptions o = options;
  if (q.all_rows) o.logit_rows = std::min<i64>(static_cast<i64>(q.prompt.size()), o.prefill_chunk);
  Engine engine(files, make_serving_plan(files, o), engine_options);
  Outcome out;
  std::mutex lock;
  CacheParts parts;
  std::vector<u64> hashes(static_cast<size_t>(engine.plan().world()));
  engine.run([&](Session& s) {
    std::vector<Values> rows;
    std::vector<i64> tokens;
    u64 hash = 0;
    i64 next = 0;
    auto take = [&](std::span<const float> logits) {
      hash = hash_bytes(logits.data(), static_cast<i64>(logits.size_bytes()), hash);
      next = std::max_element(logits.begin(), logits.end()) - logits.begin();
    };
    if (q.all_rows) {
      s.forward_all(q.prompt, [&](i64, std::span<const float> l) {
        if (s.rank() == 0) rows.emplace_back(l.begin(), l.end());
        take(l);
      });
    } else {
      std::span<const i64> rest(q.prompt);
      std::span<const float> l;
      for (size_t c = 0; !rest.empty(); c++) {
        size_t n = rest.size();
        if (!q.chunks.empty()) n = std::min(n, static_cast<size_t>(q.chunks[std::min(c, q.chunks.size() - 1)]));
        l = s.forward(rest.first(n));
        rest = rest.subspan(n);
      }
      rows.emplace_back(l.begin(), l.end());
      take(l);
    }
    for (i64 t = 0; t < q.greedy; t++) {
      tokens.push_back(next);
      s.agree(next, 0);
      if (t + 1 < q.greedy) take(s.forward(std::span<const i64>(&next, 1)));
    }
    std::lock_guard guard(lock);
    collect_cache(s, engine.plan().page, parts);
    hashes[static_cast<size_t>(s.rank())] = hash;
    if (s.rank() != 0) return;
    out.logits = std::move(rows);
    out.greedy = std::move(tokens);
    out.hash = hash;
  });
  for (size_t r = 0; r < hashes.size(); r++)
    if (hashes[r] != out.hash) fail(Code::differs, "rank {} has other logits than rank 0", r);
  for (auto& [key, bytes] : parts) out.cache = hash_bytes(bytes.data(), static_cast<i64>(bytes.size()), out.cache);
  out.reports = engine.reports();
  return out;
}

double relative(const Values& a, const Values& b) {
  double apart = 0, most = 0;
  for (size_t i = 0; i < b.size(); i++) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    apart = std::max(apart, std::isnan(d) ? INFINITY : d);
    most = std::max(most, std::fabs(static_cast<double>(b[i])));
  }
  return apart / most;
}

double relative(const std::vector<Values>& a, const std::vector<Values>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++) worst = std::max(worst, relative(a[i], b[i]));
  return worst;
}

Plan plan_named(const std::string& name) {
  if (name.find('x') != std::string::npos) {
    const auto at = name.find('x');
    Plan p{{{"outer", std::stoll(name.substr(0, at)), "NKFV", false, {}},
            {"inner", std::stoll(name.substr(at + 1)), "NKFV", false, {}}}};
    p.verify();
    return p;
  }
  if (name.find(',') != std::string::npos) {
    std::vector<i64> weights;
    for (size_t at = 0; at < name.size(); at = std::min(name.find(',', at), name.size() - 1) + 1)
      weights.push_back(std::stoll(name.substr(at)));
    return tensor_parallel(static_cast<i64>(weights.size()), weights);
  }
  if (name.back() == 's') {
    Plan p = tensor_parallel(std::stoll(name));
    p.axes[0].dims = "NKFVT";
    p.verify();
    return p;
  }
  return tensor_parallel(std::stoll(name));
}

}  // namespace plait::serve
