// Gemma 3, its text model (Gemma Team 2025): most layers attend to a window with a rope base of their own, every sixth
// to all positions; embeddings times sqrt(D); norms before and after attention and FFN; q and k normed by head; GeGLU.
// Files of Hugging Face keep the gains of norms less one, GGUF files keep them whole.
#include <cmath>

#include "plait/models/family.h"

namespace plait {

namespace {

constexpr i64 kMax = i64{1} << 30;

/// One rope for all layers of a kind: of `rope_parameters` (by kind), or the older keys.
void read_ropes(const ConfigReader& r, ModelConfig& c) {
  c.rope_base = r.number("rope_theta", 1, 1e12, 1e6);
  c.local_rope_base = r.number("rope_local_base_freq", 1, 1e12, 10000);
  auto one = [](const ConfigReader& rope, double& base, double* factor) {
    base = rope.number("rope_theta", 1, 1e12, base);
    const std::string type = rope.text("rope_type", rope.text("type", "default"));
    if (type != "default" && (type != "linear" || factor == nullptr))
      fail(Code::bad_file, "[{}] rope_type: got \"{}\", want {}: no other scaling is supported", rope.where(), type,
           factor == nullptr ? "default" : "linear or default");
    if (type == "linear") *factor = rope.number("factor", 1, 1e6);
  };
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!r.has(key)) continue;
    const ConfigReader ropes(r.at(key), r.where() + ": " + key);
    const bool by_kind = ropes.has("full_attention") || ropes.has("sliding_attention");
    auto part = [&](const char* kind, double& base, double* factor) {
      if (ropes.has(kind)) one(ConfigReader(ropes.at(kind), ropes.where() + ": " + kind), base, factor);
    };
    if (!by_kind) one(ropes, c.rope_base, &c.rope_factor);
    part("full_attention", c.rope_base, &c.rope_factor);
    part("sliding_attention", c.local_rope_base, nullptr);
  }
}

void parse(const ConfigReader& r, ModelConfig& c) {
  c.D = r.integer("hidden_size", 1, kMax);
  c.N = r.integer("num_attention_heads", 1, kMax);
  c.K = r.integer("num_key_value_heads", 1, kMax, c.N);
  c.H = r.integer("head_dim", 2, kMax, 256);
  c.F = r.integer("intermediate_size", 1, kMax);
  c.V = r.integer("vocab_size", 1, kMax);
  c.layers = r.integer("num_hidden_layers", 1, 10000);
  c.max_positions = r.integer("max_position_embeddings", 1, kMax, 131072);
  c.eps = r.number("rms_norm_eps", 0, 1, 1e-6);
  c.tied = r.flag("tie_word_embeddings", true);
  c.attention_dropout = r.dropout("attention_dropout", 0);
  c.attention_scale = 1 / std::sqrt(r.number("query_pre_attn_scalar", 1e-6, 1e9, 256));
  if (c.H % 2 != 0) fail(Code::bad_file, "[{}] got heads of {}, want an even width: pairs rotate", r.where(), c.H);
  read_ropes(r, c);
  r.only("attention_bias", {"false"}, "biases of attention");
  r.only("use_bidirectional_attention", {"false"}, "attention to later positions");
  for (const char* key : {"hidden_activation", "hidden_act"})
    r.only(key, {"\"gelu_pytorch_tanh\""}, "another activation");
  c.window = r.integer("sliding_window", 1, kMax, 4096);
  c.local = r.local_layers(c.layers, 6);
}

ValueId body(Builder& b) {
  const std::map<std::string, double> eps = {{"eps", b.c.eps}};
  auto norm = [&](const char* gain, ValueId x, const char* label, Elem elem) {
    return b.g.one("rms_norm", {x, b.weight(gain)}, {.x = eps, .label = b.full(label), .elem = elem});
  };
  b.g.layer = 0;
  // transformers rounds the factor to the type of the table: 25.25 for a D of 640 in bf16, not 25.298.
  const ValueId table = b.weight("embedding");
  const float root = std::sqrt(static_cast<float>(b.c.D));
  const double by = b.g.at(table).dtype == DType::bf16 ? static_cast<float>(bf16(root)) : root;
  ValueId x = b.g.one("embedding", {b.ids, table}, {.label = "embedding"});  // [T D]
  x = b.g.one("scale", {x}, {.x = {{"by", by}}, .label = "embedding.out"});  // [T D]
  for (i64 l = 0; l < b.c.layers; l++) {
    b.begin_layer(l);
    const bool local = b.c.is_local(l);
    std::map<std::string, double> turn = {{"base", local ? b.c.local_rope_base : b.c.rope_base}};
    if (!local && b.c.rope_factor != 1) turn["factor"] = b.c.rope_factor;
    ValueId h = norm("attention_norm", x, "attention.in", Elem::compute);  // [T D]
    auto heads = [&](const std::string& name) {
      ValueId y = b.product("w" + name, h, "t d, n h d -> t n h");
      y = b.g.one("head_rms_norm", {y, b.weight(name + "_norm")}, {.x = eps, .label = b.full(name + ".normed")});
      return b.g.one("rope", {y, b.position}, {.x = turn, .label = b.full(name)});
    };
    const ValueId q = heads("q"), k = heads("k");                                // [T N H], [T K H]
    const ValueId v = b.product("wv", h, "t d, n h d -> t n h", Elem::compute);  // [T K H]
    ValueId y = b.attention(q, k, v, local ? b.c.window : 0);                    // [T N H]
    y = norm("post_attention_norm", b.product("wo", y, "t n h, d n h -> t d"), "attention.normed", Elem::real);
    x = b.residual("attention.residual", x, y);                              // [T D]
    h = norm("ffn_norm", x, "ffn.in", Elem::compute);                        // [T D]
    const ValueId gate = b.product("gate", h, "t d, f d -> t f", b.kept());  // [T F]
    const ValueId up = b.product("up", h, "t d, f d -> t f", b.kept());      // [T F]
    y = b.product("down", b.g.one("gelu_mul", {gate, up}, {.label = b.full("ffn.act")}), "t f, d f -> t d");
    x = b.residual("out", x, norm("post_ffn_norm", y, "ffn.normed", Elem::real));  // [T D]
  }
  b.end_layers();
  return x;
}

ValueId head(Builder& b, ValueId x) {
  const ValueId h =
      b.g.one("rms_norm", {x, b.weight("norm")}, {.x = {{"eps", b.c.eps}}, .label = "output.in"});  // [R D]
  const ValueId w = b.operand(b.c.tied ? "embedding" : "output");
  return b.g.one("matmul", {h, w}, {.rule = "t d, v d -> t v", .label = "output"});  // [R V]
}

WeightRow gain(const char* state, const char* dims, const char* hf, const char* gguf) {
  WeightRow row{state, dims, hf, gguf};
  row.hf_less_one = true;
  return row;
}

const FamilyRegistry kGemma3{Family{
    .name = "gemma3",
    .model_types = {"gemma3_text"},
    .architectures = {"Gemma3ForCausalLM"},
    .gguf_architecture = "gemma3",
    .parse = parse,
    .body = body,
    .head = head,
    .weights =
        {
            {"embedding", "V|D", "model.embed_tokens.weight", "token_embd.weight"},
            gain("layers.*.attention_norm", "D", "model.layers.*.input_layernorm.weight", "blk.*.attn_norm.weight"),
            {"layers.*.wq", "NH|D", "model.layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight"},
            {"layers.*.wk", "KH|D", "model.layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight"},
            {"layers.*.wv", "KH|D", "model.layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight"},
            gain("layers.*.q_norm", "H", "model.layers.*.self_attn.q_norm.weight", "blk.*.attn_q_norm.weight"),
            gain("layers.*.k_norm", "H", "model.layers.*.self_attn.k_norm.weight", "blk.*.attn_k_norm.weight"),
            {"layers.*.wo", "D|NH", "model.layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight"},
            gain("layers.*.post_attention_norm", "D", "model.layers.*.post_attention_layernorm.weight",
                 "blk.*.post_attention_norm.weight"),
            gain("layers.*.ffn_norm", "D", "model.layers.*.pre_feedforward_layernorm.weight", "blk.*.ffn_norm.weight"),
            {"layers.*.gate", "F|D", "model.layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight"},
            {"layers.*.up", "F|D", "model.layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight"},
            {"layers.*.down", "D|F", "model.layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight"},
            gain("layers.*.post_ffn_norm", "D", "model.layers.*.post_feedforward_layernorm.weight",
                 "blk.*.post_ffw_norm.weight"),
            gain("norm", "D", "model.norm.weight", "output_norm.weight"),
            {"output", "V|D", "lm_head.weight", "output.weight"},
        },
    .ignored_tensors = {".rotary_emb.inv_freq"},
    .honoured = {"query_pre_attn_scalar", "layer_types"},
}};

}  // namespace

}  // namespace plait
