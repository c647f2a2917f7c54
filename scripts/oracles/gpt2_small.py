"""tests/data/gpt2_small.json: all logits of two sequences of a random GPT-2, 3 layers, 9 heads of 8."""
import numpy as np
from transformers import GPT2Config, GPT2LMHeadModel

from oracle import forward, greedy, layer_summary, load, rounded, write
from random_weights import random_weight, stream_of, uniform

LAYERS, N, H, V, W = 3, 9, 8, 257, 64
D, F = N * H, 4 * N * H

config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_layer=LAYERS, n_head=N, n_embd=D, vocab_size=V,
              n_positions=W, activation_function="gelu_new", layer_norm_epsilon=1e-5, bos_token_id=256,
              eos_token_id=256)
model = GPT2LMHeadModel(GPT2Config(**config, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)).eval()

w = random_weight
state = {
    "transformer.wte.weight": w("embedding", (V, D)),
    "lm_head.weight": w("embedding", (V, D)),
    "transformer.wpe.weight": w("positions", (W, D)),
    "transformer.ln_f.weight": w("norm", (D,)),
    "transformer.ln_f.bias": w("norm.bias", (D,)),
}
for l in range(LAYERS):
    p, h = f"layers.{l}.", f"transformer.h.{l}."
    # Conv1D keeps [in][out].
    state[h + "attn.c_attn.weight"] = np.concatenate([w(p + x, (D, D)) for x in ("wq", "wk", "wv")]).T
    state[h + "attn.c_attn.bias"] = np.concatenate([w(p + x + ".bias", (D,)) for x in ("wq", "wk", "wv")])
    state[h + "attn.c_proj.weight"] = w(p + "wo", (D, D)).T
    state[h + "attn.c_proj.bias"] = w(p + "wo.bias", (D,))
    state[h + "mlp.c_fc.weight"] = w(p + "up", (F, D)).T
    state[h + "mlp.c_fc.bias"] = w(p + "up.bias", (F,))
    state[h + "mlp.c_proj.weight"] = w(p + "down", (D, F)).T
    state[h + "mlp.c_proj.bias"] = w(p + "down.bias", (D,))
    for ours, theirs in (("attention_norm", "ln_1"), ("ffn_norm", "ln_2")):
        state[h + theirs + ".weight"] = w(p + ours, (D,))
        state[h + theirs + ".bias"] = w(p + ours + ".bias", (D,))
load(model, state)

sequences = []
for length in (23, 12):
    u = uniform(stream_of(f"ids {length}"), np.arange(length, dtype=np.uint64))
    ids = [int(x * V) for x in u]
    logits, outs = forward(model, ids, model.transformer.h)
    tokens, margins = greedy(model, ids, 32)
    print(f"{length} tokens, largest logit {np.abs(logits).max()}, smallest margin {min(margins)}")
    sequences.append({"tokens": ids, "logits": [rounded(r) for r in logits], "greedy": tokens,
                      "greedy_margins": rounded(margins, 4), "layers": layer_summary(outs)})
write("gpt2_small.json", {"config": config, "sequences": sequences})
