#!/usr/bin/env bash
# Holds every C++ file to .clang-format. `lint.sh --fix` writes the files instead of naming them.
# Exit status: 0 well; 1 a file is laid out otherwise; 2 no clang-format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

how=(--dry-run -Werror)
case "${1:-}" in
  "") ;;
  --fix) how=(-i) ;;
  *) echo "usage: lint.sh [--fix]" >&2; exit 2 ;;
esac
if ! command -v clang-format > /dev/null; then
  echo "lint: clang-format is missing (Debian's package clang-format)" >&2
  exit 2
fi
mapfile -d '' files < <(find plait bench examples fuzz tests \( -name '*.cc' -o -name '*.h' \) -print0 2> /dev/null | sort -z)
[ ${#files[@]} -gt 0 ] || { echo "lint: no C++ files found" >&2; exit 1; }
if ! printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P "$(nproc)" clang-format "${how[@]}"; then
  echo "lint: scripts/lint.sh --fix lays these files out" >&2
  exit 1
fi
echo "lint: ${#files[@]} files"
