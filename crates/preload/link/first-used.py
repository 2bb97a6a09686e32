#!/usr/bin/env python3
"""Writes the list of functions in first.ld: those that a program runs at its start as a child of a program on
a volume, in the order of their first use, then those that such programs run which use nothing of the volume,
then those of a program that attaches it and reads a file.
By hand, when what a start does has changed; a list that is old costs page faults, nothing else.

usage: first-used.py
needs: cc, nm, git, target/release/solera
"""

import bisect
import fnmatch
import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = HERE.parents[2] / "target/release"
LIBRARY, SCRIPT = RELEASE / "libsolera_preload.so", HERE / "first.ld"
# The first is nothing but a start.
PROGRAMS = [
    ["/bin/true"],
    ["/bin/cat", "/etc/passwd"],
    ["/bin/sh", "-c", "cd /tmp; [ -e /etc/passwd ] && echo a > /dev/null; read x < /etc/passwd"],
    ["/bin/ls", "-l", "/etc"],
    ["git", "--version"],
    ["/bin/sh", "-c", "echo > first-used; mv first-used first-used.2; rm first-used.2"],
    ["/bin/cat", "pm/file"],
]
# A pattern of so many functions (of one for each type) and bytes is left out.
COPIES_MAX, BYTES_MAX = 6, 6000


def functions():
    named = subprocess.run(["nm", "-S", LIBRARY], check=True, capture_output=True, text=True).stdout
    words = (line.split() for line in named.splitlines())
    return sorted((int(word[0], 16), int(word[1], 16), word[3]) for word in words if len(word) == 4 and word[2] in "tT")


def pattern(name):
    """Without what differs from build to build."""
    name = re.sub(r"\.llvm\.\d+$", "*", re.sub(r"17h[0-9a-f]{16}E.*$", "17h*", name))
    return re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name) if name.startswith("_R") else name


def main():
    known = functions()
    starts = [start for start, _, _ in known]
    patterns, total = [], 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        place = Path(place)
        steps, volume, out = place / "steps", place / "v.pm", place / "out"
        subprocess.run(["cc", "-O2", "-o", steps, HERE / "steps.c"], check=True)
        solera = RELEASE / "solera"
        subprocess.run([solera, "format", "--size", "64M", volume], check=True, capture_output=True)
        subprocess.run([solera, "cp", HERE / "steps.c", f"{volume}:/file"], check=True, capture_output=True)
        for program in PROGRAMS:
            run = [solera, "run", "--volume", volume, "--at", place / "pm", "--", steps, out, *program]
            subprocess.run(run, check=True, cwd=place, stdout=subprocess.DEVNULL)
            for line in out.read_text().splitlines():
                name = known[bisect.bisect_right(starts, int(line, 16)) - 1][2]
                found = pattern(name)
                if found in patterns or name.startswith((".", "solera_")):
                    continue
                matches = re.compile(fnmatch.translate(found)).match
                sizes = [size for _, size, other in known if matches(other)]
                if len(sizes) <= COPIES_MAX or sum(sizes) <= BYTES_MAX:
                    patterns.append(found)
                    total += sum(sizes)
    text = SCRIPT.read_text()
    head, rest = text.split("    *(.text.solera_*)\n", 1)
    tail = rest[rest.index("  }\n") :]
    lines = "".join(f"    *(.text*.{found})\n" for found in patterns)
    SCRIPT.write_text(head + "    *(.text.solera_*)\n" + lines + tail)
    print(f"{len(patterns)} patterns, {total} bytes")


main()
