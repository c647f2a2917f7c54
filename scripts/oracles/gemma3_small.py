"""tests/data/gemma3_small.json: all logits of two sequences of a random Gemma 3, 4 layers (the third attends to all
positions, the others to the last 8), 9 heads of 8 over 3 KV heads, linear rope scaling. Needs transformers 4.56."""
import numpy as np
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from oracle import forward, greedy, layer_summary, load, rounded, write
from random_weights import random_weight, stream_of, uniform

D, F, LAYERS, N, K, H, V = 72, 208, 4, 9, 3, 8, 257
KINDS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
config = dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=D, intermediate_size=F,
              num_hidden_layers=LAYERS, num_attention_heads=N, num_key_value_heads=K, head_dim=H, vocab_size=V,
              max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=1000000.0, rope_local_base_freq=10000.0,
              rope_scaling=dict(rope_type="linear", factor=2.0), hidden_activation="gelu_pytorch_tanh",
              query_pre_attn_scalar=8, sliding_window=8, layer_types=KINDS, tie_word_embeddings=True,
              attention_bias=False, bos_token_id=2, eos_token_id=1)


def build():
    model = Gemma3ForCausalLM(Gemma3TextConfig(**config, attn_implementation="eager")).eval()

    w = random_weight
    state = {"model.embed_tokens.weight": w("embedding", (V, D)), "lm_head.weight": w("embedding", (V, D)),
             "model.norm.weight": w("norm", (D,)) - 1}
    for l in range(LAYERS):
        p, h = f"layers.{l}.", f"model.layers.{l}."
        for name, rows, cols in (("q", N * H, D), ("k", K * H, D), ("v", K * H, D), ("o", D, N * H)):
            state[h + f"self_attn.{name}_proj.weight"] = w(p + "w" + name, (rows, cols))
        for name, rows, cols in (("gate", F, D), ("up", F, D), ("down", D, F)):
            state[h + f"mlp.{name}_proj.weight"] = w(p + name, (rows, cols))
        for ours, theirs, width in (("attention_norm", "input_layernorm", D), ("q_norm", "self_attn.q_norm", H),
                                    ("k_norm", "self_attn.k_norm", H),
                                    ("post_attention_norm", "post_attention_layernorm", D),
                                    ("ffn_norm", "pre_feedforward_layernorm", D),
                                    ("post_ffn_norm", "post_feedforward_layernorm", D)):
            state[h + theirs + ".weight"] = w(p + ours, (width,)) - 1
    load(model, state)
    return model


if __name__ == "__main__":
    model = build()
    sequences = []
    for length in (23, 12):
        u = uniform(stream_of(f"ids {length}"), np.arange(length, dtype=np.uint64))
        ids = [int(x * V) for x in u]
        logits, outs = forward(model, ids, model.model.layers)
        tokens, margins = greedy(model, ids, 32)
        print(f"{length} tokens, largest logit {np.abs(logits).max()}, smallest margin {min(margins)}")
        sequences.append({"tokens": ids, "logits": [rounded(r) for r in logits], "greedy": tokens,
                          "greedy_margins": rounded(margins, 4), "layers": layer_summary(outs)})
    write("gemma3_small.json", {"config": config, "sequences": sequences})
