"""tests/data/score.json: negative log-likelihoods by a sliding window, as the documents of transformers do it, of the
random models of llama_small.json and gemma3_small.json (with a BOS before every window, and without), and of
SmolLM2-135M-Instruct, weights dequantized from its GGUF, on the beginning of ../shared/data/text/wikitext-2.valid.txt."""
import json
import os
import sys

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

import gemma3_small
from oracle import FOLDER, llama_of_gguf, load, write
from random_weights import random_weight, stream_of, uniform


def score(model, tokens, window, stride, bos):
    """-> tokens counted, their nats"""
    ahead = [] if bos is None else [bos]
    counted, nats, begin, end = 1 - len(ahead), 0.0, 0, 0
    first = counted
    while end < len(tokens):
        end = min(begin + window - len(ahead), len(tokens))
        ids = ahead + tokens[begin:end]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
        nats += float(nll[counted - begin + len(ahead) - 1:].sum())
        counted, begin = end, begin + stride
    return {"window": window, "stride": stride, "bos": bos, "tokens": len(tokens) - first, "nats": round(nats, 9)}


def llama():
    c = json.load(open(os.path.join(FOLDER, "llama_small.json")))["config"]
    model = LlamaForCausalLM(LlamaConfig(**c, attn_implementation="eager")).eval()
    D, F, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    Q, KV = D, c["num_key_value_heads"] * c["head_dim"]
    w = random_weight
    state = {"model.embed_tokens.weight": w("embedding", (V, D)), "lm_head.weight": w("embedding", (V, D)),
             "model.norm.weight": w("norm", (D,))}
    for l in range(c["num_hidden_layers"]):
        p, h = f"layers.{l}.", f"model.layers.{l}."
        for name, rows, cols in (("q", Q, D), ("k", KV, D), ("v", KV, D), ("o", D, Q)):
            state[h + f"self_attn.{name}_proj.weight"] = w(p + "w" + name, (rows, cols))
        for name, rows, cols in (("gate", F, D), ("up", F, D), ("down", D, F)):
            state[h + f"mlp.{name}_proj.weight"] = w(p + name, (rows, cols))
        state[h + "input_layernorm.weight"] = w(p + "attention_norm", (D,))
        state[h + "post_attention_layernorm.weight"] = w(p + "ffn_norm", (D,))
    load(model, state)
    return model


result = {}
for name, model in (("llama_small", llama()), ("gemma3_small", gemma3_small.build())):
    u = uniform(stream_of("score"), np.arange(150, dtype=np.uint64))
    ids = [int(x * 257) for x in u]
    result[name] = {"ids": ids, "scores": [score(model, ids, w, s, b) for w, s, b in
                                           ((32, 8, None), (32, 31, 2), (64, 32, 2), (200, 100, None))]}

here = os.path.dirname(os.path.abspath(__file__))
text = open(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../shared/data/text/wikitext-2.valid.txt"),
            encoding="utf-8").read()[:8000]
model, reader = llama_of_gguf(os.path.expanduser("~/.cache/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(vocabulary)}, merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
ids = tokenizer.encode(text).ids
result["smollm2"] = {"bytes": len(text.encode()), "scores": [score(model, ids, 256, 128, None)]}
write("score.json", result)
