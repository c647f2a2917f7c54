#!/usr/bin/env bash
# Memory of `plait generate` as the system counts it, against what `plait explain` forecasts: the largest resident size
# (its own memory and pages of files) of the whole run, loading too. usage: memory_test.sh BUILD_FOLDER
#
# Slack, for what is no rank's: the program with the model's file and tokenizer open (measured: that of `tokenize`), and
# 8 MiB a rank (6 to 7 measured) for its calls, sampler, names and stacks. A rank's weights are 31 MiB or more, the
# model's file is 92 MiB: either resident twice shows.
set -euo pipefail
plait="${1:-build}/plait"
model="${PLAIT_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
if [ ! -f "$model" ]; then
  echo "memory_test: $model is not there: scripts/fetch_model.sh fetches it" >&2
  exit 77
fi
python3 - "$plait" "$model" <<'PY'
import json, os, subprocess, sys

plait, model = sys.argv[1:]
MIB = 1 << 20


def peak(*args):
    """Largest resident bytes of the program, and its output."""
    p = subprocess.Popen([plait, *args], stdout=subprocess.PIPE)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    if status != 0:
        sys.exit(f"memory_test: plait {' '.join(args)} ended with status {status}")
    return usage.ru_maxrss * 1024, out


base, _ = peak("tokenize", model, "hello")
failures = 0
for dtype in "auto", "bf16":
    for tp in "1", "3":
        layout = [model, "-tp", tp, "--dtype", dtype, "-c", "512"]
        forecast = json.loads(peak("explain", *layout, "--json")[1])["ranks"]
        # Many tokens, so that the caches and the arena are used to their end.
        run = ["-t", "1", "-p", "Once upon a time " * 100, "-n", "64", "-q", "--json"]
        resident, out = peak("generate", *layout, *run)
        for want, got in zip(forecast, json.loads(out)["ranks"], strict=True):
            for kind in "weights_bytes", "kv_bytes", "arena_bytes", "comm_bytes":
                if abs(got[kind] - want[kind]) > 0.01 * want[kind]:
                    print(f"memory_test: {dtype} -tp {tp} {want['coords']}: {kind} {got[kind]}, explain says {want[kind]}")
                    failures += 1
        weights = sum(r["weights_bytes"] for r in forecast)
        most = 1.01 * sum(r["total_bytes"] for r in forecast) + base + 8 * MIB * len(forecast)
        line = f"{dtype} -tp {tp}: resident {resident / MIB:.1f} MiB, want {weights / MIB:.1f} to {most / MIB:.1f}"
        print("memory_test:", line)
        failures += not weights <= resident <= most
sys.exit(failures > 0)
PY
