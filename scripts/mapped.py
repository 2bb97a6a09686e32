#!/usr/bin/env python3
"""Mapped files on a fresh volume, on an aged one, and on tmpfs: bandwidth, latency, page faults.

Needs root (it mounts two tmpfs of its own: one of huge pages for the volumes, one of 4 KiB pages),
a C and a C++ compiler, and for the programs liblmdb-dev, librocksdb-dev and libpmemobj-dev, which it does
without where they are not. Prints tables; --json the figures."""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOLERA = ROOT / "target/release/solera"
AT = "/solera-mapped"
CASES = ROOT / "tests/programs/cases"
PYTHON = """
import mmap, os, sys
name, verb, count = sys.argv[2], sys.argv[1], int(sys.argv[4])
size = 64 << 20
if verb == "fill":
    with open(name, "w+b") as f: f.truncate(size)
with open(name, "r+b") as f, mmap.mmap(f.fileno(), size) as m:
    for n in range(count):
        at = n * 7919 % (size // 64) * 64
        if verb == "fill": m[at:at + 8] = n.to_bytes(8, "little")
        else: assert int.from_bytes(m[at:at + 8], "little") == n
"""
SQLITE = """
import sqlite3, sys
verb, name, count = sys.argv[1], sys.argv[2], int(sys.argv[4])
db = sqlite3.connect(name)
db.execute("pragma mmap_size = 268435456")
if verb == "fill":
    db.execute("create table t (k integer primary key, v text)")
    db.executemany("insert into t values (?, ?)", ((n, "v" * 500 + str(n)) for n in range(count)))
    db.commit()
else:
    for n in range(count):
        k = n * 7919 % count
        assert db.execute("select v from t where k = ?", (k,)).fetchone()[0].endswith("v" + str(k))
"""


def run(command, volume=None):
    """What a command says, and the page faults of it and its children."""
    if volume:
        command = [SOLERA, "run", "--volume", volume, "--at", AT, "--", *command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


def figures(said):
    return {name: float(value) for name, value in (line.split() for line in said.splitlines())}


@contextlib.contextmanager
def tmpfs(at, huge, size):
    at.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"huge={huge},size={size}", "none", at], check=True
    )
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def drivers(work):
    """The programs that fill and check a store: name, command, count."""
    made = []
    for name, source, libraries, ways in [
        ("LMDB", "lmdb.cc", ["-llmdb"], ["calls", "stores"]),
        ("RocksDB", "rocksdb.cc", ["-lrocksdb", "-lpthread"], ["mmap"]),
        ("PMDK radix tree", "pmdk.cc", ["-lpmemobj"], [None]),
    ]:
        program = work / name.replace(" ", "-")
        compiler = ["g++", "-O1", "-std=c++17", "-w", "-o", program, CASES / source, *libraries]
        if subprocess.run(compiler, capture_output=True).returncode != 0:
            continue
        for way in ways:
            label = name + (f", {way}" if len(ways) > 1 else "")
            made.append((label, [program], 20000, [way] if way else []))
    made.append(("Python mmap", [sys.executable, "-c", PYTHON], 20000, []))
    made.append(("SQLite mmap_size", [sys.executable, "-c", SQLITE], 50000, []))
    return made


def measure(peer, directory, volume, work, options):
    found = {}
    mapped = work / "mapped"
    for verb, amount in [("copy", options.mib), ("tree", options.keys)]:
        said, _ = run([mapped, verb, directory, amount], volume)
        found[verb] = figures(said)
    assert found["tree"]["wrong"] == 0, "a lookup found another key"
    for label, command, count, way in drivers(work):
        name = f"{directory}/{label.split()[0].strip(',')}-{peer.split()[0]}-{''.join(way)}"
        for verb in ["fill", "check"]:
            _, faults = run([*command, verb, name, 0, count, *way], volume)
            found.setdefault("programs", {}).setdefault(label, {})[verb] = faults
    return found


def table(title, rows, peers):
    print(f"\n{title}\n")
    print("| | " + " | ".join(peers) + " |")
    print("|---" * (len(peers) + 1) + "|")
    for name, values in rows:
        print(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in values) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="8G", help="size of the volumes")
    parser.add_argument("--mib", type=int, default=512, help="size of the mapped file, MiB")
    parser.add_argument("--keys", type=int, default=200000, help="keys in the radix tree")
    parser.add_argument("--utilisation", default="0.9", help="how full the aged volume is")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    all_found = {}
    with contextlib.ExitStack() as stack:
        base = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work = base / "work"
        work.mkdir()
        subprocess.run(
            ["cc", "-O2", "-w", "-D_GNU_SOURCE", "-o", work / "mapped", ROOT / "scripts/apps/mapped.c"],
            check=True,
        )
        for peer in ["fresh volume", "aged volume", "tmpfs, 4 KiB pages"]:
            if peer.startswith("tmpfs"):
                with tmpfs(base / "small", "never", "4G") as place:
                    all_found[peer] = measure(peer, place, None, work, options)
                continue
            with tmpfs(base / "huge", "always", "10G") as place:
                volume = place / "v.pm"
                run([SOLERA, "format", "--size", options.size, volume])
                if peer.startswith("aged"):
                    run([SOLERA, "age", "--utilisation", options.utilisation, volume])
                all_found[peer] = measure(peer, AT, volume, work, options)
            os.rmdir(base / "huge")
    if options.json:
        print(json.dumps(all_found, indent=1))
        return
    peers = list(all_found)
    for kind, title in [
        ("copy", f"A new file of {options.mib} MiB, memcpy of 4 KiB (MiB/s, best of 5), and its faults"),
        ("tree", "Lookups in a radix tree whose pages were touched before (ns)"),
    ]:
        names = list(all_found[peers[0]][kind])
        table(title, [(name, [all_found[p][kind][name] for p in peers]) for name in names], peers)
    rows = [
        (f"{label}, {verb}", [all_found[p]["programs"][label][verb] for p in peers])
        for label in all_found[peers[0]]["programs"]
        for verb in ["fill", "check"]
    ]
    table("Page faults of whole programs, their start included", rows, peers)


if __name__ == "__main__":
    main()
