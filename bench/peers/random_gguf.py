"""A GGUF file of random bf16 weights in a Llama's shape, from its config.json: for measuring speed, not for text.

Values are normal, of standard deviation 0.02 (norms: 1), so that activations stay finite; a block of them is drawn once
and repeated from places that differ, since speed does not depend on them. There is no tokenizer (`no_vocab`).
"""
import array
import json
import random
import struct
import sys

BLOCK = 1 << 20


def bf16(x):
    return struct.unpack("<I", struct.pack("<f", x))[0] + 0x8000 >> 16


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def tensors(c, head):
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    yield "token_embd.weight", [v, d]
    if not c.get("tie_word_embeddings", False):
        yield "output.weight", [v, d]
    yield "output_norm.weight", [d]
    if isinstance(c.get("rope_scaling"), dict):
        yield "rope_freqs.weight", [head // 2]
    for i in range(c["num_hidden_layers"]):
        for name, shape in (("attn_norm", [d]), ("attn_q", [q, d]), ("attn_k", [kv, d]), ("attn_v", [kv, d]),
                            ("attn_output", [d, q]), ("ffn_norm", [d]), ("ffn_gate", [f, d]), ("ffn_up", [f, d]),
                            ("ffn_down", [d, f])):
            yield f"blk.{i}.{name}.weight", shape


def rope_factors(c, head):
    """What Llama 3's scaling divides each frequency by."""
    s = c["rope_scaling"]
    base, low, high, original = c["rope_theta"], s["low_freq_factor"], s["high_freq_factor"], s[
        "original_max_position_embeddings"]
    for i in range(head // 2):
        wave = 2 * 3.141592653589793 * base**(2 * i / head)
        smooth = min(max((original / wave - low) / (high - low), 0), 1)
        yield 1 / ((1 - smooth) / s["factor"] + smooth)


def write(config, out):
    c = json.loads(config.read_text())
    if c.get("model_type") != "llama":
        sys.exit(f"peers: {config}: got model_type {c.get('model_type')!r}, want llama")
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    u32 = {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
           "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
           "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
           "rope.dimension_count": head, "attention.key_length": head, "attention.value_length": head,
           "vocab_size": c["vocab_size"]}
    f32 = {"attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "rope.freq_base": c["rope_theta"]}
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
            text("general.name") + struct.pack("<I", 8) + text(config.stem + ", random weights"),
            text("general.file_type") + struct.pack("<II", 4, 32),
            text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab")]
    keys += [text("llama." + k) + struct.pack("<II", 4, v) for k, v in u32.items()]
    keys += [text("llama." + k) + struct.pack("<If", 6, v) for k, v in f32.items()]
    listed = list(tensors(c, head))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(keys)) + b"".join(keys)
    offset = 0
    for name, shape in listed:
        n = 1
        for x in shape:
            n *= x
        plain = len(shape) == 1  # norms and factors in f32
        header += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", x) for x in reversed(shape))
        header += struct.pack("<IQ", 0 if plain else 30, offset)
        offset += -(-n * (4 if plain else 2) // 32) * 32
    rng = random.Random(4)
    block = array.array("H", (bf16(rng.gauss(0, 0.02)) for _ in range(BLOCK))).tobytes()
    aside = out.with_suffix(".part")
    with aside.open("wb") as f:
        f.write(header + b"\0" * (-len(header) % 32))
        for name, shape in listed:
            if len(shape) == 1:
                values = rope_factors(c, head) if name.startswith("rope") else [1.0] * shape[0]
                data = array.array("f", values).tobytes()
                f.write(data + b"\0" * (-len(data) % 32))
                continue
            left = shape[0] * shape[1] * 2
            size = left
            while left > 0:
                at = 2 * rng.randrange(BLOCK // 2)
                part = block[at:at + left]
                f.write(part)
                left -= len(part)
            f.write(b"\0" * (-size % 32))
    aside.rename(out)
    print(out)
    return 0
