#!/usr/bin/env python3
"""Programs that meet the hazards of signals, threads, processes, traps and faults, again and again under a
profiler's signal of 1 kHz, dynamic and static: each must say on a volume what it says on tmpfs without
the signal.

usage: scripts/hazards.py [-n COUNT] [--seed SEED] [NAME...]
  COUNT: runs of each program in each form (default 20). NAME: of those below.

A run's seed chooses when the first signal comes; a failure names it. What differs on tmpfs under the
signal, too, is the program's own, and counted apart.
"""

import argparse
import difflib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "crates/preload/tests/c"
BUILT = ROOT / "target/release"
AT = "/solera-hazards"
# What the programs of crates/preload/tests/c with these names are about.
HAZARDS = {
    "signals": "handlers, masks, actions",
    "crossed": "signals at faults",
    "interrupted": "calls that signals end",
    "waits": "calls that wait",
    "trapped": "calls by own instructions",
    "threads": "threads",
    "timers": "timers' threads",
    "least_stacks": "threads with the least stack",
    "small_stack": "handlers on small signal stacks",
    "nested": "handlers that interrupt each other",
    "processes": "forks, execs, spawns",
    "forks": "children of all kinds",
    "beside_forks": "forks beside spawns",
    "control": "control of numbers",
    "numbers_at_once": "numbers that threads share",
    "closed": "numbers that are closed meanwhile",
    "exits": "ends of processes",
    "ends": "ends of threads and processes",
    "sockets": "sockets",
    "mapping": "mappings",
    "holes": "faults in holes",
    "reused": "memory that is mapped anew",
    "fifos": "fifos",
    "messages": "numbers in messages",
    "streams": "streams",
    "pointers": "pointers to nowhere",
    "parked": "numbers that are kept",
}
# As in crates/preload/tests/support: programs that are another thing if they are static.
NEVER_STATIC = {"exits", "forks"}
FORMS = {"dynamic": ["-O2"], "static": ["-O1", "-static"]}
SECONDS_MAX = 60


def compiled(name, form, folder, profiled):
    """Compiles a program, with the signal or without it."""
    program = folder / f"{name}-{form}{'-profiled' if profiled else ''}"
    sources = [SOURCES / f"{name}.c"] + [SOURCES / "profiled.c"] * profiled
    command = ["cc", "-std=gnu17", "-w", "-D_GNU_SOURCE", "-pthread", *FORMS[form], "-o", program, *sources]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return program


def run(program, place, volume, first_us):
    """What a run says, and its end, as text."""
    # Its name is the same in all of them: some programs tell it.
    own = place / program.name.split("-")[0]
    os.link(program, own)
    command, directory = ["timeout", "-k", "5", str(SECONDS_MAX), "env", f"HAZARD_US={first_us}"], place / "here"
    if volume:
        directory = AT
        subprocess.run([BUILT / "solera", "format", "--size", "256M", place / "v.pm"], check=True, stdout=subprocess.DEVNULL)
        command += [f"SOLERA_VOLUME={place / 'v.pm'}", f"SOLERA_AT={AT}", f"LD_PRELOAD={BUILT / 'libsolera_preload.so'}"]
        # The dynamic linker preloads nothing into a static program.
        command += ["env"]
    else:
        directory.mkdir()
    done = subprocess.run([*command, own, directory], text=True, errors="replace", capture_output=True, stdin=subprocess.DEVNULL)
    ended = "" if done.returncode == 0 else f"ended with {done.returncode}\n{done.stderr}"
    return done.stdout + ended


def once(program, volume, seed):
    first_us = random.Random(seed).randrange(1, 1000)
    with tempfile.TemporaryDirectory(prefix="solera-hazards.", dir=program.parent) as place:
        return run(program, Path(place), volume, first_us)


def difference(expected, found):
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", n=0, lineterm="")
    lines = list(lines)
    shown = lines if len(lines) < 16 else [*lines[:8], "...", *lines[-7:]]
    return "\n".join(f"    {line}" for line in shown)


def hazard(name, form, count, seed, folder):
    """Runs a program so often; gives how often it failed."""
    began, failed, own = time.monotonic(), 0, 0
    plain, program = (compiled(name, form, folder, profiled) for profiled in (False, True))
    expected = once(plain, False, seed)
    for turn in range(count):
        found = once(program, True, seed + turn)
        if found == expected:
            continue
        if any(once(program, False, f"{seed + turn}-{again}") != expected for again in range(3)):
            own += 1
            continue
        failed += 1
        if failed <= 3:
            print(f"{name}, {form}: --seed {seed + turn} -n 1\n{difference(expected, found)}", flush=True)
    seconds = time.monotonic() - began
    of_its_own = f", {own} on tmpfs, too" if own else ""
    print(f"{name:16} {form:8} {count} runs, {failed} failed{of_its_own}  {seconds:.0f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=20, help="runs of each program in each form")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the first run")
    parser.add_argument("names", nargs="*", help=", ".join(HAZARDS))
    args = parser.parse_args()
    unknown = set(args.names) - HAZARDS.keys()
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="solera-hazards.", dir="/dev/shm") as folder:
        for name in args.names or HAZARDS:
            for form in FORMS:
                if form != "static" or name not in NEVER_STATIC:
                    failed += hazard(name, form, args.n, args.seed, Path(folder))
    print(f"{failed} failed")
    sys.exit(failed != 0)


main()
