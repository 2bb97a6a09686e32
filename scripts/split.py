#!/usr/bin/env python3
"""Writes docs/split.md: `solera run --split` beside the kernel alone: `make split` (as root, minutes).

Single calls come from `solera bench split`. Whole programs run on tmpfs, ext4 and XFS (made with
exchange-range, if mkfs.xfs knows it; both in files of a tmpfs, by loop devices), in a mount namespace
of this script's own: with the kernel alone and with the engine in posix mode, which promises the same,
in turns; medians count. With --quick everything is smaller: to see that it works, not for figures.
"""
import argparse, contextlib, datetime, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile

import benchmarks

MOUNTED = "SOLERA_SPLIT_BENCH"

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
    if made and kind == "xfs":
        subprocess.run([benchmarks.ROOT / "scripts/exchange-range", "on", path], **quiet)
    return bool(made) and subprocess.run(["mount", "-o", "loop", path, at]).returncode == 0


def places(base, options):
    for kind in ("tmpfs", "ext4", "xfs"):
        at = base / kind
        at.mkdir()
        if kind != "tmpfs" and not image(kind, base, 2 << 30):
            print(f"without {kind}: it cannot be made and mounted here", file=sys.stderr)
            continue
        for name in ("kernel", "split"):
            (at / name).mkdir()
        engine = [benchmarks.SOLERA, "run", "--split", at / "split", "--"]
        yield kind, [benchmarks.Place("kernel", at / "kernel", []),
                     benchmarks.Place("split", at / "split", engine)]


def shell(row, command, files):
    """A job: a shell's command in a new directory; nanoseconds a file."""
    return lambda place, scratch: {
        row: benchmarks.timed(place, command.format(scratch=scratch), place.fresh()) / files * 1000}


def jobs(scratch, options):
    """What runs: functions of a place, and rows with their times."""
    scale = 10 if options.quick else 1
    found = [lambda place, scratch: benchmarks.redis(place, scratch, 10000 // scale)]
    counts = {"sqlite": (10000, "sqlite.c"), "tpcc": (4000, "tpcc.c"), "ycsb": (60000, "ycsb.cc"),
              "leveldb": (20000, "leveldb.cc")}
    for name, (count, source) in counts.items():
        compiler = ["c++", "-O2"] if source.endswith("cc") else ["cc", "-O2"]
        library = "-lleveldb" if source.endswith("cc") else "-lsqlite3"
        words = [*compiler, "-o", scratch / name, benchmarks.ROOT / "scripts/apps" / source, library]
        if subprocess.run(words, stderr=subprocess.DEVNULL).returncode != 0:
            print(f"without {name}: it does not compile here", file=sys.stderr)
            continue
        found.append(lambda place, scratch, name=name, count=count // scale:
                     benchmarks.told(place.run(scratch / name, place.fresh(), count)))
    tree, files = scratch / "tree", 1000 if options.quick else 6000
    for index in range(files):
        path = tree / f"d{index // 100}" / f"f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (index * 37 % 8192))
    benchmarks.run("tar", "cf", scratch / "tree.tar", "-C", tree, ".")
    found += [shell("untar, a file", "tar xf {scratch}/tree.tar", files),
              shell("tar, a file", "tar cf all.tar -C {scratch}/tree .", files),
              shell("git add + commit, a file",
                    "git init -q . && cp -r {scratch}/tree . && git add -A && "
                    "git -c user.name=b -c user.email=b commit -qm b", files)]
    if shutil.which("rsync"):
        found.append(shell("rsync, a file", "rsync -a {scratch}/tree/ copy/", files))
    return found


def apps(scratch, options):
    """Times by file system, row and place."""
    base = scratch / "memory"
    base.mkdir()
    benchmarks.run("mount", "-t", "tmpfs", "-o", "size=6g,huge=never", "tmpfs", base)
    times = {}
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-R", base])
        all_jobs = jobs(scratch, options)
        for kind, peers in places(base, options):
            rows = times.setdefault(kind, {})
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
    return times


def app_table(rows):
    lines = ["| ns (spread) | kernel | split, posix | x kernel |", "|---|---|---|---|"]
    ratios = []
    for row, found in rows.items():
        cells, middles = [], []
        for name in ("kernel", "split"):
            values = found[name]
            middles.append(statistics.median(values))
            spread = (max(values) - min(values)) * 100 / middles[-1]
            cells.append(f"{middles[-1]:,.0f} ({spread:.0f} %)")
        ratios.append((row, middles[1] / middles[0]))
        lines.append(f"| {row} | {cells[0]} | {cells[1]} | {ratios[-1][1]:.2f} |")
    return "\n".join(lines), ratios


def call_table(rows, names, ratios):
    head = ["ns a call (spread)", *names, *(f"{name} / {over}" for name, over in ratios)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        peers = row["peers"]
        cells = [row["row"]]
        cells += [f'{peers[name]["ns"]:,.0f} ({peers[name]["spread_percent"]:.0f} %)'
                  if name in peers else "-" for name in names]
        cells += [f'{peers[name]["ns"] / peers[over]["ns"]:.2f}'
                  if name in peers and over in peers else "-" for name, over in ratios]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def calls(options):
    words = [benchmarks.SOLERA, "bench", "split", "--json", "--repeat", options.repeat, "--size",
             "16M" if options.quick else options.size]
    return json.loads(benchmarks.run(*words))["file_systems"]


def page(about, found, times, pictures, options):
    parts = [f"# Over kernel file systems\n\nWritten by `make split` on {datetime.date.today()}: medians of "
             f"{options.repeat}, peers in turns. Machine: {about}.\next4 and XFS lie in files of a tmpfs, "
             "behind loop devices: their medium is memory, without DAX. A ratio below 1: the engine is "
             "faster.\n\n`posix` promises what the kernel does, and stands beside it among equals. `sync` and "
             "`strict` (`--emulate`) promise more: durable at return, as far as the page cache is, which no "
             "call of the kernel's is. The limit is the memory's own: the fastest copy, or stores around the "
             "cache and a fence.\n"]
    parts.append(f"## The paper's\n\n{PAPER_CALLS}\n\n{PAPER_PATTERNS}\n\n{PAPER_APPS}\n")
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
        if name in times:
            table, ratios = app_table(times[name])
            picture = pictures / f"{name}.svg"
            benchmarks.bars(ratios, f"Programs on {name}: time over the kernel's; shorter is better", picture)
            parts.append(f"### Programs among equals\n\n{table}\n\n![programs]({pictures.name}/{name}.svg)\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs that count, of each row")
    parser.add_argument("--size", default="32M", help="working set of the single calls")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    parser.add_argument("--output", type=pathlib.Path, default=benchmarks.ROOT / "docs")
    options = parser.parse_args()
    if MOUNTED not in os.environ:
        os.environ[MOUNTED] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    about = benchmarks.machine()
    found = calls(options)
    with tempfile.TemporaryDirectory(prefix="solera-split-") as scratch:
        times = apps(pathlib.Path(scratch), options)
    pictures = options.output / "split"
    pictures.mkdir(parents=True, exist_ok=True)
    text = page(about, found, times, pictures, options)
    (options.output / "split.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
