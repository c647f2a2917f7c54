"""What the scripts share: a GGUF Llama as a transformers model, greedy decoding, the form of the files."""
import json
import os

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data")
torch.manual_seed(0)
torch.set_num_threads(2)


def tensor(a):
    return torch.from_numpy(np.ascontiguousarray(a))


def unpermuted(w, heads):
    """GGUF keeps row 2i + j of a head where Hugging Face has row j H/2 + i."""
    h = w.shape[0] // heads
    return w.reshape(heads, h // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama_of_gguf(path):
    """-> model in f32 with eager attention, GGUFReader"""
    r = gguf.GGUFReader(path)
    field = lambda key, absent=None: r.fields[key].contents() if key in r.fields else absent
    w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in r.tensors}
    n = int(field("llama.attention.head_count"))
    k = int(field("llama.attention.head_count_kv"))
    layers = int(field("llama.block_count"))
    config = LlamaConfig(
        vocab_size=w["token_embd.weight"].shape[0],
        hidden_size=int(field("llama.embedding_length")),
        intermediate_size=int(field("llama.feed_forward_length")),
        num_hidden_layers=layers,
        num_attention_heads=n,
        num_key_value_heads=k,
        max_position_embeddings=int(field("llama.context_length")),
        rms_norm_eps=float(field("llama.attention.layer_norm_rms_epsilon")),
        rope_theta=float(field("llama.rope.freq_base", 10000.0)),
        tie_word_embeddings="output.weight" not in w,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    state = {
        "model.embed_tokens.weight": w["token_embd.weight"],
        "model.norm.weight": w["output_norm.weight"],
        "lm_head.weight": w.get("output.weight", w["token_embd.weight"]),
    }
    for l in range(layers):
        g, h = f"blk.{l}.", f"model.layers.{l}."
        state[h + "input_layernorm.weight"] = w[g + "attn_norm.weight"]
        state[h + "self_attn.q_proj.weight"] = unpermuted(w[g + "attn_q.weight"], n)
        state[h + "self_attn.k_proj.weight"] = unpermuted(w[g + "attn_k.weight"], k)
        state[h + "self_attn.v_proj.weight"] = w[g + "attn_v.weight"]
        state[h + "self_attn.o_proj.weight"] = w[g + "attn_output.weight"]
        state[h + "post_attention_layernorm.weight"] = w[g + "ffn_norm.weight"]
        state[h + "mlp.gate_proj.weight"] = w[g + "ffn_gate.weight"]
        state[h + "mlp.up_proj.weight"] = w[g + "ffn_up.weight"]
        state[h + "mlp.down_proj.weight"] = w[g + "ffn_down.weight"]
    load(model, state)
    return model, r


def load(model, state):
    """Every parameter, and nothing else."""
    missing, unexpected = model.load_state_dict({k: tensor(v) for k, v in state.items()}, strict=False)
    assert not unexpected, unexpected
    assert all("inv_freq" in m or m.endswith(".attn.bias") or m.endswith("masked_bias") for m in missing), missing


def forward(model, ids, layers):
    """-> logits [T V], and the residual stream after each layer [L][T D]"""
    outs = []
    hooks = [l.register_forward_hook(lambda m, i, o: outs.append(o[0][0])) for l in layers]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    for h in hooks:
        h.remove()
    return logits.numpy(), [o.numpy() for o in outs]


def greedy(model, ids, count):
    """-> `count` tokens after ids, and the margin of the top two logits at each"""
    tokens, margins, past, step = [], [], None, ids
    with torch.no_grad():
        for _ in range(count):
            r = model(torch.tensor([step]), past_key_values=past, use_cache=True)
            past = r.past_key_values
            top = torch.topk(r.logits[0, -1], 2)
            tokens.append(int(top.indices[0]))
            margins.append(float(top.values[0] - top.values[1]))
            step = tokens[-1:]
    return tokens, margins


def rounded(values, digits=6):
    return [round(float(v), digits) for v in values]


def layer_summary(outs):
    """Of the last row, after each layer: root mean square and the first four values; to find a fault by."""
    rows = [o[-1] for o in outs]
    return [{"rms": round(float(np.sqrt(np.mean(r.astype(np.float64) ** 2))), 6), "first": rounded(r[:4])} for r in rows]


def write(name, value):
    """JSON, one line for each list of numbers."""
    def text(v, indent):
        pad = " " * indent
        if isinstance(v, dict):
            return "{\n" + ",\n".join(f"{pad} {json.dumps(k)}: {text(x, indent + 1)}" for k, x in v.items()) + "}"
        if isinstance(v, list) and v and isinstance(v[0], (list, dict)):
            return "[\n" + ",\n".join(pad + " " + text(x, indent + 1) for x in v) + "]"
        return json.dumps(v, separators=(",", ":"))

    path = os.path.join(FOLDER, name)
    with open(path, "w") as f:
        f.write(text(value, 0) + "\n")
    print(f"{path}: {os.path.getsize(path)} bytes")
