"""Holds a timeline of `plait trace` against what it promises.

usage: check_trace.py TRACE RANKS STEPS       Exit status 1, with the first fault, where it is not so.

  * the file is JSON; its events have a name, a rank and a thread, and times of zero or more
  * on each thread slices lie one after the other or one inside the other, two deep: steps and what is done in them
  * a step is filled by what is done in it: the times add up to the step's, less calls with nothing to do, which are
    not shown (2 % of it, or 3 us)
  * each rank has the steps in order, and is in each of them at a time when the others are too
  * every start of a collective has a wait after it on the same rank
"""
import json
import sys

path, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
events = json.load(open(path))["traceEvents"]


def fault(text):
    sys.exit(f"check_trace: {path}: {text}")


named = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
if named != set(range(ranks)):
    fault(f"got names of the ranks {sorted(named)}, want 0 to {ranks - 1}")
slices = [e for e in events if e["ph"] == "X"]
by_rank = {}
for e in slices:
    if not (e["ts"] >= 0 and e["dur"] >= 0 and e["name"] and isinstance(e["args"], dict)):
        fault(f"got the event {e}")
    by_rank.setdefault(e["pid"], []).append((round(1000 * e["ts"]), round(1000 * e["dur"]), e))
times = []
for rank in range(ranks):
    mine = by_rank.get(rank, [])
    tops = [x for x in mine if x[2]["cat"] == "step"]
    if len(tops) != steps or not tops[0][2]["name"].startswith("prefill"):
        fault(f"rank {rank}: got {len(tops)} steps, want {steps}, the first a prefill")
    times.append([(begin, begin + d) for begin, d, _ in tops])
    inside = sorted((x for x in mine if x[2]["cat"] != "step"), key=lambda x: x[0])
    last = 0
    for begin, d, e in tops:
        if begin < last:
            fault(f"rank {rank}: {e['name']} begins before the step before it has ended")
        last = begin + d
        children = [x for x in inside if begin <= x[0] and x[0] + x[1] <= begin + d]
        at = begin
        for b, n, child in children:
            if b < at:
                fault(f"rank {rank}: {child['name']} begins inside the one before it")
            at = b + n
        filled = sum(x[1] for x in children)
        if not min(0.98 * d, d - 3000) <= filled <= d:
            fault(f"rank {rank}: {e['name']} of {d} ns is filled by {filled} ns")
        opened = 0
        for _, _, child in children:
            if child["name"].endswith(" start"):
                opened += 1
            if child["name"].endswith(" wait"):
                opened -= 1
            if opened < 0:
                fault(f"rank {rank}: {child['name']} without a start")
        if opened:
            fault(f"rank {rank}: {e['name']}: {opened} starts without a wait")
        inside = [x for x in inside if x not in children]
    if inside:
        fault(f"rank {rank}: {len(inside)} slices are in no step, the first is {inside[0][2]}")
for step in range(steps):
    if max(t[step][0] for t in times) >= min(t[step][1] for t in times):
        fault(f"step {step}: the ranks are not in it together")
if not any(e["cat"] == "kernel" and e["args"].get("bytes", 0) > 0 and "->" in e["args"].get("shape", "") for e in slices):
    fault("no kernel says its shapes and bytes")
print(f"check_trace: {len(slices)} slices of {ranks} ranks")
