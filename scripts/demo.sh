#!/usr/bin/env bash
# Builds the program, fetches a small real model and shows it at work on two ranks. Safe to repeat.
#
#   scripts/demo.sh [PROMPT]
#
# PLAIT_MODEL=FILE runs another model. Exit status: 0 well; 1 the build failed or ranks differ; 2 set-up: a package or
# the model cannot be had; else that of plait.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prompt="${1:-Why is the sky blue?}"

step() { printf '\n== %s\n' "$*"; }
show() { # the command as a person would type it, then what it does
  local line="" word
  for word in "${@/#$HOME\//\~/}"; do
    case "$word" in
      *[!A-Za-z0-9_./~=,-]*) line+=" \"$word\"" ;;
      *) line+=" $word" ;;
    esac
  done
  printf '$ build/plait%s\n\n' "$line"
  build/plait "$@"
}

step "Packages"
scripts/setup.sh build

step "Model"
model="$(scripts/fetch_model.sh)"
echo "$model"

step "Build"
options=()
# In a new folder only: another launcher would build every object again.
if [ ! -f build/CMakeCache.txt ] && command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset release "${options[@]}" > /dev/null
NINJA_STATUS='[%f/%t, %e s] ' cmake --build --preset release --target plait

step "Two ranks write text together"
show generate "$model" -tp 2 --chat -p "$prompt" -n 80

step "One rank and two ranks give the same bits"
show verify "$model" -tp 2

step "Next"
cat << END
build/plait generate MODEL -tp 3 --chat     any number of ranks up to the query heads; the prompt from standard input
build/plait explain MODEL -tp 3             what lies where and what crosses ranks, before a run
build/plait bench MODEL -tp 1,2             tokens/s and where the time goes
build/plait --help

MODEL is a GGUF file, a Hugging Face folder, or a name in the cache such as $(basename "$model" .gguf).
END
