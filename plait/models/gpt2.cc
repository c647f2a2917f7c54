// GPT-2 (Radford et al. 2019): learned positions, layer norm, biases, GELU in its tanh form, tied output, dropout.
// Files fuse q, k, v; here they are three projections. Every query head has its own KV head.
#include "plait/models/family.h"

namespace plait {

namespace {

void parse(const ConfigReader& r, ModelConfig& c) {
  constexpr i64 kMax = i64{1} << 30;
  c.D = r.integer("n_embd", 1, kMax);
  c.N = c.K = r.integer("n_head", 1, kMax);
  if (c.D % c.N != 0) fail(Code::bad_file, "[{}] got n_embd {} over n_head {}, want a multiple", r.where(), c.D, c.N);
  c.H = c.D / c.N;
  c.F = r.integer("n_inner", 1, kMax, 4 * c.D);
  c.V = r.integer("vocab_size", 1, kMax);
  c.layers = r.integer("n_layer", 1, kMax);
  c.max_positions = r.integer("n_positions", 1, kMax);
  c.eps = r.number("layer_norm_epsilon", 0, 1, 1e-5);
  c.tied = r.flag("tie_word_embeddings", true);
  c.attention_bias = true;
  c.embedding_dropout = r.dropout("embd_pdrop", 0.1);
  c.residual_dropout = r.dropout("resid_pdrop", 0.1);
  c.attention_dropout = r.dropout("attn_pdrop", 0.1);
  r.only("activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}, "another activation");
  r.only("scale_attn_weights", {"true"}, "attention without its scale");
  r.only("scale_attn_by_inverse_layer_idx", {"false"}, "attention scaled by layer");
  r.only("reorder_and_upcast_attn", {"false"}, "another order of attention");
}

ValueId body(Builder& b) {
  auto norm = [&](const std::string& gain, ValueId x, const char* label) {
    return b.g.one("layer_norm", {x, b.weight(gain), b.weight(gain + ".bias")},
                   {.x = {{"eps", b.c.eps}}, .label = b.full(label)});
  };
  auto added = [&](const char* name, ValueId y, const char* dropped) {  // bias and dropout
    return b.dropout(dropped, b.biased(name, y, "t d, d -> t d"), b.c.residual_dropout);
  };
  auto heads = [&](const std::string& name, ValueId h) {
    const ValueId x = b.product("w" + name, h, "t d, n h d -> t n h");
    return b.biased("w" + name, x, "t n h, n h -> t n h", Elem::compute, name);
  };
  b.g.dims['W'] = {b.c.max_positions, 0};
  b.g.layer = 0;
  ValueId x = b.g.one("embedding", {b.ids, b.weight("embedding")}, {.label = "embedding"});             // [T D]
  const ValueId p = b.g.one("embedding", {b.position, b.weight("positions")}, {.label = "positions"});  // [T D]
  x = b.dropout("embedding.dropout", b.residual("embedding.out", x, p), b.c.embedding_dropout);         // [T D]
  for (i64 l = 0; l < b.c.layers; l++) {
    b.begin_layer(l);
    ValueId h = norm("attention_norm", x, "attention.in");                                               // [T D]
    const ValueId q = heads("q", h), k = heads("k", h), v = heads("v", h);                               // [T N H]
    ValueId y = b.product("wo", b.attention(q, k, v), "t n h, d n h -> t d");                            // a sum
    x = b.residual("attention.residual", x, added("wo", y, "wo.dropout"));                               // [T D]
    h = norm("ffn_norm", x, "ffn.in");                                                                   // [T D]
    const ValueId u = b.biased("up", b.product("up", h, "t d, f d -> t f"), "t f, f -> t f", b.kept());  // [T F]
    y = b.product("down", b.g.one("gelu", {u}, {.label = b.full("ffn.act")}), "t f, d f -> t d");        // a sum
    x = b.residual("out", x, added("down", y, "down.dropout"));                                          // [T D]
  }
  b.end_layers();
  return x;
}

ValueId head(Builder& b, ValueId x) {
  const ValueId h = b.g.one("layer_norm", {x, b.weight("norm"), b.weight("norm.bias")},
                            {.x = {{"eps", b.c.eps}}, .label = "output.in"});  // [R D]
  const ValueId w = b.operand(b.c.tied ? "embedding" : "output");
  return b.g.one("matmul", {h, w}, {.rule = "t d, v d -> t v", .label = "output"});  // [R V]
}

const FamilyRegistry kGpt2{Family{
    .name = "gpt2",
    .model_types = {"gpt2"},
    .architectures = {"GPT2LMHeadModel", "GPT2Model"},
    .gguf_architecture = "gpt2",
    .parse = parse,
    .body = body,
    .head = head,
    .weights =
        {
            {"embedding", "V|D", "transformer.wte.weight", "token_embd.weight"},
            {"positions", "W|D", "transformer.wpe.weight", "position_embd.weight"},
            {"layers.*.attention_norm", "D", "transformer.h.*.ln_1.weight", "blk.*.attn_norm.weight"},
            {"layers.*.attention_norm.bias", "D", "transformer.h.*.ln_1.bias", "blk.*.attn_norm.bias"},
            {"layers.*.wq", "NH|D", "transformer.h.*.attn.c_attn.weight", "blk.*.attn_qkv.weight", 0, 3, true},
            {"layers.*.wq.bias", "NH", "transformer.h.*.attn.c_attn.bias", "blk.*.attn_qkv.bias", 0, 3},
            {"layers.*.wk", "KH|D", "transformer.h.*.attn.c_attn.weight", "blk.*.attn_qkv.weight", 1, 3, true},
            {"layers.*.wk.bias", "KH", "transformer.h.*.attn.c_attn.bias", "blk.*.attn_qkv.bias", 1, 3},
            {"layers.*.wv", "KH|D", "transformer.h.*.attn.c_attn.weight", "blk.*.attn_qkv.weight", 2, 3, true},
            {"layers.*.wv.bias", "KH", "transformer.h.*.attn.c_attn.bias", "blk.*.attn_qkv.bias", 2, 3},
            {"layers.*.wo", "D|NH", "transformer.h.*.attn.c_proj.weight", "blk.*.attn_output.weight", 0, 1, true},
            {"layers.*.wo.bias", "D", "transformer.h.*.attn.c_proj.bias", "blk.*.attn_output.bias"},
            {"layers.*.ffn_norm", "D", "transformer.h.*.ln_2.weight", "blk.*.ffn_norm.weight"},
            {"layers.*.ffn_norm.bias", "D", "transformer.h.*.ln_2.bias", "blk.*.ffn_norm.bias"},
            {"layers.*.up", "F|D", "transformer.h.*.mlp.c_fc.weight", "blk.*.ffn_up.weight", 0, 1, true},
            {"layers.*.up.bias", "F", "transformer.h.*.mlp.c_fc.bias", "blk.*.ffn_up.bias"},
            {"layers.*.down", "D|F", "transformer.h.*.mlp.c_proj.weight", "blk.*.ffn_down.weight", 0, 1, true},
            {"layers.*.down.bias", "D", "transformer.h.*.mlp.c_proj.bias", "blk.*.ffn_down.bias"},
            {"norm", "D", "transformer.ln_f.weight", "output_norm.weight"},
            {"norm.bias", "D", "transformer.ln_f.bias", "output_norm.bias"},
            {"output", "V|D", "lm_head.weight", "output.weight"},
        },
    .ignored_tensors = {".attn.bias", ".attn.masked_bias"},
}};

}  // namespace

}  // namespace plait
