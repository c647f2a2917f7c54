#!/usr/bin/env bash
# Builds the program, fetches a small real model and shows it at work on two ranks. Safe to repeat.
#
#   scripts/demo.sh [PROMPT]
#
# PLAIT_MODEL=FILE runs another model. Exit status: 0 well; 1 the build failed or ranks differ; 2 set-up: a package or
# the model cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prompt="${1:-Explain in two sentences why the sky is blue.}"

step() { printf '\n== %s\n' "$*"; }
show() { # the command as a person would type it, then what it does
  printf '$ plait'
  printf ' %q' "$@" | sed "s|$(printf %q "$HOME")|~|g"
  printf '\n\n'
  build/plait "$@"
}

step "Packages"
scripts/setup.sh build

step "Model"
model="$(scripts/fetch_model.sh)"
echo "$model"

step "Build"
options=()
if [ ! -f build/CMakeCache.txt ]; then # a folder that builds the tests goes on building them
  options=(-DPLAIT_TESTS=OFF -DPLAIT_BENCH=OFF)
  if command -v ccache > /dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
fi
cmake --preset release "${options[@]}" > /dev/null
NINJA_STATUS='[%f/%t, %e s] ' cmake --build --preset release --target plait

step "Two ranks write text together"
show generate "$model" -tp 2 --chat -p "$prompt" -n 96

step "One rank and two ranks give the same bits"
show verify "$model" -tp 2 || {
  echo "demo: the ranks differ, or the comparison could not run (above)" >&2
  exit 1
}

step "Next"
cat << END
  build/plait generate $model -tp 3 --chat -p "..."     any number of ranks up to the query heads
  build/plait explain $model -tp 3                      what lies where, before a run
  build/plait bench $model -tp 1,2                      tokens/s and where the time goes
  build/plait --help
END
