"""tests/data/llama_small.json: all logits of two sequences of random Llamas: the small one that tests use everywhere, and
one with what SmolLM2 lacks (heads wider than D / N, biases, Llama 3's rope scaling, an output matrix of its own)."""
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from oracle import forward, greedy, layer_summary, load, rounded, tensor, write
from random_weights import random_weight, stream_of, uniform

SMALL = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=72, intermediate_size=208,
             num_hidden_layers=3, num_attention_heads=9, num_key_value_heads=3, head_dim=8, vocab_size=257,
             max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
             tie_word_embeddings=True, attention_bias=False, bos_token_id=256, eos_token_id=256)
SCALING = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32)
OPTIONS = dict(SMALL, head_dim=16, rope_theta=500.0, tie_word_embeddings=False, attention_bias=True, rope_scaling=SCALING)


def scaled_frequencies(base, h):
    """Llama 3.1's rule, as Meta's reference code states it; this release of transformers has none."""
    f = base ** -(np.arange(0, h, 2, dtype=np.float64) / h)
    turns = SCALING["original_max_position_embeddings"] * f / (2 * np.pi)
    low, high = SCALING["low_freq_factor"], SCALING["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return f * ((1 - kept) / SCALING["factor"] + kept)


def build(c):
    arguments = {k: v for k, v in c.items() if k not in ("head_dim", "rope_scaling")}
    model = LlamaForCausalLM(LlamaConfig(**arguments, attn_implementation="eager")).eval()
    D, N, K, H, F, V = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                       "intermediate_size", "vocab_size"))
    w = random_weight
    state = {"model.embed_tokens.weight": w("embedding", (V, D)), "model.norm.weight": w("norm", (D,)),
             "lm_head.weight": w("embedding" if c["tie_word_embeddings"] else "output", (V, D))}
    for l, layer in enumerate(model.model.layers):
        p, h, a = f"layers.{l}.", f"model.layers.{l}.", layer.self_attn
        if H * N != D:  # this release takes the head's width from D / N: the same code, other sizes
            bias = c["attention_bias"]
            a.head_dim, a.hidden_size = H, N * H
            a.q_proj = torch.nn.Linear(D, N * H, bias=bias)
            a.k_proj = torch.nn.Linear(D, K * H, bias=bias)
            a.v_proj = torch.nn.Linear(D, K * H, bias=bias)
            a.o_proj = torch.nn.Linear(N * H, D, bias=bias)
            a.rotary_emb = modeling_llama.LlamaRotaryEmbedding(H, c["max_position_embeddings"], base=c["rope_theta"])
        if "rope_scaling" in c:
            a.rotary_emb.inv_freq = tensor(scaled_frequencies(c["rope_theta"], H).astype(np.float32))
        for name, rows, cols in (("q", N * H, D), ("k", K * H, D), ("v", K * H, D), ("o", D, N * H)):
            state[h + f"self_attn.{name}_proj.weight"] = w(p + "w" + name, (rows, cols))
            if c["attention_bias"]:
                state[h + f"self_attn.{name}_proj.bias"] = w(p + "w" + name + ".bias", (rows,))
        state[h + "input_layernorm.weight"] = w(p + "attention_norm", (D,))
        state[h + "post_attention_layernorm.weight"] = w(p + "ffn_norm", (D,))
        state[h + "mlp.gate_proj.weight"] = w(p + "gate", (F, D))
        state[h + "mlp.up_proj.weight"] = w(p + "up", (F, D))
        state[h + "mlp.down_proj.weight"] = w(p + "down", (D, F))
    load(model, state)
    return model.eval()


def sequences(model, lengths, V):
    out = []
    for length in lengths:
        u = uniform(stream_of(f"ids {length}"), np.arange(length, dtype=np.uint64))
        ids = [int(x * V) for x in u]
        logits, outs = forward(model, ids, model.model.layers)
        tokens, margins = greedy(model, ids, 32)
        print(f"{length} tokens, largest logit {np.abs(logits).max()}, smallest margin {min(margins)}")
        out.append({"tokens": ids, "logits": [rounded(r) for r in logits], "greedy": tokens,
                    "greedy_margins": rounded(margins, 4), "layers": layer_summary(outs)})
    return out


write("llama_small.json", {"config": SMALL, "sequences": sequences(build(SMALL), (23, 12), 257)})
write("llama_options.json", {"config": OPTIONS, "sequences": sequences(build(OPTIONS), (30,), 257)})
