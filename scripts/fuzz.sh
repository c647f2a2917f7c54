#!/usr/bin/env bash
# Builds the fuzzers (fuzz/, clang with ASan and UBSan) and runs each for some seconds, two at a time.
#
#   scripts/fuzz.sh [SECONDS] [PARSER...]      20 seconds and every parser without them; e.g. scripts/fuzz.sh 900 gguf
#
# Inputs that were found of use are kept in build-fuzz/corpus/PARSER and begin the next run. An input that crashes, takes
# longer than a second or more than 300 MB is left in build-fuzz/findings/PARSER, its report in build-fuzz/PARSER.log:
# build-fuzz/fuzz_PARSER FILE shows it again.
# Exit status: 0 well; 1 the build failed or something was found; 2 no clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds="${1:-20}"
shift || true
if ! command -v clang++ > /dev/null; then
  echo "fuzz: clang++ is missing (Debian's packages clang and libclang-rt-14-dev)" >&2
  exit 2
fi

options=()
if [ ! -f build-fuzz/CMakeCache.txt ] && command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset fuzz "${options[@]}" > /dev/null
cmake --build --preset fuzz || { echo "fuzz: the build failed" >&2; exit 1; }
rm -rf build-fuzz/seeds build-fuzz/findings
build-fuzz/fuzz_seeds build-fuzz/seeds

run() {
  local parser="$1" seconds="$2" dir=build-fuzz
  mkdir -p "$dir/corpus/$parser" "$dir/findings/$parser"
  "$dir/fuzz_$parser" -max_total_time="$seconds" -timeout=1 -rss_limit_mb=300 -max_len=65536 -seed=1 -print_final_stats=1 \
    -artifact_prefix="$dir/findings/$parser/" "$dir/corpus/$parser" "$dir/seeds/$parser" > "$dir/$parser.log" 2>&1
  local status=$?
  printf '%-12s %s executions, coverage %s%s\n' "$parser" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/$parser.log")" \
    "$(grep -o 'cov: [0-9]*' "$dir/$parser.log" | tail -n 1 | cut -d' ' -f2)" \
    "$([ $status = 0 ] || echo ", FOUND: see $dir/$parser.log")"
  return $status
}
export -f run
export ASAN_OPTIONS=quarantine_size_mb=16 # else it alone fills the limit
parsers=("$@")
[ ${#parsers[@]} -gt 0 ] || mapfile -t parsers < <(ls build-fuzz/seeds)
printf '%s\n' "${parsers[@]}" | xargs -P 2 -I {} bash -c "run {} $seconds" || exit 1
