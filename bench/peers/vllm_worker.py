"""vLLM's CPU build as one long-lived process, with the protocol of llama_worker.py (open, prefill, decode, about).

"open" takes a Hugging Face folder. Cores are one rank's threads each where the heads divide ("tensor": true), else the
threads of one rank. Decode is the difference of a run with one token and one with more, prefill a run with one.
"""
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")


def open_model(q):
    cpus = sorted(os.sched_getaffinity(0))[:q["threads"]]
    with open(os.path.join(q["open"], "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    ranks = q["threads"] if c["num_attention_heads"] % q["threads"] == 0 else 1
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, cpus)) if ranks > 1 else f"{cpus[0]}-{cpus[-1]}"
    if ranks == 1:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM
    began = time.perf_counter()
    model = LLM(model=q["open"], dtype="bfloat16", max_model_len=q["context"] + 8, tensor_parallel_size=ranks,
                enforce_eager=not q["compile"], enable_prefix_caching=False, skip_tokenizer_init=True)
    return model, c["vocab_size"], {"ok": True, "load_s": time.perf_counter() - began, "ranks": ranks}


def generate(state, prompt, tokens, sequences=1):
    from vllm import SamplingParams
    model, vocabulary = state
    prompts = [{"prompt_token_ids": [(i * 7919 + 11 + 31 * s) % vocabulary for i in range(prompt)]} for s in range(sequences)]
    begin = time.perf_counter()
    model.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
                   use_tqdm=False)
    return time.perf_counter() - begin


def main():
    state, sequences = None, 1
    for line in sys.stdin:
        q = json.loads(line)
        try:
            if "open" in q:
                model, vocabulary, said = open_model(q)
                state, sequences = (model, vocabulary), q.get("sequences", 1)
            elif "prefill" in q:
                said = {"s": generate(state, q["prefill"], 1)}
            elif "decode" in q:
                one = generate(state, q["after"], 1, sequences)
                said = {"s": (generate(state, q["after"], 1 + q["decode"], sequences) - one) / q["decode"]}
            else:
                import vllm
                said = {"version": vllm.__version__, "features": ""}
        except Exception as e:  # noqa: BLE001  the driver reports it and goes on
            said = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
