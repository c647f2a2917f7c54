#!/usr/bin/env bash
# The order of the rooms, read from the includes: a file of plait/ROOM may include "plait/..." only from its own room
# and from rooms above it in scripts/check_layers.py. Then three planted violations, which the check must find.
set -euo pipefail
check="$(pwd)/scripts/check_layers.py"
python3 "$check" .

copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
plant() { # FILE, INCLUDE, what the check must say
  rm -rf "$copy/plait"
  cp -r plait "$copy/plait"
  mkdir -p "$copy/$(dirname "$1")"
  echo "#include \"$2\"" >> "$copy/$1"
  local line said status=0
  line="$(wc -l < "$copy/$1")"
  said="$(python3 "$check" "$copy" 2>&1)" || status=$?
  if [ "$status" != 1 ] || ! grep -qF "$1:$line: $3" <<< "$said"; then
    echo "layers_test: planted '$2' in $1; the check ended with $status and said: $said" >&2
    exit 1
  fi
}
plant plait/tensor/planted.h plait/graph/graph.h "tensor includes graph, which is below it"
plant plait/kernels/cpu/planted.cc plait/graph/graph.h "kernels must not know graph"
plant plait/comm/local/planted.cc plait/models/config.h "comm must not know models"
plant plait/base/planted.h plait/attic/old.h "no room is called attic"
plant plait/attic/planted.h plait/base/base.h "no room is called attic"
echo "layers_test: ok"
