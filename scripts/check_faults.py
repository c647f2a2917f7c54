#!/usr/bin/env python3
"""Faults in ranks, one command a case: exit code, seconds, message, and no process that stays.

usage: check_faults.py PLAIT MODEL     exit code 77 when MODEL is not there
"""
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PLAIT, MODEL = sys.argv[1:3]
RANKS = 3
DEADLINE = 0.5
# where of --fault, what the message says of it
WHERE = {
    "load": ["load"],
    "prefill": ["prefill"],
    "decode:3": ["decode step 3"],
    "decode:2:wo": ["decode step 2"],
    "prefill:all_reduce": ["prefill", "all_reduce"],
    "decode:2:all_reduce": ["decode step 2", "all_reduce"],
    "decode:2:sample": ["decode step 2"],
}
problems = []
times = {}


def command(ranks, *more):
    return [PLAIT, "generate", MODEL, "-tp", str(RANKS), "-t", "1", "-p", "Once upon a time", "-n", "8", "-q",
            "--ranks", ranks, "--deadline", str(DEADLINE), *more]


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


def case(ranks, victim, where, kind, normal_s):
    name = f"{ranks} {victim}:{where}:{kind}"
    mark = f"PLAIT_FAULT_CASE={os.getpid()}_{name.replace(' ', '_')}"
    env = dict(os.environ, **dict([mark.split("=")]))
    p, seconds = run(name, command(ranks, "--fault", f"{victim}:{where}:{kind}"), env)
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
    # Far below the 30 s that a fault nobody notices would take; that others stop within 0.2 s is measured in comm_test.
    limit = normal_s + 2 + (DEADLINE if kind == "hang" else 0)
    expect(seconds < limit, f"want an end within {limit:.2f} s")
    expect(f"rank {victim} (tp={victim})" in p.stderr, "the rank and its coordinates are not named")
    for word in WHERE[where]:
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
    run("warm", command("thread"))
    threads, thread_s = run("threads", command("thread"))
    processes, process_s = run("processes", command("process"))
    if threads.returncode != 0 or threads.stdout != processes.stdout or processes.returncode != 0:
        problems.append(f"threads and processes differ: {threads} {processes}")
    hangs = []
    for ranks, normal_s in (("thread", thread_s), ("process", process_s)):
        for where in WHERE:
            for victim in (0, RANKS - 1):
                for kind in ("throw", "hang", "exit", "kill"):
                    if ranks == "thread" and kind in ("exit", "kill") and where != "load":
                        continue
                    if kind == "hang":
                        hangs.append((ranks, victim, where, kind, normal_s))
                    else:
                        case(ranks, victim, where, kind, normal_s)
    with ThreadPoolExecutor(3) as pool:  # they wait for their deadlines
        list(pool.map(lambda c: case(*c), hangs))
    for ranks in ("thread", "process"):
        p, _ = run("slow", command(ranks, "--fault", "1:wo:slow"))
        if p.returncode != 0 or p.stdout != threads.stdout:
            problems.append(f"a slow rank, {ranks}: code {p.returncode}, {p.stderr}")
        p, _ = run("bench", [PLAIT, "bench", MODEL, "-tp", "2", "-t", "1", "--prompt-tokens", "16", "--gen-tokens", "16",
                             "--repeat", "1", "--json", "--ranks", ranks, "--fault", "1:wo:slow"])
        straggler = json.loads(p.stdout)["degrees"][0]["straggler"] if p.returncode == 0 else None
        if not straggler or straggler["rank"] != 1:
            problems.append(f"bench names no straggler, {ranks}: {p.stderr} {straggler}")
    for bad in ("9:load:throw", "1:nowhere:throw", "1:load", "1:load:burn", "x:load:throw", "1:load:wo:throw"):
        p, _ = run(bad, command("thread", "--fault", bad))
        if p.returncode != 2:
            problems.append(f"--fault {bad}: code {p.returncode}, want 2; {p.stderr}")
    for text in problems:
        print(text)
    print(f"{len(times)} faults, slowest {max(times.values()):.2f} s, {len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
