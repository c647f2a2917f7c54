#!/usr/bin/env bash
# One hash of logits a model and type, on every machine and instruction set: tests/data/golden_hashes.txt holds it, and
# every path that this processor has (PLAIT_ISA) must give it, on one rank and on two; the same for fused kernels. usage: isa_test.sh BUILD_FOLDER
#
# The portable path is slow; it runs fewer types unless PLAIT_LONG=1.
set -euo pipefail
plait="${1:-build}/plait"
shared="${PLAIT_SHARED:-../shared}"
stories="$shared/data/models/stories260K/stories260K.gguf"
smollm2="${PLAIT_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf}"

isas=(portable)
grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && isas+=(avx2)
grep -qw avx512_vnni /proc/cpuinfo && grep -qw avx512bw /proc/cpuinfo && isas+=(avx512)
grep -qw avx512_bf16 /proc/cpuinfo && isas+=(avx512bf16)

runs=0 failures=0 missing=()
while read -r model dtype tokens golden; do
  case "$model" in '' | '#'*) continue ;; esac
  file="${!model}"
  if [ ! -f "$file" ]; then
    missing+=("$file")
    continue
  fi
  for isa in "${isas[@]}"; do
    if [ "$model:$isa:$dtype:${PLAIT_LONG:-0}" = smollm2:portable:f32:0 ]; then continue; fi
    status=0
    said="$(PLAIT_ISA=$isa "$plait" verify "$file" -tp 2 -t 1 --dtype "$dtype" -p "Once upon a time" -n "$tokens" --json)" ||
      status=$?
    runs=$((runs + 1))
    for key in logits_hash oracle_logits_hash; do
      got="$(sed -n "s/^ *\"$key\": \"\([0-9a-f]*\)\".*/\1/p" <<< "$said")"
      if [ "$status" != 0 ] || [ "$got" != "$golden" ]; then
        echo "isa_test: $model $dtype on $isa: $key '$got', want $golden (exit code $status)" >&2
        failures=$((failures + 1))
      fi
    done
  done
done < tests/data/golden_hashes.txt

# Whole generations with fused kernels, which verify does not run (plait/serve/golden_test.cc).
for isa in "${isas[@]}"; do
  [ -x "${1:-build}/serve_test" ] || break
  runs=$((runs + 1))
  if ! said="$(PLAIT_ISA=$isa "${1:-build}/serve_test" --gtest_filter='Golden.*' --gtest_brief=1 2>&1)"; then
    printf 'isa_test: fused generations on %s:\n%s\n' "$isa" "$said" >&2
    failures=$((failures + 1))
  fi
done

# What a processor lacks, or nobody knows, is refused.
status=0
PLAIT_ISA=sse9 "$plait" doctor > /dev/null 2>&1 || status=$?
if [ "$status" != 2 ]; then
  echo "isa_test: PLAIT_ISA=sse9 ended with $status, want 2" >&2
  failures=$((failures + 1))
fi

[ "$failures" = 0 ] || exit 1
if [ "${#missing[@]}" != 0 ]; then
  printf 'isa_test: %s is not there\n' "${missing[@]}" >&2
  exit 77
fi
echo "isa_test: ok, $runs runs on ${isas[*]}"
