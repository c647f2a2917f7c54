#!/usr/bin/env bash
# What README.md shows is true: every command line in it runs (or, of commands that measure, is parsed), every option
# exists, every file it names is there. usage: readme_test.sh BUILD_FOLDER
set -euo pipefail
exec python3 scripts/check_readme.py README.md "${1:-build}/plait"
