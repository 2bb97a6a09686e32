#!/usr/bin/env python3
"""Writes docs/figures/split.md: `solera run --split` beside the kernel alone: `make split` (as root, minutes).

Single calls come from `solera bench split`. Whole programs run on tmpfs, ext4 and XFS (made with
exchange-range, if mkfs.xfs knows it; both in files of a tmpfs, by loop devices), in a mount namespace
of this script's own: with the kernel alone and with the engine in posix mode, which promises the same,
in turns; medians count. With --quick everything is smaller: to see that it works, not for figures.
"""
import argparse, contextlib, datetime, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile

import measuring
from measuring import wrapped

MOUNTED = "SOLERA_SPLIT_BENCH"

# What each row was aimed at: at most so many times what it is compared with.
LIMITS = {"read 4K sequential": 1.25, "read 4K random": 1.25, "read 64K sequential": 1.25,
          "overwrite 4K sequential": 1.3, "overwrite 4K random": 1.3, "append 4K": 1.3}
KERNELS = {"open": 1.1, "close": 1.1, "unlink": 1.1, "open+close": 1.1, "create+close+unlink": 1.1,
           "rename": 1.1, "stat": 1.1, "append 4K, fsync": 1, "append 4K, fsync every 10": 1,
           "append 4K, fsync every 100": 1, "append 4K, fsync every 1000": 1}
EQUAL = 1.05
PROGRAMS = {"redis AOF always, set": 0.77, "sqlite WAL FULL insert": 0.77,
            "sqlite TPC-C-like, a transaction": 0.77, "ycsb load A": 0.77,
            "ycsb run A: half updates": 0.77, "ycsb run F: read and update": 0.77,
            "leveldb fillrandom sync": 0.77, "leveldb fillseq": 0.77, "untar, a file": 1.1,
            "tar, a file": 1.1, "git add + commit, a file": 1.1, "rsync, a file": 1.1}

# Appends `sys.argv[2]` blocks, two by two, and makes them durable, `sys.argv[3]` times.
APPENDER = """import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(int(sys.argv[3])):
    for _ in range(int(sys.argv[2]) // 2):
        os.write(file, b"x" * 8192)
    os.fsync(file)
os.close(file)"""

# What the paper says: table 4.5 (microseconds on Optane), and the text beside its figures.
PAPER_CALLS = """| us | open | close | append | fsync | read 16K | unlink |
|---|---|---|---|---|---|---|
| SplitFS strict | 2.09 | 0.78 | 3.14 | 6.85 | 4.57 | 14.60 |
| SplitFS sync | 2.08 | 0.69 | 3.09 | 6.80 | 4.53 | 13.56 |
| SplitFS posix | 1.82 | 0.69 | 2.84 | 6.80 | 4.53 | 14.33 |
| ext4 DAX | 1.54 | 0.34 | 11.05 | 28.98 | 5.04 | 8.60 |"""
PAPER_PATTERNS = """In the paper (SplitFS posix over ext4 DAX) sequential reads take at least 27 %
less time, appends up to 7.85 times less; overwrites are more than 2 times as fast by the split
alone, appends about 2 times by staging and 5 times by relinks. Behind this page lies no DAX: the
kernel's side is its page cache, which takes writes far faster than ext4 DAX does."""
PAPER_APPS = """In the paper data-intensive programs (YCSB on LevelDB, TPC-C on SQLite, Redis) are up
to 2.7 times as fast, metadata-intensive ones (git, tar, rsync) a little slower."""


def image(kind, base, size):
    """A file system in a file, mounted; `False`: not with these tools."""
    path, at = base / f"{kind}.image", base / kind
    with open(path, "wb") as file:
        file.truncate(size)
    makes = {"ext4": [["mkfs.ext4", "-qF"]],
             "xfs": [["mkfs.xfs", "-qf", "-i", "exchange=1"], ["mkfs.xfs", "-qf"]]}[kind]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    made = next((make for make in makes if subprocess.run([*make, path], **quiet).returncode == 0), None)
    if not made:
        return False
    exchange, mount = measuring.ROOT / "scripts/exchange-range", ["mount", "-o", "loop", path, at]
    if kind == "xfs":
        subprocess.run([exchange, "on", path], **quiet)
        if subprocess.run(mount, **quiet).returncode == 0:
            return True
        print("xfs without exchange-range: this kernel refuses it", file=sys.stderr)
        subprocess.run([exchange, "off", path], **quiet)
    return subprocess.run(mount).returncode == 0


def places(base, options):
    for kind in ("tmpfs", "ext4", "xfs"):
        at = base / kind
        at.mkdir()
        if kind != "tmpfs" and not image(kind, base, 2 << 30):
            print(f"without {kind}: it cannot be made and mounted here", file=sys.stderr)
            continue
        for name in ("kernel", "split"):
            (at / name).mkdir()
        engine = [measuring.SOLERA, "run", "--split", at / "split", "--"]
        yield kind, [measuring.Place("kernel", at / "kernel", []),
                     measuring.Place("split", at / "split", engine)]


def shell(row, command, files):
    """A job: a shell's command in a new directory; nanoseconds a file."""
    return lambda place, scratch: {
        row: measuring.timed(place, command.format(scratch=scratch), place.fresh()) / files * 1000}


def jobs(scratch, options):
    """What runs: functions of a place, and rows with their times."""
    scale = 10 if options.quick else 1
    found = [lambda place, scratch: measuring.redis(place, scratch, 10000 // scale)]
    counts = {"sqlite": (10000, "sqlite.c"), "tpcc": (4000, "tpcc.c"), "ycsb": (60000, "ycsb.cc"),
              "leveldb": (20000, "leveldb.cc")}
    for name, (count, source) in counts.items():
        compiler = ["c++", "-O2"] if source.endswith("cc") else ["cc", "-O2"]
        library = "-lleveldb" if source.endswith("cc") else "-lsqlite3"
        words = [*compiler, "-o", scratch / name, measuring.APPS / source, library]
        if subprocess.run(words, stderr=subprocess.DEVNULL).returncode != 0:
            print(f"without {name}: it does not compile here", file=sys.stderr)
            continue
        found.append(lambda place, scratch, name=name, count=count // scale:
                     measuring.told(place.run(scratch / name, place.fresh(), count)))
    tree, files = scratch / "tree", 1000 if options.quick else 6000
    for index in range(files):
        path = tree / f"d{index // 100}" / f"f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (index * 37 % 8192))
    measuring.run("tar", "cf", scratch / "tree.tar", "-C", tree, ".")
    found += [shell("untar, a file", "tar xf {scratch}/tree.tar", files),
              shell("tar, a file", "tar cf all.tar -C {scratch}/tree .", files),
              shell("git add + commit, a file",
                    "git init -q . && cp -r {scratch}/tree . && git add -A && "
                    "git -c user.name=b -c user.email=b commit -qm b", files)]
    if shutil.which("rsync"):
        found.append(shell("rsync, a file", "rsync -a {scratch}/tree/ copy/", files))
    return found


def relinks(kind, place, scratch, options):
    """What relinks of each kind cost, of runs of so many blocks: bytes copied and nanoseconds an fsync."""
    rows = []
    for way in {"ext4": ["copy"], "xfs": ["exchange", "clone", "copy"]}.get(kind, []):
        for blocks in (2, 10, 100):
            report, syncs = scratch / "relinks", 20 if options.quick else 200
            report.unlink(missing_ok=True)
            # Everything is staged: else short runs go to the kernel, as appends within a page do.
            words = [f"SOLERA_REPORT={report}", f"SOLERA_SPLIT_RELINK={way}", "SOLERA_SPLIT_PATIENCE=0"]
            file = f"{place.fresh()}/file"
            place.run("env", *words, sys.executable, "-c", APPENDER, file, blocks, syncs)
            counts = {line.split()[1]: int(line.split()[0]) for line in report.read_text().splitlines()
                      if line.endswith("resource")}
            assert counts.get(f"relinks-by-{way}", 0) >= syncs, (kind, way, counts)
            rows.append((kind, way, blocks, counts["bytes-copied-by-relinks"] / syncs,
                         counts["nanoseconds-in-relinks"] / syncs))
    return rows


def apps(scratch, options):
    """Times by file system, row and place; and what relinks cost."""
    base = scratch / "memory"
    base.mkdir()
    measuring.run("mount", "-t", "tmpfs", "-o", "size=6g,huge=never", "tmpfs", base)
    times, costs = {}, []
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-R", base])
        all_jobs = jobs(scratch, options)
        for kind, peers in places(base, options):
            rows = times.setdefault(kind, {})
            costs += relinks(kind, peers[-1], scratch, options)
            for round in range(options.repeat + 1):
                for job in all_jobs:
                    for place in peers:
                        for row, value in job(place, scratch).items():
                            # Round 0 warms up.
                            if round > 0:
                                rows.setdefault(row, {}).setdefault(place.name, []).append(value)
                for place in peers:
                    for made in pathlib.Path(place.directory).glob("run*"):
                        shutil.rmtree(made)
    return times, costs


def aimed(ratio, target):
    """Whether a ratio is at most what was aimed at, as both are printed."""
    return measuring.mark(ratio, round(ratio, 2) <= target)


def relink_table(costs):
    lines = ["| file system | by | blocks of 4 KiB an fsync | bytes copied an fsync | ns in the relink |",
             "|---|---|---|---|---|"]
    lines += [f"| {kind} | {way} | {blocks} | {copied:,.0f} | {took:,.0f} |"
              for kind, way, blocks, copied, took in costs]
    return "\n".join(lines)


def app_table(rows):
    lines = ["| ns (spread) | kernel | split, posix | target, x kernel | reached |", "|---|---|---|---|---|"]
    ratios = []
    for row, found in rows.items():
        cells, middles = [], []
        for name in ("kernel", "split"):
            values = found[name]
            middles.append(statistics.median(values))
            spread = (max(values) - min(values)) * 100 / middles[-1]
            cells.append(f"{middles[-1]:,.0f} ({spread:.0f} %)")
        ratios.append((row, middles[1] / middles[0]))
        target, ratio = PROGRAMS.get(row), ratios[-1][1]
        reached = aimed(ratio, target) if target else f"{ratio:.2f}"
        lines.append(f"| {row} | {cells[0]} | {cells[1]} | {target or '-'} | {reached} |")
    return "\n".join(lines), ratios


def call_table(rows, names, ratios):
    head = ["ns a call (spread)", *names, *(f"{name} / {over}" for name, over in ratios)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        peers = row["peers"]
        cells = [row["row"]]
        cells += [f'{peers[name]["ns"]:,.0f} ({peers[name]["spread_percent"]:.0f} %)'
                  if name in peers else "-" for name in names]
        for name, over in ratios:
            if name not in peers or over not in peers:
                cells.append("-")
                continue
            ratio = peers[name]["ns"] / peers[over]["ns"]
            target = {"kernel": KERNELS if name == "posix" else {},
                      "limit": LIMITS if name != "kernel" else {}}[over].get(row["row"])
            cells.append(aimed(ratio, target) if target else f"{ratio:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def calls(size, options):
    words = [measuring.SOLERA, "bench", "split", "--json", "--repeat", options.repeat, "--size",
             "16M" if options.quick else size]
    return json.loads(measuring.run(*words))["file_systems"]


def large_table(rows):
    lines = ["| ns a call (spread) | kernel | posix | posix / kernel | of the processors | posix / kernel |",
             "|---" * 6 + "|"]
    for row in rows:
        kernel, posix = (row["peers"][name] for name in ("kernel", "posix"))
        clock, cpu = (posix[unit] / kernel[unit] for unit in ("ns", "cpu_ns"))
        lines.append(f'| {row["row"]} | {kernel["ns"]:,.0f} ({kernel["spread_percent"]:.0f} %) | '
                     f'{posix["ns"]:,.0f} ({posix["spread_percent"]:.0f} %) | {clock:.2f} | '
                     f'{kernel["cpu_ns"]:,.0f}; {posix["cpu_ns"]:,.0f} | {aimed(cpu, EQUAL)} |')
    return "\n".join(lines)


def page(about, found, large, times, costs, pictures, options):
    parts = [f"# Over kernel file systems\n\nWritten by `make split` on {datetime.date.today()}: medians of "
             f"{options.repeat}, peers in turns. Machine: {about}.\next4 and XFS lie in files of a tmpfs, "
             "behind loop devices: their medium is memory, without DAX. A ratio below 1: the engine is "
             "faster.\n\n`posix` promises what the kernel does, and stands beside it among equals. `sync` and "
             "`strict` (`--emulate`) promise more: durable at return, as far as the page cache is, which no "
             "call of the kernel's is. The limit is the memory's own: the fastest copy, or stores around the "
             "cache and a fence.\n\nAims: reads at most 1.25 times the limit, overwrites and appends of 4 KiB 1.3 "
             "times; with `fsync` no slower than the kernel among equals; calls and programs that move names at "
             "most 1.1 times the kernel's time, programs that write most at most 0.77 times. A ratio that "
             "has an aim says whether it was met. Without DAX every byte of an append is copied twice, by "
             "the program's call and by the relink into the page cache, and that misses the aim of appends.\n"]
    parts.append(f"## The paper's\n\n{PAPER_CALLS}\n\n{PAPER_PATTERNS}\n\n{PAPER_APPS}\n")
    if costs:
        parts.append("## What the missing relink of ext4 costs\n\next4 has no call that moves blocks: what is "
                     "staged is copied, all of it, by `pwrite` from the staging file's mapping. XFS moves "
                     "it by exchange or clone where that is asked for (`--relink`), or where it lies on DAX; "
                     "where the page cache stands before the medium that waits for the staged blocks to be "
                     "written back, and `posix` copies there too. What is appended with `O_APPEND`, as here, is "
                     "never cloned: the rows that asked for it copied. The kernel's `fsync` after it is not "
                     "in the time.\n\n" + relink_table(costs) + "\n")
    for kind in found:
        name, rows = kind["file_system"], kind["rows"]
        parts.append(f"## {name}\n\n### Calls among equals\n\n" + call_table(
            rows, ["kernel", "posix", "limit"],
            [("posix", "kernel"), ("posix", "limit"), ("kernel", "limit")]) + "\n")
        parts.append("### Calls, durable at return (the kernel is not)\n\n" + call_table(
            rows, ["kernel", "sync", "strict", "limit"],
            [("sync", "kernel"), ("strict", "kernel"), ("sync", "limit"), ("strict", "limit")]) + "\n")
        parts.append("### What each technique is worth (posix)\n\n" + call_table(
            kind["techniques"], ["kernel", "split", "+staging", "+relink"],
            [(each, "kernel") for each in ("split", "+staging", "+relink")]) + "\n")
        for rows in [each["rows"] for each in large if each["file_system"] == name != "tmpfs"]:
            parts.append(f"### Files of {options.large}, written back meanwhile\n\nThe clock tells how long "
                         "the medium was waited for, which spreads; the processors' time does not. Aim: "
                         f"at most {EQUAL} times the kernel's.\n\n" + large_table(rows) + "\n")
        if name in times:
            table, ratios = app_table(times[name])
            picture = pictures / f"{name}.svg"
            measuring.bars(ratios, f"Programs on {name}: time over the kernel's; shorter is better", picture)
            parts.append(f"### Programs among equals\n\n{table}\n\n![programs]({pictures.name}/{name}.svg)\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs that count, of each row")
    parser.add_argument("--size", default="32M", help="working set of the single calls")
    parser.add_argument("--large", default="128M", help="the same, so large that it is written back")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    parser.add_argument("--output", type=pathlib.Path, default=measuring.ROOT / "docs/figures")
    options = parser.parse_args()
    if MOUNTED not in os.environ:
        os.environ[MOUNTED] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    about = measuring.machine()
    found, large = calls(options.size, options), calls(options.large, options)
    with tempfile.TemporaryDirectory(prefix="solera-split-") as scratch:
        times, costs = apps(pathlib.Path(scratch), options)
    pictures = options.output / "split"
    pictures.mkdir(parents=True, exist_ok=True)
    text = page(about, found, large, times, costs, pictures, options)
    (options.output / "split.md").write_text(wrapped(text))
    print(text)


if __name__ == "__main__":
    main()
