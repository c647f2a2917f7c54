#!/usr/bin/env bash
# Installs the Debian packages that building (`setup.sh build`) or building and testing (`setup.sh test`) needs and
# that are not there. Says nothing and changes nothing when all are. docs/dependencies.md tells what each is for.
#
# As root apt is called as it is, else through sudo; where there is no sudo, the line to run is printed.
# Exit status: 0 all there; 2 something is missing and could not be installed.
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libpcre2-dev
       libxxhash-dev libutf8proc-dev python3 python3-pip ca-certificates)
test=(libgtest-dev libgmock-dev clang-format ccache clang libclang-rt-14-dev)

case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  *) echo "usage: setup.sh [build|test]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "setup: not a Debian system, so nothing is installed; needed are what Debian calls ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  status="$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null || true)"
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
as_root=()
if [ "$(id -u)" != 0 ]; then
  # Without a terminal sudo cannot ask for a password.
  if ! command -v sudo > /dev/null || { [ ! -t 0 ] && ! sudo -n true 2> /dev/null; }; then
    echo "setup: Debian packages are missing. Run this as root, then start again:" >&2
    echo "  $line" >&2
    exit 2
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}" >&2
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" > "$log" 2>&1 < /dev/null; }
if ! apt update || ! apt install -y --no-install-recommends "${missing[@]}"; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get failed (above). When that is mended, as root:" >&2
  echo "  $line" >&2
  exit 2
fi
