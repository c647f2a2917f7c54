"""llama.cpp through llama-cpp-python, as one long-lived process: a command a line on stdin, an answer a line on stdout.

Runs inside the environment that peers.py makes, never by itself. A model is kept loaded between commands, so that rounds
of ours and theirs alternate without loading theirs anew. Times are of llama_decode alone: no sampling, as in llama-bench.

  {"open": PATH, "threads": N, "flash": bool, "context": N, "sequences": N}  -> {"ok": true, "load_s": S}
  {"prefill": TOKENS}                 -> {"s": seconds of a prefill from an empty cache}
  {"decode": STEPS, "after": TOKENS}  -> {"s": seconds a step, one token for each sequence}
  {"score": [FILE, TOKENS, WINDOW, STRIDE]} -> {"nll": sum, "tokens": counted}
  {"quantize": [FROM, TO, TYPE]}      -> {"ok": true}
  {"about": true}                     -> {"version": TEXT, "features": TEXT}
An error is {"error": TEXT}.
"""
import ctypes
import json
import math
import os
import sys
import time

import numpy as np

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library prints to stdout in places

import llama_cpp as lc  # noqa: E402

QUIET = lc.llama_log_callback(lambda level, text, data: None)
lc.llama_log_set(QUIET, None)
lc.llama_backend_init()


class Model:
    def __init__(self, path, threads, flash, context, sequences):
        begin = time.perf_counter()
        p = lc.llama_model_default_params()
        p.n_gpu_layers = 0
        self.model = lc.llama_model_load_from_file(path.encode(), p)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        c = lc.llama_context_default_params()
        c.n_ctx = context * sequences
        c.n_batch = c.n_ctx
        c.n_ubatch = 512
        c.n_seq_max = sequences
        c.n_threads = c.n_threads_batch = threads
        c.flash_attn_type = 1 if flash else 0
        c.kv_unified = False
        self.context = lc.llama_init_from_model(self.model, c)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context")
        self.vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.sequences = sequences
        self.batch = lc.llama_batch_init(c.n_batch, 0, 1)
        self.load_s = time.perf_counter() - begin

    def close(self):
        lc.llama_batch_free(self.batch)
        lc.llama_free(self.context)
        lc.llama_model_free(self.model)

    def clear(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def run(self, rows):
        """rows: (token, position, sequence, wants logits)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            b.token[i] = token
            b.pos[i] = position
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = sequence
            b.logits[i] = logits
        begin = time.perf_counter()
        code = lc.llama_decode(self.context, b)
        lc.llama_synchronize(self.context)
        if code != 0:
            raise RuntimeError(f"llama_decode: {code}")
        return time.perf_counter() - begin

    def token(self, i):
        return (i * 7919 + 11) % self.vocabulary

    def prompt(self, tokens, sequence=0):
        return [(self.token(i), i, sequence, i + 1 == tokens) for i in range(tokens)]

    def prefill(self, tokens):
        self.clear()
        return self.run(self.prompt(tokens))

    def decode(self, steps, after):
        self.clear()
        for s in range(self.sequences):
            self.run(self.prompt(after, s))
        return sum(
            self.run([(self.token(i + 31 * s), after + i, s, True) for s in range(self.sequences)])
            for i in range(steps)) / steps

    def score(self, path, tokens, window, stride):
        """Of the text's first tokens each once, as `plait score` counts them: a window begins with a BOS where the
        model puts one before a text, and counts the tokens that no window before it has counted."""
        vocabulary = lc.llama_model_get_vocab(self.model)
        bos = [lc.llama_vocab_bos(vocabulary)] if lc.llama_vocab_get_add_bos(vocabulary) else []
        with open(path, encoding="utf-8") as f:
            ids = tokenize(vocabulary, f.read())[:tokens]
        nll, counted, begin, end = 0.0, 0 if bos else 1, 0, 0
        first_counted = counted
        while end < len(ids):
            end = min(begin + window - len(bos), len(ids))
            part = bos + ids[begin:end]
            first = counted - begin + len(bos)
            self.clear()
            self.run([(t, i, 0, i + 1 >= first) for i, t in enumerate(part[:-1])])
            for i in range(first, len(part)):
                row = lc.llama_get_logits_ith(self.context, i - 1)
                logits = np.ctypeslib.as_array(row, shape=(self.vocabulary,)).astype(np.float64)
                top = logits.max()
                nll += math.log(np.exp(logits - top).sum()) + top - logits[part[i]]
            counted = end
            begin += stride
        return nll, counted - first_counted


def quantize(source, target, kind):
    p = lc.llama_model_quantize_default_params()
    p.nthread = len(os.sched_getaffinity(0))
    p.ftype = getattr(lc, "LLAMA_FTYPE_" + kind)
    p.allow_requantize = True
    p.pure = False
    code = lc.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(p))
    if code != 0:
        raise RuntimeError(f"llama_model_quantize: {code}")


def tokenize(vocabulary, text):
    data = text.encode()
    ids = (lc.llama_token * (len(data) + 16))()
    n = lc.llama_tokenize(vocabulary, data, len(data), ids, len(ids), False, False)
    if n < 0:
        raise RuntimeError(f"llama_tokenize: {n}")
    return list(ids[:n])


def answer(state, q):
    if "open" in q:
        if state.get("model"):
            state.pop("model").close()
        state["model"] = Model(q["open"], q["threads"], q["flash"], q["context"], q.get("sequences", 1))
        return {"ok": True, "load_s": state["model"].load_s}
    if "prefill" in q:
        return {"s": state["model"].prefill(q["prefill"])}
    if "decode" in q:
        return {"s": state["model"].decode(q["decode"], q["after"])}
    if "score" in q:
        nll, counted = state["model"].score(*q["score"])
        return {"nll": nll, "tokens": counted}
    if "quantize" in q:
        quantize(*q["quantize"])
        return {"ok": True}
    if "about" in q:
        return {"version": lc.__version__, "features": lc.llama_print_system_info().decode()}
    raise RuntimeError(f"unknown command {q}")


def main():
    state = {}
    for line in sys.stdin:
        try:
            said = answer(state, json.loads(line))
        except Exception as e:  # noqa: BLE001  the driver reports it and goes on
            said = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), file=answers, flush=True)


main()
