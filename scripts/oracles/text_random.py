#!/usr/bin/env python3
"""Writes plait/text/testdata/random_expected.txt: hashes of what Hugging Face's `tokenizers` makes of random strings.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 gguf
    /tmp/venv/bin/python scripts/oracles/text_random.py SHARED_DATA SMOLLM2_GGUF

The strings come from a counter-based generator that plait/text/random_test.cc repeats (`random_string`). A line is the
FNV-1a hash (32 bits folded from 64) of: ids with special tokens recognised, ids without, the text decoded from the former.
`--show MODEL N` prints a case in full.
"""
import json
import sys
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

M = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


def fnv(data, h=1469598103934665603):
    for c in data:
        h = ((h ^ c) * 1099511628211) & M
    return h


def random_bits(stream, index):
    return mix64(mix64(stream) ^ index)


NUM_STRINGS = 2000
SPACES = " \t\n\r\u00a0\u2003\u3000\u0085\u2028\u200b\u180e\x0b"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'x", "\u2019s", "'\u017f"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<0x0A>", "<|padding|>", "<|im_", "  "]
NUMBERS = "\u00b2\u00bd\u0661\u0967\u2167\u2460\U0001d7d8\uff13\u4e94"
ALPHABET = "\u2581\u0120\u010a\u0100\u00e9\u0178"
WORDS = [" the", " of", " running", " token", "Hello", " I'm", " world", "https://", ".com", " def", "return", " \u00fcber"]
RANGES = [(0x61, 26), (0x41, 26), (0x30, 10), (0xC0, 0x180), (0x391, 0x70), (0x410, 0x40), (0x4E00, 0x5000),
          (0x3041, 0x50), (0xAC00, 0x2BA0), (0x1F300, 0x350), (0x300, 0x70), (0x0, 0x20), (0x900, 0x70), (0x20000, 0xA000),
          (0x1E00, 0x100), (0x2190, 0x100)]


def random_string(n):
    stream = (fnv(b"plait.text.random") + n) & M
    counter = 0

    def draw(below):
        nonlocal counter
        counter += 1
        return random_bits(stream, counter) % below

    out = ""
    for _ in range(draw(20)):
        kind = draw(28)
        if kind < len(RANGES):
            first, count = RANGES[kind]
            for _ in range(1 + draw(7)):
                out += chr(first + draw(count))
        elif kind < 19:
            out += " " * (1 + draw(5))
        elif kind == 19:
            for _ in range(1 + draw(4)):
                out += SPACES[draw(len(SPACES))]
        elif kind == 20:
            for _ in range(1 + draw(5)):
                out += PUNCTUATION[draw(len(PUNCTUATION))]
        elif kind == 21:
            out += CONTRACTIONS[draw(len(CONTRACTIONS))]
        elif kind == 22:
            out += SPECIALS[draw(len(SPECIALS))]
        elif kind == 23:
            for _ in range(1 + draw(3)):
                out += NUMBERS[draw(len(NUMBERS))]
        elif kind == 24:
            for _ in range(1 + draw(3)):
                out += ALPHABET[draw(len(ALPHABET))]
        elif kind == 25:
            out += chr(0x21 + draw(0x5E)) * (1 + draw(40))
        elif kind == 26:
            out += WORDS[draw(len(WORDS))]
        else:
            c = draw(0x3000)
            out += chr(c)
    return out


def smollm2(path):
    fields = GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens = get("tokens")
    merges = [tuple(m.split(" ")) for m in get("merges")]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(
        [AddedToken(s, special=True, normalized=False) for s, kind in zip(tokens, get("token_type")) if kind == 3])
    return t


QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+")


def qwen2(folder):
    vocab = json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().split("\n")
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False)
                          for s in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return t


def both(t, text):
    t.encode_special_tokens = False
    special = t.encode(text, add_special_tokens=False).ids
    t.encode_special_tokens = True
    plain = t.encode(text, add_special_tokens=False).ids
    t.encode_special_tokens = False
    return special, plain, t.decode(special, skip_special_tokens=False)


def hash_of(special, plain, decoded):
    data = b"".join(i.to_bytes(4, "little") for i in special) + b"|"
    data += b"".join(i.to_bytes(4, "little") for i in plain) + b"|" + decoded.encode()
    h = fnv(data)
    return (h ^ (h >> 32)) & 0xFFFFFFFF


def main():
    shared = Path(sys.argv[1]) / "tokenizers"
    tokenizers = {
        "smollm2": smollm2(sys.argv[2]),
        "gpt2": Tokenizer.from_file(str(shared / "gpt2/tokenizer.json")),
        "llama2": Tokenizer.from_file(str(shared / "llama2/tokenizer.json")),
        "gpt-neox": Tokenizer.from_file(str(shared / "gpt-neox/tokenizer.json")),
        "qwen2": qwen2(shared / "qwen2"),
    }
    if len(sys.argv) > 3:
        text = random_string(int(sys.argv[5]))
        print(repr(text), [hex(ord(c)) for c in text], *both(tokenizers[sys.argv[4]], text), sep="\n")
        return
    out = Path(__file__).parents[2] / "plait/text/testdata/random_expected.txt"
    with out.open("w") as f:
        for name, t in tokenizers.items():
            f.write(f"{name} {NUM_STRINGS}\n")
            for n in range(NUM_STRINGS):
                f.write(f"{hash_of(*both(t, random_string(n))):08x}\n")
    print(out, out.stat().st_size)


main()
