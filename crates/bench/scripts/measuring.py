"""What the scripts that take figures share: places, programs in them, mounts, bars.

Whole programs on volumes and beside them are measured by `solera bench programs`.
"""
import contextlib, os, pathlib, platform, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
APPS = ROOT / "crates/bench/apps"
SOLERA = pathlib.Path(os.environ.get("SOLERA", ROOT / "target/release/solera"))
AT = "/solera-benchmarks"

sys.path.append(str(ROOT / "scripts"))
from wrap import wrapped  # noqa: E402, F401 (for the scripts that write a page)


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


def told(text):
    """Rows that a program tells: name, tab, nanoseconds."""
    return {name: float(value) for name, value in (line.split("\t") for line in text.splitlines())}


def timed(place, command, cwd):
    """Microseconds that a shell's command takes there, without the start of the shell itself."""
    script = f"cd {cwd} && TIMEFORMAT=%R && time {{ {command} >/dev/null; }}"
    done = subprocess.run([*map(str, place.before), "bash", "-c", script], check=True, text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return float(done.stderr.split()[-1]) * 1e6


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


def mark(reached, met):
    """A ratio (or a time), and whether it is what was aimed at: missed ones stand out."""
    text = f"{reached:.0f}" if reached >= 10 else f"{reached:.2f}"
    return f"{text}, met" if met else f"**{text}, missed**"


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    load = os.getloadavg()[1]
    keys = "with" if " ospke" in open("/proc/cpuinfo").read() else "without"
    # Volumes lie in DRAM: flushed as persistent memory only if that is asked for.
    kind = os.environ.get("SOLERA_CLASS", "volatile")
    return (f"{cpu}, {os.cpu_count()} CPUs, {keys} protection keys, volumes of class {kind}, "
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
