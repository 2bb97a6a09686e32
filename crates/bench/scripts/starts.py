#!/usr/bin/env python3
"""Times programs from their start to their end, as children of a program on a volume (mode strict) and of
the same program natively, in turns, and prints the medians, what they take more, and what that is to be at
most.

usage: starts.py [ROUNDS [STARTS]]     (default 9 rounds of 300 starts)
needs: cc, target/release/solera
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOLERA = HERE.parents[2] / "target/release/solera"
# Microseconds more.
AT_MOST = {
    "a child that does nothing": 60,
    "a child that opens one file": 200,
    "a child of a shell that works there": 60,
    "true by `solera run`": 1200,
}
OPENS = """
#include <fcntl.h>
#include <stdlib.h>
int main(void) { return open(getenv("FILE"), O_RDONLY) < 0; }
"""


def micros(words, **options):
    said = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options)
    return float(said.stdout) / 1e3


def commands(starts, words):
    begun = time.perf_counter()
    for _ in range(starts):
        subprocess.run([str(word) for word in words], check=True)
    return (time.perf_counter() - begun) / starts * 1e6


def main():
    given = [int(word) for word in sys.argv[1:]]
    rounds, starts = (given + [9, 300][len(given):])[:2]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        place = Path(place)
        program, opens, at = place / "processes", place / "opens", place / "pm"
        subprocess.run(["cc", "-O2", "-o", program, HERE.parent / "apps/processes.c"], check=True)
        subprocess.run(["cc", "-O2", "-x", "c", "-o", opens, "-"], input=OPENS, text=True, check=True)
        subprocess.run([SOLERA, "format", "--size", "256M", place / "v.pm"], check=True, capture_output=True)
        (place / "native").mkdir()
        run = [SOLERA, "run", "--volume", place / "v.pm", "--at", at, "--"]
        for words, directory in ([], place / "native"), (run, at):
            subprocess.run([*words, "sh", "-c", f"echo text > {directory}/file"], check=True)
        times = {name: ([], []) for name in AT_MOST}
        for _ in range(rounds):
            for number, (words, directory) in enumerate((([], place / "native"), (run, at))):
                many = [*words, program, "--starts", starts]
                shell = [*words, "sh", "-c", f"cd {directory}; cat file > copy; exec {program} --starts {starts} /bin/true"]
                found = [
                    micros([*many, "/bin/true"]),
                    micros([*many, f"FILE={directory}/file", opens]),
                    micros(shell),
                    commands(max(starts // 10, 1), [*words, "/bin/true"]),
                ]
                for name, value in zip(times, found):
                    times[name][number].append(value)
    print("| from start to end | native, us | on a volume, us | more | at most |")
    print("|---|---|---|---|---|")
    for name, both in times.items():
        native, volume = (statistics.median(one) for one in both)
        print(f"| {name} | {native:.0f} | {volume:.0f} | {volume - native:+.0f} | +{AT_MOST[name]} |")


main()
