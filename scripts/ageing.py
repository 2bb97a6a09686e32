#!/usr/bin/env python3
"""Ages a volume, ext4 and XFS by the same traces, and writes docs/ageing.md: `make ageing` (as root).

Each file system lies in a sparse image of the same size, a tmpfs's for those that are written to, and
is aged by `solera age` with the same seed and the same capacity (the smallest of the three), so that
the trace is the same. With --quick everything is small: to see that it works, not for figures.
"""
import argparse, contextlib, datetime, json, os, pathlib, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOLERA = pathlib.Path(os.environ.get("SOLERA", ROOT / "target/release/solera"))
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
        return json.loads(run(SOLERA, "age", "--seed", "1", "--json", *options, at))


def share(value):
    return "–" if value is None else f"{value:.1f}".removesuffix(".0")


def table(rows):
    """Rows {profile, utilisation, kind, result} as one table."""
    lines = ["| profile | files fill | measure, % | volume | ext4 | XFS |", "|---|---|---|---|---|---|"]
    for name, part in dict.fromkeys((row[0], row[1]) for row in rows):
        found = {kind: result for one, other, kind, result in rows if (one, other) == (name, part)}
        for text, key in MEASURES:
            cells = [share(found[kind][key]) for kind in ("volume", "ext4", "xfs")]
            lines.append(f"| {name} | {part:.0%} | {text} | {' | '.join(cells)} |")
        moved = found["volume"]
        part_moved = moved["moved_bytes"] * 100 / max(moved["allocated_bytes"], 1)
        lines.append(f"| {name} | {part:.0%} | moved, of what was allocated | {part_moved:.2f} | | |")
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--size", type=int, metavar="GIB", help="images of at most so many GiB")
    parser.add_argument("--churn", type=float, help="creates and deletes for each live file, at most")
    parser.add_argument("--resume", action="store_true", help="what is known from the last time is not run again")
    parser.add_argument("--profile", action="append", help="only this one")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this file system")
    parser.add_argument("--part", choices=["table", "curve"], action="append",
                        help="only this; the other is kept from the last time")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/dev/shm"),
                        help="where the images lie that get no bytes written (default /dev/shm)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    return parser.parse_args()


def key_of(kind, size, options):
    return " ".join([kind, f"{size / GIB:g}", *options])


def age_once(args, kept, kind, size, options, scratch, picture):
    """What `age` gives; with --resume from the last time, if that came so far."""
    key = key_of(kind, size, options)
    if not args.resume or key not in kept["runs"]:
        kept["runs"][key] = age(kind, size, [*options, *picture], scratch)
    return kept["runs"][key]


def take(args, part, scratch, memory, kept):
    most = GIB // 2 if args.quick else (args.size or 8) * GIB
    churn = "2" if args.quick else f"{args.churn or 38.5:g}"
    if part == "table":
        for name, options, size, writes in PROFILES:
            if args.profile and name not in args.profile:
                continue
            where, size = (memory if writes else scratch), min(size, most)
            bytes_in_all = capacity(size, where)
            for full in (0.7, 0.9):
                words = [*options, "--churn", churn, "--capacity", str(bytes_in_all), "--utilisation", str(full)]
                for kind in args.kind or KINDS:
                    place = memory if kind == "volume" else where
                    draws = name == "prop" and full == 0.9 and kind != "xfs"
                    picture = ["--picture", str(args.out / "ageing" / f"{kind}.svg")] if draws else []
                    result = age_once(args, kept, kind, size, words, place, picture)
                    name_all = f"{name} ({size / GIB:g} GiB, {churn})"
                    kept["table"] = [row for row in kept["table"] if row[:3] != [name_all, full, kind]]
                    kept["table"].append([name_all, full, kind, result])
                    write(args, kept)
    else:
        size = min(2 * GIB, most)
        bytes_in_all = capacity(size, scratch)
        for full in CURVE:
            words = ["--churn", churn, "--capacity", str(bytes_in_all), "--utilisation", str(full)]
            for kind in args.kind or KINDS:
                place = memory if kind == "volume" else scratch
                result = age_once(args, kept, kind, size, words, place, [])
                kept["curve"] = [point for point in kept["curve"] if point[:2] != [kind, full]]
                kept["curve"].append([kind, full, result["aligned_free_pct"]])
                write(args, kept)


def write(args, kept):
    into = args.out / "ageing"
    into.mkdir(exist_ok=True, parents=True)
    (into / "figures.json").write_text(json.dumps(kept, indent=1))
    if any(len([row for row in kept["table"] if row[:2] == one[:2]]) < len(KINDS) for one in kept["table"]):
        return
    (into / "curve.svg").write_text(curve(kept["curve"]))
    day = datetime.date.today().isoformat()
    text = f"""# Ageing

What is left of huge pages after a life of creates, deletes, appends and overwrites, on a volume and on kernel file systems with the
defaults of their mkfs. Written by `{' '.join(['scripts/ageing.py', *sys.argv[1:]])}` ({day}; `make ageing` takes 8 GiB and the whole life). Every row is one
trace (`solera age --seed 1`, its options in the script), the same for all three: its capacity is the smallest of the three's. In brackets the size of the
images, and how many creates and deletes there were for each file that lives in the end (the literature has 38).

In small images the last few chunks weigh more: a volume of 2 GiB at 90 % has some 50 chunks left to keep free.

{table(kept["table"])}

(–: there is no such file or no such space.) "moved" is what the volume copied to keep chunks whole, beside what it was asked to do.

Measure (a) of prop by how full the file system is, in images of 2 GiB at most:

![of the free space, in aligned 2 MiB](ageing/curve.svg)

The volume after "prop" at 90 %, and ext4 after the same trace; a square is 2 MiB:

![a volume](ageing/volume.svg)
![ext4](ageing/ext4.svg)
"""
    (args.out / "ageing.md").write_text(text)


def main():
    args = arguments()
    figures = args.out / "ageing" / "figures.json"
    kept = {"table": [], "curve": [], "runs": {}}
    if figures.exists():
        kept.update(json.loads(figures.read_text()))
    (args.out / "ageing").mkdir(exist_ok=True, parents=True)
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.scratch)))
        memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        for part in args.part or ["table", "curve"]:
            take(args, part, scratch, memory, kept)


main()
