#!/usr/bin/env python3
"""Mapped files on a fresh volume, on an aged one, and on tmpfs: bandwidth, latency, page faults, TLB misses.

Needs root (it mounts two tmpfs of its own: one of huge pages for the volumes, one of 4 KiB pages),
a C and a C++ compiler, and for the programs liblmdb-dev, librocksdb-dev and libpmemobj-dev
(scripts/setup.sh --tests), without which their rows are missing. Memory: the size of the aged volume and
2.5 GiB. Writes docs/figures/mapped.md and its picture (`make mapped`), or with --json prints the figures."""

import argparse
import contextlib
import datetime
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from measuring import APPS, ROOT, SOLERA, wrapped

AT = "/solera-mapped"
CASES = ROOT / "tests/programs/cases"
PEERS = ["fresh volume", "aged volume", "tmpfs, 4 KiB"]
COLOURS = ["#2e9e5b", "#8a3ea8", "#b8763e"]
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
    m.flush()
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


class Peer:
    """Where a program's files lie: a volume, or a directory."""

    def __init__(self, name, volume, directory):
        self.name, self.volume, self.directory = name, volume, directory
        self.start = min(self.run(["true"])[1] for _ in range(3))

    def run(self, command, prefix=()):
        """What a command says, its page faults (less those of starting any), its seconds."""
        if self.volume:
            command = [SOLERA, "run", "--volume", self.volume, "--at", AT, "--", *command]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        said = output([*prefix, *command])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
        return said, faults - getattr(self, "start", 0), time.monotonic() - begun


def output(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


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


def drivers(work, options):
    """The programs that fill and check a store: name, command, count, arguments."""
    made = []
    for name, source, libraries, count, ways in [
        ("LMDB, fillseqbatch/readrandom", APPS / "lmdb.cc", ["-llmdb"], 500000,
         [("by calls", []), ("WRITEMAP", ["stores"])]),
        ("RocksDB", CASES / "rocksdb.cc", ["-lrocksdb", "-lpthread"], 20000,
         [("mmap reads and writes", ["mmap"])]),
        ("libpmemobj", CASES / "pmdk.cc", ["-lpmemobj"], 20000, [("radix tree in a pool", [])]),
    ]:
        program = work / source.stem
        compiler = ["g++", "-O2", "-std=c++17", "-w", "-o", program, source, *libraries]
        if subprocess.run(compiler, capture_output=True).returncode != 0:
            continue
        for way, more in ways:
            made.append((f"{name}, {way}", [program], count, more))
    made.append(("Python's mmap", [sys.executable, "-c", PYTHON], 100000, []))
    made.append(("SQLite, mmap_size", [sys.executable, "-c", SQLITE], 50000, []))
    return [(label, command, count // options.part, more) for label, command, count, more in made]


def timed(peers, mapped, options):
    """Rounds in turn, so that all meet the same machine; of each figure the best, of lookups the middle round."""
    rounds = {peer.name: [] for peer in peers}
    for _ in range(options.rounds):
        for peer in peers:
            said = {}
            for verb, amount in [("copy", options.mib), ("tree", options.keys), ("stores", 200000 // options.part)]:
                said[verb] = figures(peer.run([mapped, verb, peer.directory, amount], options.prefix.split())[0])
            wrong = said["tree"]["wrong"] + said["stores"]["wrong_whole"] + said["stores"]["wrong_single"]
            assert wrong == 0, f"{peer.name}: wrong bytes"
            rounds[peer.name].append(said)
    found = {}
    for name, all_said in rounds.items():
        trees = sorted((said["tree"] for said in all_said), key=lambda tree: quantile(tree, 0.5))
        copies = [said["copy"] for said in all_said]
        rates = {"first_touch", "write_sequential", "write_random", "read_sequential", "read_random"}
        found[name] = {
            "copy": {key: (max if key in rates else min)(one[key] for one in copies) for key in copies[0]},
            "tree": trees[len(trees) // 2],
            "stores": {key: min(said["stores"][key] for said in all_said) for key in all_said[0]["stores"]},
        }
    return found


def aligned(peer):
    """Of the file that strict overwrites went to, the part in whole aligned chunks, in percent."""
    told = json.loads(output([SOLERA, "map", "--json", f"{peer.volume}:/stores-whole"]))
    return 100 * told["huge_bytes"] / told["size_bytes"]


def programs(peers, work, options):
    found = {}
    for index, (label, command, count, more) in enumerate(drivers(work, options)):
        for peer in peers:
            name = f"{peer.directory}/store-{index}"
            for verb in ["fill", "check"]:
                _, faults, seconds = peer.run([*command, verb, name, 0, count, *more])
                found.setdefault(label, {}).setdefault(verb, {})[peer.name] = (faults, seconds)
            peer.run(["rm", "-rf", name, name + "-lock"])
    return found


def quantile(tree, part):
    """The nanoseconds within which that part of all lookups was done."""
    points = sorted((int(key[3:]), value) for key, value in tree.items() if key.startswith("ns_"))
    return next((nanoseconds for nanoseconds, below in points if below >= part), points[-1][0])


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def picture(found):
    """How many lookups took at most so long, as SVG."""
    most = max(quantile(found[name]["tree"], 0.99) for name in PEERS)
    most = max(1, (most + 499) // 500) * 500
    x = lambda nanoseconds: 50 + min(nanoseconds / most, 1) * 420
    y = lambda part: 230 - part * 200
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 270" font-family="sans-serif" font-size="11">',
             '<rect width="500" height="270" fill="white"/>']
    for part in (0, 0.25, 0.5, 0.75, 1):
        lines.append(f'<line x1="50" x2="470" y1="{y(part)}" y2="{y(part)}" stroke="#ddd"/>'
                     f'<text x="12" y="{y(part) + 4}">{part:.0%}</text>')
    for step in range(0, 5):
        at = most * step // 4
        lines.append(f'<text x="{x(at) - 12:.0f}" y="246">{at}</text>')
    lines.append('<text x="150" y="264">a lookup took at most so many nanoseconds</text>')
    for index, (name, colour) in enumerate(zip(PEERS, COLOURS)):
        tree = found[name]["tree"]
        points = sorted((int(key[3:]) + 10, value) for key, value in tree.items() if key.startswith("ns_"))
        path = " ".join(f"{x(at):.1f},{y(part):.1f}" for at, part in [(points[0][0], 0), *points] if at <= most)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{60 + index * 140}" y="18" fill="{colour}">{name}</text>')
    return "\n".join(lines + ["</svg>", ""])


def rate_rows(found):
    rows = []
    for key, label in [("first_touch", "first touch of all pages, in order"), ("write_sequential", "sequential writes"),
                       ("write_random", "random writes"), ("read_sequential", "sequential reads"),
                       ("read_random", "random reads")]:
        rates = [found[name]["copy"][key] for name in PEERS]
        row = [label + ", MiB/s", *(f"{rate:,.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"]
        rows.append(row)
        rows.append(["page faults meanwhile", *(f"{found[name]['copy']['faults_' + key]:,.0f}" for name in PEERS), ""])
        if "tlb_" + key in found[PEERS[0]]["copy"]:
            missed = [f"{found[name]['copy']['tlb_' + key]:.2f}" for name in PEERS]
            rows.append(["loads that missed the TLB, a page copied", *missed, ""])
    rows.append(["mapped by 2 MiB, %", *(f"{found[name]['copy']['huge_pct']:.0f}" for name in PEERS), ""])
    return rows


def tree_rows(found):
    trees = [found[name]["tree"] for name in PEERS]
    rows = [[f"{part:.2%} within, ns", *(str(quantile(tree, part)) for tree in trees)]
            for part in (0.1, 0.5, 0.9, 0.99, 0.999)]
    rows.append(["page faults meanwhile", *(f"{tree['faults']:.0f}" for tree in trees)])
    if "tlb" in trees[0]:
        rows.append(["loads that missed the TLB, a lookup", *(f"{tree['tlb']:.2f}" for tree in trees)])
    rows.append(["mapped by 2 MiB, %", *(f"{tree['huge_pct']:.0f}" for tree in trees)])
    return rows


def program_rows(kept):
    rows = []
    for label, verbs in kept.items():
        for verb, told in verbs.items():
            faults = [f"{told[name][0]:,}" for name in PEERS]
            seconds = [f"{told[name][1]:.2f}" for name in PEERS]
            rows.append([f"{label}: {verb}", *faults, *seconds])
    return rows


def write(options, kept):
    into = options.out / "mapped"
    into.mkdir(exist_ok=True, parents=True)
    found = kept["timed"]
    (into / "figures.json").write_text(json.dumps(kept, indent=1))
    (into / "lookups.svg").write_text(picture(found))
    counters = ("" if "tlb" in found[PEERS[0]]["tree"] else
                " This machine shows no counter of TLB misses (`perf_event_open`), so there are none here.")
    stores = [["strict overwrite, ns", *(f"{found[name]['stores'][key]:,.0f}" for key in ("ns_whole", "ns_single")
                                         for name in PEERS[:2])]]
    day = datetime.date.today().isoformat()
    text = f"""# Mapped files

What programs see that map their files: on a fresh volume, on one of {options.size} aged to {options.utilisation} by `solera age`
(full churn, seed 1), and on a tmpfs of 4 KiB pages. Written by `{' '.join(['crates/bench/scripts/mapped.py', *sys.argv[1:]])}` ({day}; `make mapped` takes 12 GiB and a file of 1 GiB), {options.rounds} rounds in turn, of each
figure the best. The volumes lie on a tmpfs with `huge=always`.{counters}

## Bandwidth

A new file of {options.mib} MiB, allocated ahead, mapped shared; memcpy of 4 KiB. The last column is the aged volume by the fresh one.

{table(["", *PEERS, "aged / fresh"], rate_rows(found))}

A virtual machine's processor looks addresses up twice: where the host backs the machine by 4 KiB pages (as it did here if the misses of
the volumes are those of tmpfs), its TLB holds 4 KiB entries whatever the guest maps, and a huge page saves a part of each miss, not the miss.

## Lookups

Random lookups in a persistent radix tree ({found[PEERS[0]]['tree']['keys']:,.0f} keys, {found[PEERS[0]]['tree']['MiB']:.0f} MiB, 8 levels) in a new mapped file all of whose pages
were touched before (the dissertation's figure 5.4), the clock's own cost included.

{table(["", *PEERS], tree_rows(found))}

![lookups](mapped/lookups.svg)

## Strict overwrites in whole chunks

Random overwrites of 4 KiB by `pwrite`, mode strict: in a file of whole chunks (in place, under a journal: afterwards
{kept['aligned'][0]:.0f} and {kept['aligned'][1]:.0f} % of it lie in whole chunks) and in one of single blocks (copy-on-write).

{table(["", *(f"{where}, {name.split()[0]}" for where in ("whole chunks", "single blocks") for name in PEERS[:2])], stores)}

## Programs

Page faults of a whole program, less those of starting one, and its seconds (one run each). Each store is filled, and then checked by another process.

{table(["", *(f"faults, {name}" for name in PEERS), *(f"s, {name}" for name in PEERS)], program_rows(kept["programs"]))}
"""
    (options.out / "mapped.md").write_text(wrapped(text))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="12G", help="size of the aged volume; at 90 %% it must have room for --mib")
    parser.add_argument("--aged", type=pathlib.Path, help="take this aged volume, on a tmpfs of huge pages")
    parser.add_argument("--mib", type=int, default=1024, help="size of the mapped file, MiB")
    parser.add_argument("--keys", type=int, default=1000000, help="keys in the radix tree")
    parser.add_argument("--utilisation", default="0.9", help="how full the aged volume is")
    parser.add_argument("--churn", default="38.5", help="creates and deletes a live file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", type=int, default=1, help="only this part of what programs do: 10 for a tenth")
    parser.add_argument("--prefix", default="", help="a command before each timed one (taskset -c 1)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/figures")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        huge = stack.enter_context(tmpfs(work / "huge", "always", "90%"))
        small = stack.enter_context(tmpfs(work / "small", "never", "4G"))
        aged, fresh = options.aged or huge / "aged.pm", huge / "fresh.pm"
        output([SOLERA, "format", "--size", "4G", fresh])
        if not options.aged:
            output([SOLERA, "format", "--size", options.size, aged])
            output([SOLERA, "age", "--utilisation", options.utilisation, "--churn", options.churn, aged])
        output(["cc", "-O2", "-w", "-D_GNU_SOURCE", "-o", work / "mapped", APPS / "mapped.c"])
        peers = [Peer(PEERS[0], fresh, AT), Peer(PEERS[1], aged, AT), Peer(PEERS[2], None, small)]
        kept = {"timed": timed(peers, work / "mapped", options), "aligned": [aligned(peer) for peer in peers[:2]]}
        peers[0].run(["sh", "-c", f"rm -f {AT}/stores-*"])
        peers[1].run(["sh", "-c", f"rm -f {AT}/stores-*"])
        kept["programs"] = programs(peers, work, options)
    if options.json:
        print(json.dumps(kept, indent=1))
    else:
        write(options, kept)


if __name__ == "__main__":
    main()
