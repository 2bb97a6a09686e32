#!/usr/bin/env python3
"""Times the calls of a static Go program on a volume (mode strict) and on the tmpfs that the volume lies
on, in turns, and prints the medians and their ratios beside what they are to be at most.

usage: go_calls.py [ROUNDS]     (default 5)
needs: go, target/release/solera
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOLERA = HERE.parents[2] / "target/release/solera"
# Of tmpfs's time.
AT_MOST = {
    "pread 4 KiB": 0.5,
    "pwrite 4 KiB": 2.0,
    "stat": 0.3,
    "open, close": 0.7,
    "create, close, unlink": 0.8,
    "a value there and back, two locked threads": 1.2,
}


def lines(command):
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split("\t") for line in said.splitlines())}


def starts(command):
    """Milliseconds of the processor that a start of this takes, of itself and its children."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1000 * (usage.ru_utime + usage.ru_stime)

    before = used()
    subprocess.run(command, check=True, capture_output=True)
    return used() - before


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        place = Path(place)
        environment = dict(os.environ, CGO_ENABLED="0", GO111MODULE="off", GOFLAGS="", GOTOOLCHAIN="local")
        build = ["go", "build", "-o", place / "calls", HERE / "go_calls.go"]
        subprocess.run(build, check=True, env=environment)
        subprocess.run([SOLERA, "format", "--size", "256M", place / "v.pm"], check=True, capture_output=True)
        (place / "native").mkdir()
        (place / "hello.go").write_text("package main\nfunc main() {}\n")
        subprocess.run(["go", "build", "-o", place / "hello", place / "hello.go"], check=True, env=environment)
        run = [SOLERA, "run", "--volume", place / "v.pm", "--at", place / "pm", "--"]
        native, volume, hello, true = [], [], [], []
        for _ in range(rounds):
            native.append(lines([place / "calls", place / "native"]))
            volume.append(lines([*run, place / "calls", place / "pm"]))
            for _ in range(10):
                true.append(starts([*run, "/bin/true"]))
                hello.append(starts([*run, place / "hello"]))
    print("| a call of a static Go program | tmpfs, ns | volume, ns | ratio | at most |")
    print("|---|---|---|---|---|")
    for name in native[0]:
        [own, other] = [statistics.median(one[name] for one in all) for all in (native, volume)]
        print(f"| {name} | {own:.0f} | {other:.0f} | {other / own:.2f} | {AT_MOST.get(name, '-')} |")
    [empty, alone] = [statistics.median(all) for all in (hello, true)]
    print(f"\nA start of an empty Go program takes {empty:.1f} ms of the processor under `solera run`, of")
    print(f"`/bin/true` {alone:.1f} ms: {empty - alone:+.1f} ms (at most +2).")


main()
