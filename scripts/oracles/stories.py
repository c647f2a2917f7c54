"""tests/data/stories260k.json: the ids of stories260K's published greedy text, checked against that text."""
import os
import re
import sys

from oracle import greedy, llama_of_gguf, write

shared = os.environ.get("PLAIT_SHARED", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared"))
folder = os.path.join(shared, "data/models/stories260K")
model, reader = llama_of_gguf(os.path.join(folder, "stories260K.gguf"))
vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()

published = re.search(r"-t 0.0\n(.*?)\n```", open(os.path.join(folder, "stories260K.md")).read(), re.S).group(1)
tokens, margins = greedy(model, [1], 256)


def text_of(ids):
    out = b""
    for i in ids:
        byte = re.fullmatch(r"<0x([0-9A-F]{2})>", vocabulary[i])
        out += bytes([int(byte.group(1), 16)]) if byte else vocabulary[i].replace("\u2581", " ").encode()
    return out.decode().lstrip(" ")


count = next(n for n in range(1, 257) if text_of(tokens[:n]).strip() == published.strip())
print(f"{count} tokens give the published text; smallest margin {min(margins[:count])}")
write("stories260k.json", {"prompt": [1], "tokens": tokens[:count], "smallest_margin": round(min(margins[:count]), 6)})
