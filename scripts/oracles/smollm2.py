"""tests/data/smollm2.json: logits and greedy tokens of SmolLM2-135M-Instruct, weights dequantized from its GGUF."""
import os
import sys

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from oracle import forward, greedy, layer_summary, llama_of_gguf, rounded, write
from random_weights import mix64, stream_of

TEXT = (
    "The harbour lay quiet that morning. Two fishermen were mending their nets on the stone steps, and an old dog slept "
    "in the shade of an upturned boat. Nobody had noticed that"
)
path = sys.argv[1] if len(sys.argv) > 1 else os.path.expanduser(
    "~/.cache/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf")
model, reader = llama_of_gguf(path)

vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(vocabulary)}, merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
tokenizer.decoder = decoders.ByteLevel()

ids = tokenizer.encode(TEXT).ids
logits, outs = forward(model, ids, model.model.layers)
tokens, margins = greedy(model, ids, 64)
assert tokens[0] == int(np.argmax(logits[-1]))


def entries(row):
    """The 32 largest and 568 drawn ones."""
    top = np.argsort(-logits[row], kind="stable")[:32]
    drawn = mix64(np.arange(2000, dtype=np.uint64) ^ np.uint64(stream_of(f"row {row}"))) % np.uint64(logits.shape[1])
    chosen = list(dict.fromkeys([int(i) for i in top] + [int(i) for i in drawn]))[:600]
    return {
        "row": row,
        "max_abs": round(float(np.abs(logits[row]).max()), 6),
        "ids": chosen,
        "logits": rounded(logits[row][chosen]),
    }


print(f"{len(ids)} tokens; smallest margin {min(margins)}; {tokenizer.decode(tokens)!r}")
last = len(ids) - 1
write("smollm2.json", {
    "text": TEXT,
    "tokens": ids,
    "rows": [entries(r) for r in (last, 0, last // 3, 2 * last // 3)],
    "greedy": tokens,
    "greedy_text": tokenizer.decode(tokens),
    "greedy_margins": rounded(margins, 4),
    "layers": layer_summary(outs),
})
