"""Holds the order of the rooms of plait/: a file may include only from its own room and from rooms above it here.

usage: check_layers.py ROOT       the folder that has plait/; exit status 1 when an include breaks the order
"""
import pathlib
import re
import sys

ROOMS = ("base tensor mesh placement graph ops models shard schedule plan comm kernels exec io text train serve "
         "cli").split()
# These know tensors and bytes, never the graph, though they stand below it.
BLIND = {"comm": {"graph", "ops", "models", "shard", "schedule", "plan", "placement", "mesh"},
         "kernels": {"graph", "ops", "models", "shard", "schedule", "plan", "placement", "mesh", "comm"}}
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]plait/([^/">]+)(?:/[^">]*)?[">]')


def faults_of(file, root):
    room = file.relative_to(root / "plait").parts[0]
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            used = match.group(1)
            what = None
            for name in (room, used):
                if name not in ROOMS:
                    what = f"no room is called {name}"
            if what is None and used in BLIND.get(room, ()):
                what = f"{room} must not know {used}"
            if what is None and ROOMS.index(used) > ROOMS.index(room):
                what = f"{room} includes {used}, which is below it"
            if what:
                yield f"{file.relative_to(root)}:{number}: {what}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layers.py ROOT")
    root = pathlib.Path(sys.argv[1])
    files = sorted(f for f in (root / "plait").rglob("*") if f.suffix in (".h", ".cc"))
    if not files:
        sys.exit(f"check_layers: no source below {root / 'plait'}")
    faults = [fault for file in files for fault in faults_of(file, root)]
    print("\n".join(faults) if faults else f"check_layers: {len(files)} files keep the order of the rooms")
    sys.exit(1 if faults else 0)


main()
