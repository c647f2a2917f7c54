#!/usr/bin/env bash
# Files that lie, through the program: exit code 4, a message, bounded memory and time. usage: hostile_test.sh BUILD_FOLDER
set -euo pipefail
exec python3 scripts/check_hostile.py "${1:-build}/plait"
