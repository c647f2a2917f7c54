#!/usr/bin/env python3
"""Faults in ranks, one command a case: exit code, seconds, message, and no process that stays.

usage: check_faults.py PLAIT MODEL     exit code 77 when MODEL is not there
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

PLAIT, MODEL = sys.argv[1:3]
RANKS = 3
DEADLINE = 0.5
# by command: where of --fault, what the message says of it
WHERE = {"generate": {
    "load": ["load"],
    "prefill": ["prefill"],
    "decode:3": ["decode step 3"],
    "decode:2:wo": ["decode step 2"],
    "prefill:all_reduce": ["prefill", "all_reduce"],
    "decode:2:all_reduce": ["decode step 2", "all_reduce"],
    "decode:2:sample": ["decode step 2"],
}, "train": {
    "load": ["load"],
    "step:2": ["training step 2"],
    "step:2:nll": ["training step 2"],
    "step:2:all_reduce": ["training step 2", "all_reduce"],
}}
AXIS = {"generate": "tp", "train": "dp"}
TRAINED = {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
           "intermediate_size": 48, "vocab_size": 65, "num_hidden_layers": 1, "max_position_embeddings": 64,
           "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
problems = []
times = {}


def command(what, ranks, *more, steps=0):
    if what == "train":
        args = ["verify", CONFIG, "--train", "-dp", str(RANKS), "--steps", str(steps or 2)]
    else:
        args = ["generate", MODEL, "-tp", str(RANKS), "-p", "Once upon a time", "-n", str(steps or 8), "-q", "-t", "1"]
    return [PLAIT, *args, "--ranks", ranks, "--deadline", str(DEADLINE), *more]


def left_over(mark):
    """Processes whose environment holds the mark: descendants of the command."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark.encode() in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def run(name, args, env=None):
    begin = time.monotonic()
    p = subprocess.run(args, capture_output=True, text=True, timeout=60, env=env)
    return p, time.monotonic() - begin


def children(pid):
    """Processes that this one started, in order."""
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(child) for child in f.read().split()]


def end_after_death(what, victim):
    """Seconds from a rank's SIGKILL, sent from outside in the middle of the steps, to the end of the command."""
    phase = {"generate": "decode", "train": "step"}[what]
    p = subprocess.Popen(command(what, "process", "--fault", f"1:{phase}:slow", steps=100), stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True)
    ranks = []
    while len(ranks) < RANKS and p.poll() is None:
        first = children(p.pid)  # rank 0, which starts the others
        ranks = first + children(first[0]) if first else []
    time.sleep(0.3)
    begin = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    _, errors = p.communicate(timeout=60)
    seconds = time.monotonic() - begin
    if p.returncode != 5 or f"rank {victim} ({AXIS[what]}={victim}" not in errors or "killed by signal 9" not in errors:
        problems.append(f"{what}: rank {victim} killed from outside: code {p.returncode}, {errors}")
    return seconds


def case(what, ranks, victim, where, kind, normal_s):
    name = f"{what} {ranks} {victim}:{where}:{kind}"
    mark = f"PLAIT_FAULT_CASE={os.getpid()}_{name.replace(' ', '_')}"
    env = dict(os.environ, **dict([mark.split("=")]))
    p, seconds = run(name, command(what, ranks, "--fault", f"{victim}:{where}:{kind}"), env)
    times[name] = seconds
    lines = p.stderr.strip().splitlines()

    def expect(ok, what):
        if not ok:
            problems.append(f"{name}: {what}\n    code {p.returncode}, {seconds:.2f} s, stderr: {p.stderr.strip()}")

    if kind in ("exit", "kill") and ranks == "thread":
        expect(p.returncode == 2 and "--ranks process" in p.stderr, "want a usage error")
        return
    expect(p.returncode == 5, "want exit code 5")
    expect(len(lines) == 1, "want one message")
    # Far below the 30 s that a fault nobody notices would take; end_after_death measures the 0.2 s.
    limit = normal_s + 2 + (DEADLINE if kind == "hang" else 0)
    expect(seconds < limit, f"want an end within {limit:.2f} s")
    expect(f"rank {victim} ({AXIS[what]}={victim}" in p.stderr, "the rank and its coordinates are not named")
    for word in WHERE[what][where]:
        expect(word in p.stderr, f"'{word}' is not named")
    words = {"kill": "was killed by signal 9", "exit": "ended with exit code 3", "hang": f"rank {victim} did not come",
             "throw": "a fault was asked for"}
    expect(words[kind] in p.stderr or (kind == "hang" and "did not come" in p.stderr), f"'{words[kind]}' is missing")
    stay = left_over(mark)
    expect(not stay, f"processes stay: {stay}")


def main():
    if not os.path.exists(MODEL):
        print(f"{MODEL} is not there")
        return 77
    hangs = []
    for what in WHERE:
        run("warm", command(what, "thread"))
        threads, thread_s = run("threads", command(what, "thread"))
        processes, process_s = run("processes", command(what, "process"))
        if threads.returncode != 0 or threads.stdout != processes.stdout or processes.returncode != 0:
            problems.append(f"{what}: threads and processes differ: {threads} {processes}")
        for ranks, normal_s in (("thread", thread_s), ("process", process_s)):
            for where in WHERE[what]:
                for victim in (0, RANKS - 1):
                    for kind in ("throw", "hang", "exit", "kill"):
                        if ranks == "thread" and kind in ("exit", "kill") and where != "load":
                            continue
                        if kind == "hang":
                            hangs.append((what, ranks, victim, where, kind, normal_s))
                        else:
                            case(what, ranks, victim, where, kind, normal_s)
            p, _ = run("slow", command(what, ranks, "--fault", {"generate": "1:wo:slow", "train": "1:nll:slow"}[what]))
            if p.returncode != 0 or p.stdout != threads.stdout:
                problems.append(f"{what}: a slow rank, {ranks}: code {p.returncode}, {p.stderr}")
    with ThreadPoolExecutor(3) as pool:  # they wait for their deadlines
        list(pool.map(lambda c: case(*c), hangs))
    ends = {}
    for what in WHERE:
        for victim in (0, RANKS - 1):
            # The least of some: the machine may be busy.
            ends[f"{what} {victim}"] = min(end_after_death(what, victim) for _ in range(3))
            if ends[f"{what} {victim}"] > 0.2:
                problems.append(f"{what}: rank {victim} killed, the command ends {ends} s later, want 0.2")
    for ranks in ("thread", "process"):
        p, _ = run("bench", [PLAIT, "bench", MODEL, "-tp", "2", "-t", "1", "--prompt-tokens", "16", "--gen-tokens", "16",
                             "--repeat", "1", "--json", "--ranks", ranks, "--fault", "1:wo:slow"])
        straggler = json.loads(p.stdout)["degrees"][0]["straggler"] if p.returncode == 0 else None
        if not straggler or straggler["rank"] != 1:
            problems.append(f"bench names no straggler, {ranks}: {p.stderr} {straggler}")
    bad = ["9:load:throw", "1:nowhere:throw", "1:load", "1:load:burn", "x:load:throw", "1:load:wo:throw"]
    for what, faults in (("generate", bad + ["1:step:2:throw"]), ("train", bad + ["1:decode:throw"])):
        for fault in faults:
            p, _ = run(fault, command(what, "thread", "--fault", fault))
            if p.returncode != 2:
                problems.append(f"{what} --fault {fault}: code {p.returncode}, want 2; {p.stderr}")
    for text in problems:
        print(text)
    print("seconds from a rank's death to the command's end: " +
          ", ".join(f"{name} {seconds:.3f}" for name, seconds in ends.items()))
    print(f"{len(times)} faults, slowest {max(times.values()):.2f} s, {len(problems)} problems")
    return 1 if problems else 0


with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
    json.dump(TRAINED, config)
    config.flush()
    CONFIG = config.name
    sys.exit(main())
