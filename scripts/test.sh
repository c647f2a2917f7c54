#!/usr/bin/env bash
# Sets up, checks the files, builds everything with warnings as errors and runs all tests, then the fast ones under
# sanitizers and each fuzzer for 20 seconds. Safe to repeat: packages, model and objects that are there are used again.
#
#   scripts/test.sh [ctest options]      e.g. scripts/test.sh -R comm: those tests and nothing after them
#
# Exit status: 0 all passed; 1 a test, the build or a check failed; 2 set-up: a package or the model cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { echo; echo "== $*"; }

step "Packages"
scripts/setup.sh test

step "Model"
model="$(scripts/fetch_model.sh)"
echo "$model"
scripts/fetch_model.sh gemma3-270m || echo "tests of Gemma 3 will be skipped"

step "Lint"
scripts/lint.sh

step "Build"
# The same objects for a checkout in any folder.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$(pwd)}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
options=(-DPLAIT_TESTS=ON -DPLAIT_BENCH=ON -DPLAIT_WERROR=ON)
# In a new folder only: another launcher would build every object again.
if [ ! -f build/CMakeCache.txt ] && command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset release "${options[@]}" > /dev/null
cmake --build --preset release || { echo "test: the build failed" >&2; exit 1; }

step "Tests"
report="$(pwd)/build/tests.xml"
log=build/tests.log
rm -f "$report"
status=0
ctest --test-dir build -j "$(nproc)" --output-on-failure --no-tests=error --output-junit "$report" "$@" 2>&1 |
  tee "$log" || status=1

step "Skipped"
python3 scripts/skipped_tests.py "$report" || status=1

if [ $# -eq 0 ]; then
  step "Sanitizers"
  scripts/sanitize.sh || status=1
  step "Fuzzing"
  scripts/fuzz.sh 20 || status=1
fi

# The closing words are ctest's own.
step "Summary"
sed -n '/tests passed, .*tests failed/,/^Total Test time/p' "$log"
exit "$status"
