#!/usr/bin/env python3
"""Waits beside forks: `make forks`. Eight threads allocate 1 to 64 MiB, flush all streams and free, another forks
again and again: on a kernel file system and, with `solera run`, on a volume, in turns.

For each step, how long it took: p50, p99, p99.9 and the longest, us, and how often more than 1 ms, of a
million. "awake" is the same without the time in which a thread could have run and had no processor
(nine threads share those of the machine); it still has the waits for locks whose holder had none.
"""
import argparse, collections, pathlib, subprocess, sys, tempfile

from measuring import AT, ROOT, SOLERA

PROGRAM = ROOT / "crates/preload/tests/c/forks_beside.c"
PARTS = 16
LONG_US = 1000
COLUMNS = "{:14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>12}"


def lowest_us(bucket):
    """The least time that the program counts in a bucket."""
    if bucket < PARTS:
        return bucket / 1000
    power, part = bucket // PARTS + 3, bucket % PARTS
    return ((PARTS + part) << (power - 4)) / 1000


def counted(text):
    """What the program tells: for each step how often it fell into which bucket."""
    found = {}
    for line in text.splitlines():
        name, *pairs = line.split()
        if pairs and all(":" in pair for pair in pairs):
            found[name] = collections.Counter({int(at): int(count) for at, count in (pair.split(":") for pair in pairs)})
    return found


def row(counts):
    all_of_them = sum(counts.values())
    cells, passed = [], 0
    wanted = [all_of_them * part for part in (0.5, 0.99, 0.999)]
    for bucket in sorted(counts):
        passed += counts[bucket]
        while wanted and passed >= wanted[0]:
            cells.append(f"{lowest_us(bucket):.1f}")
            wanted.pop(0)
    longest = lowest_us(max(counts))
    long = sum(count for bucket, count in counts.items() if lowest_us(bucket) >= LONG_US)
    return [all_of_them, *cells, f"{longest:.0f}", f"{long * 1e6 / all_of_them:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=2000, help="in each round (default 2000)")
    parser.add_argument("--rounds", type=int, default=5, help="of each of the two (default 5)")
    args = parser.parse_args()
    found = {"plain": {}, "volume": {}}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        scratch = pathlib.Path(scratch)
        program, volume = scratch / "forks_beside", scratch / "v.pm"
        subprocess.run(["cc", "-std=gnu17", "-w", "-O1", "-D_GNU_SOURCE", "-pthread", "-o", program, PROGRAM], check=True)
        subprocess.run([SOLERA, "format", "--size", "256M", volume], check=True, stdout=subprocess.DEVNULL)
        for turn in range(args.rounds):
            for place in found:
                directory = scratch / f"plain-{turn}" if place == "plain" else pathlib.Path(AT) / f"round-{turn}"
                before = [] if place == "plain" else [SOLERA, "run", "--volume", volume, "--at", AT, "--"]
                subprocess.run([*before, "mkdir", directory], check=True)
                done = subprocess.run([*before, program, directory, str(args.forks), "times"], text=True, check=True,
                                      capture_output=True)
                if "failures = 0\n" not in done.stdout:
                    sys.exit(f"{place}: {done.stdout}")
                for name, counts in counted(done.stderr).items():
                    found[place][name] = found[place].get(name, collections.Counter()) + counts
    print(f"{args.rounds} rounds of {args.forks} forks each; us")
    print(COLUMNS.format("step", "count", "p50", "p99", "p99.9", "longest", "> 1 ms, ppm"))
    for name in found["plain"]:
        for place, of_place in found.items():
            print(COLUMNS.format(name if place == "plain" else "  on a volume", *row(of_place[name])))


main()
