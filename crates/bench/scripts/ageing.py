#!/usr/bin/env python3
"""Ages a volume, ext4 and XFS by the same traces, and writes docs/figures/ageing.md: `make ageing` (as root).

Each file system lies in a sparse image of the same size, a tmpfs's for those that are written to, and
is aged by `solera age` with the same seed and the same capacity (the smallest of the three), so that
the trace is the same. With --quick everything is small: to see that it works, not for figures.

What was found is kept in docs/figures/ageing/figures.json, and the page is written from that alone
(`--part render` does nothing else): a row at a time can be taken anew. Of several rows of one profile the
longest life on the largest images is shown, once all three file systems have gone through it.
"""
import argparse, contextlib, json, os, pathlib, shutil, subprocess, sys, tempfile

from measuring import ROOT, SOLERA, wrapped

GIB = 1 << 30

# Name for people, options of `solera age`, bytes of the images, whether bytes are written.
PROFILES = [
    ("prop", [], 8 * GIB, False),
    ("HPC", ["--profile", "hpc"], 8 * GIB, False),
    ("exact", ["--sizes", "exact"], 8 * GIB, False),
    ("database", ["--profile", "database"], 4 * GIB, True),
    ("appends in turns", ["--profile", "appends"], 2 * GIB, True),
    ("small files", ["--profile", "small"], 2 * GIB, False),
]
KINDS = ("volume", "ext4", "xfs")
MEASURES = [
    ("(a) free space in aligned 2 MiB", "aligned_free_pct"),
    ("(b) a new file of 512 MiB", "new_file_huge_pct"),
    ("(c) a new file of 95 % of the free space", "new_max_file_huge_pct"),
    ("(d) live files of 2 MiB and more", "live_huge_pct"),
]
CURVE = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95]
# Of a million freed blocks, how many compaction may move: from none to what it may (one for 16).
BUDGETS = [0, 100, 200, 500, 1000, 2000, 5000, 62500]
PARTS = ["table", "curve", "trade", "reader", "render"]


def run(*words):
    words = [str(word) for word in words]
    done = subprocess.run(words, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


@contextlib.contextmanager
def target(kind, size, scratch):
    """A new file system in an image of `size` bytes; gives what `solera age` is to be told."""
    image = scratch / f"{kind}.image"
    with open(image, "wb") as file:
        file.truncate(size)
    try:
        if kind == "volume":
            run(SOLERA, "format", "--force", *(["--class", "page"] if on_disk(scratch) else []), image)
            yield image
            return
        run(f"mkfs.{kind}", "-q", image)
        at = scratch / kind
        at.mkdir(exist_ok=True)
        run("mount", "-o", "loop", image, at)
        try:
            yield at
        finally:
            run("umount", at)
    finally:
        image.unlink()
        shutil.rmtree(f"{image}.solera", ignore_errors=True)


def on_disk(path):
    return run("stat", "-f", "-c", "%T", path).strip() != "tmpfs"


def capacity(size, scratch):
    """Bytes that each of the three offers, the smallest."""
    found = []
    for kind in ("ext4", "xfs"):
        with target(kind, size, scratch) as at:
            found.append(os.statvfs(at).f_blocks * os.statvfs(at).f_frsize)
    with target("volume", size, scratch) as image:
        found.append(json.loads(run(SOLERA, "info", "--json", image))["free_bytes"])
    return min(found) >> 20 << 20


def age(kind, size, options, scratch):
    with target(kind, size, scratch) as at:
        print(f"{kind} {' '.join(options)}", file=sys.stderr)
        return json.loads(run(SOLERA, "age", "--yes", "--seed", "1", "--json", *options, at))


def share(value):
    return "–" if value is None else f"{value:.1f}".removesuffix(".0")


def same_trace(results):
    trace = ("capacity_bytes", "creates", "deletes", "appends", "overwrites", "allocated_bytes", "files")
    return all(len({result[key] for result in results}) == 1 for key in trace)


def best(rows):
    """Of each profile and fullness the longest and largest row that all three have gone through."""
    found = {}
    for name, part, kind, result in rows:
        found.setdefault((name, part), {})[kind] = result
    chosen = {}
    for (name, part), kinds in found.items():
        if len(kinds) < len(KINDS):
            continue
        if not same_trace(kinds.values()):
            print(f"{name}, {part:.0%}: left out, not the same trace", file=sys.stderr)
            continue
        size, churn = name[name.rindex("(") + 1:-1].split(" GiB, ")
        weight = (float(churn), float(size))
        of_profile = (name[:name.rindex(" (")], part)
        if of_profile not in chosen or chosen[of_profile][0] < weight:
            chosen[of_profile] = (weight, name, kinds)
    order = [name for name, *_ in PROFILES]
    for profile, part in sorted(chosen, key=lambda key: (order.index(key[0]), key[1])):
        _, name, kinds = chosen[profile, part]
        yield (name, part), kinds


def table(rows):
    """Rows {profile, utilisation, kind, result} as one table."""
    lines = ["| profile | files fill | measure, % | volume | ext4 | XFS |", "|---|---|---|---|---|---|"]
    for (name, part), found in best(rows):
        for text, key in MEASURES:
            cells = [share(found[kind][key]) for kind in ("volume", "ext4", "xfs")]
            lines.append(f"| {name} | {part:.0%} | {text} | {' | '.join(cells)} |")
        moved = found["volume"]
        lines.append(f"| {name} | {part:.0%} | moved, of what was allocated | {moved_part(moved):.2f} | | |")
    return "\n".join(lines)


def curve(points):
    """Measure (a) over utilisation, as SVG."""
    colours = {"volume": "#2e9e5b", "ext4": "#b8763e", "xfs": "#5e81ac"}
    x = lambda part: 50 + (part - 0.5) * 900
    y = lambda value: 230 - value * 2
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 270" font-family="sans-serif" font-size="11">',
             '<rect width="500" height="270" fill="white"/>']
    for value in range(0, 101, 20):
        lines.append(f'<line x1="50" x2="470" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>'
                     f'<text x="20" y="{y(value) + 4}">{value}</text>')
    for part in (0.5, 0.6, 0.7, 0.8, 0.9):
        lines.append(f'<text x="{x(part) - 10:.0f}" y="248">{part:.0%}</text>')
    lines.append('<text x="150" y="265">part of the capacity that files fill</text>')
    lines.append('<text x="50" y="15">of the free space, in aligned 2 MiB, % (prop, seed 1)</text>')
    for index, (kind, colour) in enumerate(colours.items()):
        found = sorted((part, value) for one, part, value in points if one == kind and value is not None)
        path = " ".join(f"{x(part):.1f},{y(value):.1f}" for part, value in found)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x(p):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for p, v in found]
        lines.append(f'<text x="{330 + index * 55}" y="15" fill="{colour}">{kind}</text>')
    return "\n".join(lines + ["</svg>", ""])


def trade(points):
    """Measure (a) over the part of what was allocated that compaction moved, as SVG."""
    x = lambda moved: 60 + min(moved, 0.2) * 2000
    y = lambda value: 230 - value * 2
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 270" font-family="sans-serif" font-size="11">',
             '<rect width="500" height="270" fill="white"/>']
    for value in range(0, 101, 20):
        lines.append(f'<line x1="60" x2="480" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>'
                     f'<text x="30" y="{y(value) + 4}">{value}</text>')
    for moved in (0, 0.05, 0.1, 0.15, 0.2):
        lines.append(f'<text x="{x(moved) - 8:.0f}" y="248">{moved:g}</text>')
    lines.append('<text x="150" y="265">moved, of what was allocated, %</text>')
    lines.append('<text x="60" y="15">of the free space, in aligned 2 MiB, % (prop, 90 %, seed 1)</text>')
    found = sorted((moved_part(result), result["aligned_free_pct"]) for _, result in points)
    path = " ".join(f"{x(moved):.1f},{y(value):.1f}" for moved, value in found)
    lines.append(f'<polyline points="{path}" fill="none" stroke="#2e9e5b" stroke-width="2"/>')
    lines += [f'<circle cx="{x(m):.1f}" cy="{y(v):.1f}" r="3" fill="#2e9e5b"/>' for m, v in found]
    return "\n".join(lines + ["</svg>", ""])


def moved_part(result):
    return result["moved_bytes"] * 100 / max(result["allocated_bytes"], 1)


def trade_table(points):
    lines = ["| may move, of a million freed | moved, % of what was allocated | (a) | (b) | (c) | (d) |",
             "|---|---|---|---|---|---|"]
    for budget, result in sorted(points, key=lambda point: point[0]):
        cells = [share(result[key]) for _, key in MEASURES]
        lines.append(f"| {budget or 'none'} | {moved_part(result):.3f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reader_table(found):
    lines = ["| beside | reads: p50 | p99 | p99.9 | deletions: p50 | p99 | p99.9 | moved, MiB/s |",
             "|---|---|---|---|---|---|---|---|"]
    for row in found["rows"]:
        times = [row[what][key] for what in ("reads", "deletions") for key in ("p50_us", "p99_us", "p999_us")]
        cells = ["" if time is None else f"{time:.1f}" for time in times]
        moved = row["moved_bytes_per_second"] / (1 << 20)
        lines.append(f"| {row['beside']} | {' | '.join(cells)} | {moved:.0f} |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--size", type=int, metavar="GIB", help="images of at most so many GiB")
    parser.add_argument("--churn", type=float, help="creates and deletes for each live file, at most")
    parser.add_argument("--resume", action="store_true", help="what is known from the last time is not run again")
    parser.add_argument("--profile", action="append", help="only this one")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this file system")
    parser.add_argument("--full", type=float, action="append", help="only this part of the capacity (0.7, 0.9)")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; the others are kept from the last time")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/dev/shm"),
                        help="where the images lie that get no bytes written (default /dev/shm)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/figures")
    return parser.parse_args()


def take_table(args, most, churn, scratch, memory, kept):
    for name, options, size, writes in PROFILES:
        if args.profile and name not in args.profile:
            continue
        where, size = (memory if writes else scratch), min(size, most)
        bytes_in_all = capacity(size, where)
        for full, kind in [(full, kind) for full in args.full or (0.7, 0.9) for kind in args.kind or KINDS]:
            row = [f"{name} ({size / GIB:g} GiB, {churn})", full, kind]
            if args.resume and any(known[:3] == row for known in kept["table"]):
                continue
            words = [*options, "--churn", churn, "--capacity", str(bytes_in_all), "--utilisation", str(full)]
            place = memory if kind == "volume" else where
            if name == "prop" and full == 0.9 and kind != "xfs":
                words += ["--picture", str(args.out / "ageing" / f"{kind}.svg")]
            result = age(kind, size, words, place)
            kept["table"] = [known for known in kept["table"] if known[:3] != row] + [[*row, result]]
            write(args, kept)


def few(args):
    """Creates and deletes for each live file where many lives are compared, as the page says."""
    return "2" if args.quick else "10"


def take_curve(args, most, scratch, memory, kept):
    churn = few(args)
    size = min(2 * GIB, most)
    bytes_in_all = capacity(size, scratch)
    for full, kind in [(full, kind) for full in CURVE for kind in args.kind or KINDS]:
        if args.resume and any(point[:2] == [kind, full] for point in kept["curve"]):
            continue
        words = ["--churn", churn, "--capacity", str(bytes_in_all), "--utilisation", str(full)]
        result = age(kind, size, words, memory if kind == "volume" else scratch)
        kept["curve"] = [point for point in kept["curve"] if point[:2] != [kind, full]]
        kept["curve"].append([kind, full, result["aligned_free_pct"]])
        write(args, kept)


def take_trade(args, most, memory, kept):
    churn = few(args)
    size = min(2 * GIB, most)
    bytes_in_all = capacity(size, memory)
    for budget in BUDGETS:
        words = ["--churn", churn, "--capacity", str(bytes_in_all), "--utilisation", "0.9", "--compaction", str(budget)]
        result = age("volume", size, words, memory)
        kept["trade"] = [point for point in kept["trade"] if point[0] != budget] + [[budget, result]]
        write(args, kept)


def take(args, part, scratch, memory, kept):
    most = GIB // 2 if args.quick else (args.size or 8) * GIB
    churn = "2" if args.quick else f"{args.churn or 38.5:g}"
    if part == "table":
        take_table(args, most, churn, scratch, memory, kept)
    elif part == "curve":
        take_curve(args, most, scratch, memory, kept)
    elif part == "trade":
        take_trade(args, most, memory, kept)
    elif part == "reader":
        kept["reader"] = json.loads(run(SOLERA, "bench", "compaction", "--json", "--seconds", "1" if args.quick else "5"))
        write(args, kept)


def write(args, kept):
    """Keeps what was found, and writes the page from it."""
    into = args.out / "ageing"
    into.mkdir(exist_ok=True, parents=True)
    (into / "figures.json").write_text(json.dumps(kept, indent=1) + "\n")
    (into / "curve.svg").write_text(curve(kept["curve"]))
    (into / "trade.svg").write_text(trade(kept["trade"]))
    sections = [PAGE.replace("TABLE", table(kept["table"]))]
    if kept["trade"]:
        sections.append(TRADE.replace("TABLE", trade_table(kept["trade"])))
    if kept["reader"]:
        text = READER.replace("TABLE", reader_table(kept["reader"]))
        sections.append(text.replace("SECONDS", str(kept["reader"]["seconds"])))
    (args.out / "ageing.md").write_text(wrapped("\n".join([*sections, PICTURES])))


PAGE = """# Ageing

What is left of huge pages after a life of creates, deletes, appends and overwrites, on a volume and on kernel file systems with the
defaults of their mkfs. This page is written by `crates/bench/scripts/ageing.py` from [what it found](ageing/figures.json) (`make ageing` takes everything anew, 8 GiB and the
whole life, which takes hours; `crates/bench/scripts/ageing.py --part render` only writes the page). Every row is one trace (`solera age --seed 1`, its options in the
script), the same for all three, which the script checks: its capacity is the smallest of the three's. In brackets the size of the images, and how many creates and
deletes there were for each file that lives in the end (the literature has 38; of the profiles that write, how often what the files hold was written anew, of a database its logs).

In small images the last few chunks weigh more: a volume of 2 GiB at 90 % has some 50 chunks left to keep free.

TABLE

(–: there is no such file, or no free space to make one in.) "moved" is what the volume copied to keep chunks whole, beside what it was asked to do. For appends in turns that is
every byte of a file of 2 MiB and more, once: the appends that fill a chunk of the file gather it ([design.md](../design.md), "Allocation"). Of the database (d) is that of its tables: its
logs, opened for each append, lie in few long pieces that begin in the middle of a chunk ([volumes.md](../volumes.md)).

Measure (a) of prop by how full the file system is, in images of 2 GiB at most, 10 creates and deletes for each file:

![of the free space, in aligned 2 MiB](ageing/curve.svg)
"""

TRADE = """## What moving is worth

Measure (a) at 90 %, by what compaction may move of what is freed (prop, 2 GiB, 10 creates and deletes for each file, where a chunk is nearly 1 % of
what is free; `solera age --compaction N`; the last row is what a volume does):

![what moving is worth](ageing/trade.svg)

TABLE
"""

READER = """## What a reader feels

4 KiB reads at random places, in microseconds, while another thread does what stands in the first column for SECONDS seconds (`solera bench compaction`): deletions that leave a
quarter of their chunks worth emptying, so that compaction goes on as fast as it may (one block for 16 that are freed), and rewriting (`solera defrag`) without a pause. A deletion that
empties a chunk pays for it: at most 512 KiB are copied in it.

TABLE
"""

PICTURES = """## Pictures

The volume after "prop" at 90 % (8 GiB), and ext4 after the same trace; a square is 2 MiB:

![a volume](ageing/volume.svg)
![ext4](ageing/ext4.svg)
"""


def main():
    args = arguments()
    figures = args.out / "ageing" / "figures.json"
    kept = {"table": [], "curve": [], "trade": [], "reader": None}
    if figures.exists():
        kept.update(json.loads(figures.read_text()))
    (args.out / "ageing").mkdir(exist_ok=True, parents=True)
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.scratch)))
        memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        for part in args.part or PARTS:
            take(args, part, scratch, memory, kept)
    write(args, kept)


main()
