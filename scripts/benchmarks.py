#!/usr/bin/env python3
"""Takes the figures of docs/benchmarks.md, and draws its bars: `make benchmarks` (as root).

Whole programs run on a volume (its region on a tmpfs with huge pages, touched before) and on a tmpfs
with 4 KiB pages, in turns, each time in a new directory; single calls come from `solera bench
micro`. Medians count. Both tmpfs are mounted in a mount namespace of this script's own. With --quick
everything is smaller: to see that it works, not for figures.
"""
import argparse, contextlib, datetime, json, os, pathlib, platform, shutil, statistics, subprocess, sys, tempfile, time

from wrap import wrapped

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOLERA = pathlib.Path(os.environ.get("SOLERA", ROOT / "target/release/solera"))
AT = "/solera-benchmarks"
TREE_FILES, STATUS_FILES = 4000, 10000
# What was aimed at: time over tmpfs's (a third more transactions, a tenth more writes, not slower).
TARGETS = {"sqlite WAL FULL insert": 1 / 1.3, "leveldb fillrandom sync": 1 / 1.1, "untar, a file": 1,
           "git status, a file": 1, "redis AOF always, set": 1, "leveldb fillseq": 1,
           "leveldb readrandom": 1}
TWO_THREADS = {"append 4K, 2 threads": "append 4K, 1 thread", "pread 4K, 2 threads": "pread 4K, 1 thread"}


def run(*words, **options):
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([str(word) for word in words], check=True, text=True, **options).stdout


class Place:
    """Where a program runs: a directory, and what stands before its command."""

    def __init__(self, name, directory, before):
        self.name, self.directory, self.before, self.count = name, directory, before, 0

    def run(self, *words, **options):
        return run(*self.before, *words, **options)

    def fresh(self):
        """A new directory."""
        self.count += 1
        path = f"{self.directory}/run{self.count}"
        self.run("mkdir", "-p", path)
        return path


def build(scratch):
    compilers = {
        "sqlite": ["cc", "-O2", "sqlite.c", "-lsqlite3"],
        "leveldb": ["c++", "-O2", "leveldb.cc", "-lleveldb"],
        "threads": ["cc", "-O2", "-pthread", "threads.c"],
    }
    built = {}
    for name, (compiler, *words) in compilers.items():
        words = [str(ROOT / "scripts/apps" / word) if "." in word else word for word in words]
        try:
            run(compiler, "-o", scratch / name, *words, stderr=subprocess.DEVNULL)
            built[name] = scratch / name
        except (OSError, subprocess.CalledProcessError):
            print(f"without {name}: it does not compile here", file=sys.stderr)
    return built


def told(text):
    """Rows that a program tells: name, tab, nanoseconds."""
    return {name: float(value) for name, value in (line.split("\t") for line in text.splitlines())}


def timed(place, command, cwd):
    """Microseconds that a shell's command takes there, without the start of the shell itself."""
    script = f"cd {cwd} && TIMEFORMAT=%R && time {{ {command} >/dev/null; }}"
    done = subprocess.run([*map(str, place.before), "bash", "-c", script], check=True, text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return float(done.stderr.split()[-1]) * 1e6


def untar(place, scratch):
    return {"untar, a file": timed(place, f"tar xf {scratch}/tree.tar", place.fresh())
            / TREE_FILES * 1000}


def status(place, scratch):
    if not hasattr(place, "repository"):
        place.repository = place.fresh()
        make = (f"cd {place.repository} && git init -q . && for d in $(seq 0 99); do mkdir d$d; "
                f"for f in $(seq {STATUS_FILES // 100}); do echo $d $f > d$d/f$f; done; done; "
                "git add -A && git -c user.name=b -c user.email=b commit -qm b && sleep 2 && git status")
        place.run("bash", "-c", make)
    return {"git status, a file": timed(place, "git status", place.repository)
            / STATUS_FILES * 1000}


def redis(place, scratch, count):
    # The server is this program too, by another name (and comes without a service).
    program = shutil.which("redis-check-rdb")
    if not program or not shutil.which("redis-benchmark"):
        return {}
    server = scratch / "redis-server"
    if not server.exists():
        server.symlink_to(program)
    socket = scratch / "redis.sock"
    process = subprocess.Popen(
        [*map(str, place.before), server, "--port", "0", "--unixsocket", str(socket), "--save", "",
         "--appendonly", "yes", "--appendfsync", "always", "--dir", place.fresh()],
        stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            ping = subprocess.run(["redis-cli", "-s", str(socket), "ping"], capture_output=True)
            if b"PONG" in ping.stdout:
                break
            subprocess.run(["sleep", "0.05"])
        text = run("redis-benchmark", "-s", socket, "-t", "set", "-n", count, "-c", 1, "-d", 100,
                   "--csv", stderr=subprocess.DEVNULL)
        requests = float(text.splitlines()[-1].split(",")[1].strip('"'))
        return {"redis AOF always, set": 1e9 / requests}
    finally:
        process.terminate()
        process.wait()


def apps(places, scratch, options):
    built = build(scratch)
    tree = scratch / "tree"
    for index in range(TREE_FILES):
        path = tree / f"d{index // 100}" / f"f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (index * 37 % 8192))
    run("tar", "cf", scratch / "tree.tar", "-C", tree, ".")
    scale = 10 if options.quick else 1
    jobs = [lambda place: untar(place, scratch), lambda place: status(place, scratch),
            lambda place: redis(place, scratch, 20000 // scale)]
    counts = {"sqlite": 20000, "leveldb": 200000, "threads": 40000}
    for name, program in built.items():
        count = counts[name] // scale
        jobs.append(lambda place, program=program, count=count:
                    told(place.run(program, place.fresh(), count)))
    times = {}
    for round in range(options.repeat + 1):
        for job in jobs:
            for place in places:
                for row, value in job(place).items():
                    # Round 0 warms up.
                    if round > 0:
                        times.setdefault(row, {}).setdefault(place.name, []).append(value)
    return times


def bars(rows, title, path):
    """A bar chart of ratios: time of solera over the peer's."""
    width, left, height = 720, 230, 22
    most = max(ratio for _, ratio in rows) * 1.1
    scale = (width - left - 60) / max(most, 1.0)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
             f'height="{height * len(rows) + 50}" font-family="sans-serif" font-size="13">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="10" y="20" font-weight="bold">{title}</text>']
    for index, (name, ratio) in enumerate(rows):
        y = 34 + index * height
        colour = "#2a7f62" if ratio <= 1 else "#b5544d"
        lines += [f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>',
                  f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="{height - 6}" '
                  f'fill="{colour}"/>',
                  f'<text x="{left + ratio * scale + 5:.1f}" y="{y + 13}">{ratio:.2f}</text>']
    one = left + scale
    lines += [f'<line x1="{one:.1f}" y1="30" x2="{one:.1f}" y2="{34 + len(rows) * height}" '
              'stroke="#444" stroke-dasharray="4 3"/>', "</svg>"]
    path.write_text("\n".join(lines) + "\n")


def micro(mode, options):
    words = [SOLERA, "bench", "micro", "--mode", mode, "--json", "--repeat", options.repeat]
    return json.loads(run(*words, "--size", "16M" if options.quick else options.size))


def order(names):
    """The volume first, then its peers."""
    first = ("solera", "tmpfs 4K", "tmpfs 2M", "limit")
    return sorted(names, key=lambda name: (first.index(name) if name in first else 9, name))


def micro_table(found):
    names = order(found["rows"][0]["peers"])
    head = ["ns a call (spread)"] + names + [f"x {name}" for name in names[1:]]
    head += ["target", "reached"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in found["rows"]:
        cells = [row["row"]]
        for name in names:
            peer = row["peers"].get(name)
            cells.append(f'{peer["ns"]:.0f} ({peer["spread_percent"]:.0f} %)' if peer else "-")
        cells += [f'{row["ratios"][name]:.2f}' if name in row["ratios"] else "-"
                  for name in names[1:]]
        target = row["target"]
        cells += [target["text"], mark(target["reached"], target["met"])] if target else ["-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mark(reached, met):
    """A ratio (or a time), and whether it is what was aimed at: missed ones stand out."""
    text = f"{reached:.0f}" if reached >= 10 else f"{reached:.2f}"
    return f"{text}, met" if met else f"**{text}, missed**"


def app_table(times):
    lines = ["| ns (spread) | solera | tmpfs, 4K pages | x tmpfs | target | reached |",
             "|---|---|---|---|---|---|"]
    own = {row: statistics.median(found["solera"]) for row, found in times.items()}
    ratios = []
    for row, found in times.items():
        cells = []
        for name in ("solera", "tmpfs"):
            values = found[name]
            middle = statistics.median(values)
            spread = (max(values) - min(values)) * 100 / middle
            cells.append(f"{middle:,.0f} ({spread:.0f} %)")
        ratio = statistics.median(found["solera"]) / statistics.median(found["tmpfs"])
        ratios.append((row, ratio))
        target, reached = "-", "-"
        if row in TARGETS:
            target = f"{TARGETS[row]:.2f} x tmpfs"
            reached = mark(ratio, round(ratio, 2) <= round(TARGETS[row], 2))
        elif row in TWO_THREADS:
            threads = own[row] / own[TWO_THREADS[row]]
            target = "1.1 x 1 thread"
            reached = mark(threads, round(threads, 2) <= 1.1)
        lines.append(f"| {row} | {cells[0]} | {cells[1]} | {ratio:.2f} | {target} | {reached} |")
    return "\n".join(lines), ratios


def places(scratch, options):
    """A volume, its region touched before, and the other tmpfs."""
    region = scratch / "huge/v.pm"
    run("dd", "if=/dev/zero", f"of={region}", "bs=1M", f"count={1024 if options.quick else 3072}",
        stderr=subprocess.DEVNULL)
    run(SOLERA, "format", "--force", region)
    before = [SOLERA, "run", "--volume", region, "--at", AT, "--"]
    return [Place("solera", AT, before), Place("tmpfs", str(scratch / "small"), [])]


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    load = os.getloadavg()[1]
    keys = "with" if " ospke" in open("/proc/cpuinfo").read() else "without"
    return (f"{cpu}, {os.cpu_count()} CPUs, {keys} protection keys, "
            f"Linux {platform.release().split('-')[0]}; load before: {load:.1f}")


def own_namespaces(*kinds):
    """Goes on in namespaces of its own: `unshare` says of which kinds."""
    if "SOLERA_OWN_NAMESPACES" not in os.environ:
        os.environ["SOLERA_OWN_NAMESPACES"] = "1"
        os.execvp("unshare", ["unshare", *kinds, sys.executable, *sys.argv])


@contextlib.contextmanager
def two_tmpfs():
    """A directory with a tmpfs of huge pages in it, and one of small ones."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as mounted:
        scratch = pathlib.Path(name)
        for kind, huge in (("huge", "always"), ("small", "never")):
            (scratch / kind).mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size=6G,huge={huge},mode=1777", "none", scratch / kind)
            mounted.callback(run, "umount", "--lazy", scratch / kind)
        yield scratch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, not for figures")
    parser.add_argument("--repeat", type=int, default=5, help="runs that count, of each row")
    parser.add_argument("--size", default="256M", help="working set of the single calls")
    parser.add_argument("--modes", default="strict,sync,posix", help="of the single calls")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs")
    options = parser.parse_args()
    own_namespaces("--mount")
    about, begun = machine(), time.monotonic()
    with two_tmpfs() as scratch:
        times = apps(places(scratch, options), scratch, options)
    found = {mode: micro(mode, options) for mode in options.modes.split(",")}
    table, ratios = app_table(times)
    pictures = options.output / "benchmarks"
    pictures.mkdir(exist_ok=True)
    bars(ratios, "Programs: time over tmpfs's (4K pages); shorter is better", pictures / "apps.svg")
    for mode, result in found.items():
        peer = order(result["rows"][0]["peers"])[1]
        rows = [(row["row"], row["ratios"][peer]) for row in result["rows"] if peer in row["ratios"]]
        bars(rows, f"Single calls, mode {mode}: time over {peer}'s", pictures / f"{mode}.svg")
    seconds = time.monotonic() - begun
    parts = [f"# Benchmarks\n\nWritten by `make benchmarks` on {datetime.date.today()}: medians of "
             f"{options.repeat}, peers in turns. Machine: {about}.\nTimes depend on it and on what "
             "else it does; the ratios of one run less so. Below 1, Solera is faster. The column *reached* says what "
             "of the target was reached, and whether that meets it; why some are missed: "
             f"[performance.md](performance.md). Taken in {seconds / 60:.0f} minutes.\n",
             f"## Programs, mode strict\n\n{table}\n\n![programs](benchmarks/apps.svg)\n"]
    for mode, result in found.items():
        parts.append(f"## Single calls, mode {mode}\n\n`solera bench micro --mode {mode}`; the limit "
                     "is the memory's own: the fastest copy, or stores and fences around the cache."
                     f"\n\n{micro_table(result)}\n\n![{mode}](benchmarks/{mode}.svg)\n")
    (options.output / "benchmarks.md").write_text(wrapped("\n".join(parts)))
    print("\n".join(parts))


if __name__ == "__main__":
    main()
