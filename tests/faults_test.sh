#!/usr/bin/env bash
# A rank that throws, hangs, exits or is killed, in load, prefill, decode, a training step, a kernel, a collective or at
# the end of a step, first or last, thread or process: the command ends at once with exit code 5 and one message that
# names the rank, where it was and what it did. A slow rank is no fault. usage: faults_test.sh BUILD_FOLDER
set -uo pipefail
exec python3 scripts/check_faults.py "${1:-build}/plait" \
  "${PLAIT_SHARED:-../shared}/data/models/stories260K/stories260K.gguf"
