"""tests/data/gemma3_270m.json: logits and greedy tokens of Gemma 3 270M, weights dequantized from its GGUF, by
transformers 4.56 in f32; ids of some texts by llama.cpp (llama-cpp-python, in an environment of its own: the first
argument is its python).

    python gemma3_270m.py PYTHON_WITH_LLAMA_CPP [GGUF]
"""
import json
import os
import subprocess
import sys

import gguf
import numpy as np
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from oracle import forward, greedy, layer_summary, load, rounded, write
from random_weights import mix64, stream_of

TEXT = (
    "The harbour lay quiet that morning. Two fishermen were mending their nets on the stone steps, and an old dog slept "
    "in the shade of an upturned boat. Nobody had noticed that"
)
CASES = [
    "", " ", "  ", "   three  spaces and\ttabs\t\t", "\n", "\n\n", "\n\n\nlines\r\n", "Hello, world!", " Hello", "Hello  ",
    "9 heads on 2, 4 or 7 ranks: 3.14159 + 2718281828", "naïve café, Übergröße, straße", "こんにちは世界。吾輩は猫である",
    "Привет, мир", "مرحبا بالعالم", "🦙🚀👩‍👩‍👧", "a\u2581b \u2581\u2581", "<b>bold</b> <start_of_turn>user", "i'm they'll WE'VE",
    "def f(x):\n    return x ** 2\n", "\x00\x01\x7f", "ÿ\u0301 ﬁ Å", "supercalifragilisticexpialidocious" * 3,
    "<end_of_turn>\n<bos>",
]
IDS = """
import json, sys
from llama_cpp import Llama
m = Llama(sys.argv[1], vocab_only=True, verbose=False)
print(json.dumps([[m.tokenize(t.encode(), add_bos=True, special=s) for s in (False, True)] for t in json.load(sys.stdin)]))
"""


def ids_of(python, path, texts):
    out = subprocess.run([python, "-c", IDS, path], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def model_of(path):
    reader = gguf.GGUFReader(path)
    w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    field = lambda key: reader.fields["gemma3." + key].contents()
    layers = int(field("block_count"))
    model = Gemma3ForCausalLM(Gemma3TextConfig(
        vocab_size=w["token_embd.weight"].shape[0], hidden_size=int(field("embedding_length")),
        intermediate_size=int(field("feed_forward_length")), num_hidden_layers=layers,
        num_attention_heads=int(field("attention.head_count")), num_key_value_heads=int(field("attention.head_count_kv")),
        head_dim=int(field("attention.key_length")), max_position_embeddings=int(field("context_length")),
        rms_norm_eps=1e-6, rope_theta=float(field("rope.freq_base")), rope_local_base_freq=10000.0,
        sliding_window=int(field("attention.sliding_window")), query_pre_attn_scalar=int(field("attention.key_length")),
        layer_types=["full_attention" if l % 6 == 5 else "sliding_attention" for l in range(layers)],
        attn_implementation="eager")).eval()
    state = {"model.embed_tokens.weight": w["token_embd.weight"], "lm_head.weight": w["token_embd.weight"],
             "model.norm.weight": w["output_norm.weight"] - 1}
    for l in range(layers):
        g, h = f"blk.{l}.", f"model.layers.{l}."
        for ours, theirs in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
            state[h + f"self_attn.{ours}_proj.weight"] = w[g + theirs + ".weight"]
        for name in ("gate", "up", "down"):
            state[h + f"mlp.{name}_proj.weight"] = w[g + f"ffn_{name}.weight"]
        for ours, theirs in (("input_layernorm", "attn_norm"), ("self_attn.q_norm", "attn_q_norm"),
                             ("self_attn.k_norm", "attn_k_norm"), ("post_attention_layernorm", "post_attention_norm"),
                             ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm")):
            state[h + ours + ".weight"] = w[g + theirs + ".weight"] - 1
    load(model, state)
    return model, reader


def entries(logits, row):
    """The 32 largest and 368 drawn ones."""
    top = np.argsort(-logits[row], kind="stable")[:32]
    drawn = mix64(np.arange(2000, dtype=np.uint64) ^ np.uint64(stream_of(f"row {row}"))) % np.uint64(logits.shape[1])
    chosen = list(dict.fromkeys([int(i) for i in top] + [int(i) for i in drawn]))[:400]
    return {"row": row, "max_abs": round(float(np.abs(logits[row]).max()), 6), "ids": chosen,
            "logits": rounded(logits[row][chosen])}


if __name__ == "__main__":
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.expanduser("~/.cache/plait/models/gemma-3-270m-q4_k_m.gguf")
    ids = ids_of(sys.argv[1], path, [TEXT] + CASES)
    tokens = ids[0][0]
    model, reader = model_of(path)
    # A prompt longer than the window, too: the text again and again, the last row.
    long_tokens = tokens + tokens[1:] * 17
    logits, outs = forward(model, tokens, model.model.layers)
    written, margins = greedy(model, tokens, 48)
    long_logits, _ = forward(model, long_tokens, model.model.layers)
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
    text = "".join(vocabulary[t] for t in written).replace("\u2581", " ")
    print(f"{len(tokens)} and {len(long_tokens)} tokens; smallest margin {min(margins)}; {text!r}")
    last = len(tokens) - 1
    write("gemma3_270m.json", {
        "text": TEXT, "tokens": tokens, "rows": [entries(logits, r) for r in (last, 0, last // 2)],
        "greedy": written, "greedy_text": text, "greedy_margins": rounded(margins, 4), "layers": layer_summary(outs),
        "repeats": 18, "long_rows": [entries(long_logits, len(long_tokens) - 1)],
        "encoded": [{"text": t, "ids": plain, "with_special": special} for t, (plain, special) in zip(CASES, ids[1:])],
    })
