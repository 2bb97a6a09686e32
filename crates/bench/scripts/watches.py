#!/usr/bin/env python3
"""Times changes in directories that are watched by inotify, on a volume (mode strict) and on the tmpfs
that the volume lies on, in turns, and prints the medians and their ratios beside what they are to be at
most.

usage: watches.py [ROUNDS]     (default 9)
needs: cc, target/release/solera
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOLERA = HERE.parents[2] / "target/release/solera"
# Of tmpfs's time.
AT_MOST = {"create, unlink: watched, libuv's events": 1.5, "create, unlink: watched, all events": 1.5}


def lines(command):
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split("\t") for line in said.splitlines())}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        place = Path(place)
        program = place / "watches"
        subprocess.run(["cc", "-O2", "-w", "-D_GNU_SOURCE", "-o", program, HERE / "watches.c"], check=True)
        subprocess.run([SOLERA, "format", "--size", "256M", place / "v.pm"], check=True, capture_output=True)
        (place / "native").mkdir()
        at = place / "pm"
        native, volume = [], []
        for _ in range(rounds):
            native.append(lines([program, place / "native"]))
            volume.append(lines([SOLERA, "run", "--volume", place / "v.pm", "--at", at, "--", program, at]))
    print("| calls | tmpfs, ns | volume, ns | ratio | at most |")
    print("|---|---|---|---|---|")
    for name in native[0]:
        [own, other] = [statistics.median(one[name] for one in all) for all in (native, volume)]
        print(f"| {name} | {own:.0f} | {other:.0f} | {other / own:.2f} | {AT_MOST.get(name, '-')} |")


main()
