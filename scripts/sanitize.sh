#!/usr/bin/env bash
# Builds the tests with sanitizers and runs the fast ones: address and undefined behaviour in every room, data races in
# the rooms that have threads. Safe to repeat.
#
#   scripts/sanitize.sh [asan | tsan]      both without an argument
#
# Exit status: 0 clean; 1 the build failed, or a test, or a sanitizer found something; 2 usage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# More than some seconds under a sanitizer, and of code that faster tests run too.
slow='Matmul.(EveryInstruction|LongSums)|Attention.Prefill|FusedKernels.(Activations|Sums)|Layouts.LlamaF64|EqualsPyTorch|SmolLM2|smollm2|Gemma3\.|Stories'
# Of time and memory that a sanitizer takes too, or of signals that it handles itself.
slow+='|Processes.(KilledInACollective|ExitWithoutAWord|TheFirstRankIsKilled)|Stress.MoreRanksThanCores'
slow+='|MappedFileDeathTest|JsonText.memory_is_bounded'

check() { # PRESET [ROOM...]: those rooms, or all
  local preset=$1 launcher=() targets=(room_tests) rooms=.
  shift
  if [ $# -gt 0 ]; then
    targets=("${@/%/_test}")
    rooms="^($(IFS='|' && echo "$*"))\$"
  fi
  if [ ! -f "build-$preset/CMakeCache.txt" ] && command -v ccache > /dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake --preset "$preset" "${launcher[@]}" > /dev/null &&
    cmake --build --preset "$preset" --target "${targets[@]}" &&
    ctest --test-dir "build-$preset" -L "$rooms" -E "$slow" -j "$(nproc)" --output-on-failure --no-tests=error
}

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$(pwd)}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=atexit_sleep_ms=0 PLAIT_FUZZ_PLANS=10
status=0
case "${1:-}" in
  "") check asan || status=1 ;;&
  "" | tsan) check tsan comm kernels exec train serve || status=1 ;;
  asan) check asan || status=1 ;;
  *) echo "usage: sanitize.sh [asan | tsan]" >&2; exit 2 ;;
esac
exit $status
