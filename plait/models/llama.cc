// Llama (Touvron et al. 2023): grouped KV heads, rotary positions, RMS norm, SwiGLU. SmolLM2, stories260K, Llama 2, 3,
// 3.1, 3.2, and Mistral where it has no window.
#include "plait/models/family.h"

namespace plait {

namespace {

void parse(const ConfigReader& r, ModelConfig& c) {
  constexpr i64 kMax = i64{1} << 30;
  c.D = r.integer("hidden_size", 1, kMax);
  c.N = r.integer("num_attention_heads", 1, kMax);
  c.K = r.integer("num_key_value_heads", 1, kMax, c.N);
  if (!r.has("head_dim") && c.D % c.N != 0)
    fail(Code::bad_file, "[{}] got hidden_size {} over {} heads and no head_dim, want a multiple", r.where(), c.D, c.N);
  c.H = r.integer("head_dim", 1, kMax, c.D / c.N);
  c.F = r.integer("intermediate_size", 1, kMax);
  c.V = r.integer("vocab_size", 1, kMax);
  c.layers = r.integer("num_hidden_layers", 1, kMax);
  c.max_positions = r.integer("max_position_embeddings", 1, kMax, 2048);
  c.eps = r.number("rms_norm_eps", 0, 1, 1e-6);
  c.tied = r.flag("tie_word_embeddings", false);
  c.attention_bias = r.flag("attention_bias", false);
  c.attention_dropout = r.dropout("attention_dropout", 0);
  r.read_rope(c);
  if (c.H % 2 != 0) fail(Code::bad_file, "[{}] got heads of {}, want an even width: pairs rotate", r.where(), c.H);
  r.only("mlp_bias", {"false"}, "a bias in the feed-forward part");
  r.only("hidden_act", {"\"silu\"", "\"swish\""}, "another activation");
  // Mistral without the key means a window of 4096; a window that holds every position is none.
  const bool mistral = r.text("model_type", "") == "mistral";
  if (mistral && !r.contains("sliding_window"))
    fail(Code::bad_file, "[{}] sliding_window: is absent, which means 4096 in a mistral config, want null", r.where());
  if (r.flag("use_sliding_window", true) && r.has("sliding_window") &&
      r.integer("sliding_window", 0, kMax) < c.max_positions)
    r.only("sliding_window", {}, "attention over a window");
}

ValueId body(Builder& b) {
  const std::map<std::string, double> norm = {{"eps", b.c.eps}};
  std::map<std::string, double> turn = {{"base", b.c.rope_base}};
  if (auto& s = b.c.rope_scaling) {
    turn["factor"] = s->factor;
    turn["low"] = s->low_freq_factor;
    turn["high"] = s->high_freq_factor;
    turn["original"] = static_cast<double>(s->original_positions);
  }
  auto rms_norm = [&](const char* gain, ValueId x, const char* label) {
    return b.g.one("rms_norm", {x, b.weight(gain)}, {.x = norm, .label = b.full(label)});
  };
  auto heads = [&](const char* name, ValueId h, const char* rule, Elem elem) {
    if (!b.c.attention_bias) return b.product(name, h, rule, elem);
    return b.biased(name, b.product(name, h, rule), "t n h, n h -> t n h", elem);
  };
  auto rope = [&](const char* name, ValueId x) {
    return b.g.one("rope", {x, b.position}, {.x = turn, .label = b.full(name)});
  };

  b.g.layer = 0;
  ValueId x = b.g.one("embedding", {b.ids, b.weight("embedding")}, {.label = "embedding"});  // [T D]
  for (i64 l = 0; l < b.c.layers; l++) {
    b.begin_layer(l);
    ValueId h = rms_norm("attention_norm", x, "attention.in");                        // [T D]
    const ValueId q = rope("q", heads("wq", h, "t d, n h d -> t n h", Elem::real));   // [T N H]
    const ValueId k = rope("k", heads("wk", h, "t d, n h d -> t n h", Elem::real));   // [T K H]
    const ValueId v = heads("wv", h, "t d, n h d -> t n h", Elem::compute);           // [T K H]
    ValueId o = b.product("wo", b.attention(q, k, v), "t n h, d n h -> t d");         // [T D] a sum over N
    if (b.c.attention_bias) o = b.biased("wo", o, "t d, d -> t d");                   // [T D]
    x = b.residual("attention.residual", x, o);                                       // [T D]
    h = rms_norm("ffn_norm", x, "ffn.in");                                            // [T D]
    const ValueId gate = b.product("gate", h, "t d, f d -> t f", b.kept());           // [T F]
    const ValueId up = b.product("up", h, "t d, f d -> t f", b.kept());               // [T F]
    const ValueId a = b.g.one("silu_mul", {gate, up}, {.label = b.full("ffn.act")});  // [T F]
    x = b.residual("out", x, b.product("down", a, "t f, d f -> t d"));                // [T D] a sum over F
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

const FamilyRegistry kLlama{Family{
    .name = "llama",
    .model_types = {"llama", "mistral"},
    .architectures = {"LlamaForCausalLM", "MistralForCausalLM"},
    .gguf_architecture = "llama",
    .parse = parse,
    .body = body,
    .head = head,
    .weights =
        {
            {"embedding", "V|D", "model.embed_tokens.weight", "token_embd.weight"},
            {"layers.*.attention_norm", "D", "model.layers.*.input_layernorm.weight", "blk.*.attn_norm.weight"},
            {"layers.*.wq", "NH|D", "model.layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight", 0, 1, false, true},
            {"layers.*.wq.bias", "NH", "model.layers.*.self_attn.q_proj.bias", "blk.*.attn_q.bias", 0, 1, false, true},
            {"layers.*.wk", "KH|D", "model.layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight", 0, 1, false, true},
            {"layers.*.wk.bias", "KH", "model.layers.*.self_attn.k_proj.bias", "blk.*.attn_k.bias", 0, 1, false, true},
            {"layers.*.wv", "KH|D", "model.layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight"},
            {"layers.*.wv.bias", "KH", "model.layers.*.self_attn.v_proj.bias", "blk.*.attn_v.bias"},
            {"layers.*.wo", "D|NH", "model.layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight"},
            {"layers.*.wo.bias", "D", "model.layers.*.self_attn.o_proj.bias", "blk.*.attn_output.bias"},
            {"layers.*.ffn_norm", "D", "model.layers.*.post_attention_layernorm.weight", "blk.*.ffn_norm.weight"},
            {"layers.*.gate", "F|D", "model.layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight"},
            {"layers.*.up", "F|D", "model.layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight"},
            {"layers.*.down", "D|F", "model.layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight"},
            {"norm", "D", "model.norm.weight", "output_norm.weight"},
            {"output", "V|D", "lm_head.weight", "output.weight"},
        },
    // rope_freqs: of factors other than 1 the config knows (io/gguf_config.h).
    .ignored_tensors = {".rotary_emb.inv_freq", "rope_freqs.weight"},
}};

}  // namespace

}  // namespace plait
