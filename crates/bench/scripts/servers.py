#!/usr/bin/env python3
"""Takes the figures of docs/figures/servers.md: `make servers` (as root, some ten minutes).

Servers and processes beside each other, on a volume and on a tmpfs with 4 KiB pages, in turns: what
PostgreSQL, MariaDB and redis do in a second, what two processes do in the time of one, and what a
program's start costs more. Clients are not served; sockets are on neither. Medians count. With --quick
everything is shorter: to see that it works, not for figures.
"""
import argparse, datetime, glob, os, pathlib, re, shutil, statistics, subprocess, sys, time

from measuring import APPS, AT, ROOT, SOLERA, Place, machine, mark, own_namespaces, run, two_tmpfs, wrapped

LIBRARY = SOLERA.parent / "libsolera_preload.so"
WAITED = 30
# At least so many times the transactions of tmpfs.
SERVER_TARGET = 1.2
# What two processes do in all, over what one does (a reader beside a writer: over the reader alone).
BESIDE = {"names in own directories, 2 processes": ("names in own directories, 1 process", 2, 1.8),
          "names in one directory, 2 processes": ("names in one directory, 1 process", 2, 1.2),
          "O_APPEND 100 B to one log, 2 processes": ("O_APPEND 100 B to one log, 1 process", 2, 1.0),
          "pread 4K beside a writer": ("pread 4K, alone", 1, 0.9)}
START_NS = 250_000


class Server:
    """A server in a place; `begin` gives its command, `ask` whether it answers."""

    def __init__(self, place, scratch, as_user=()):
        self.place, self.data = place, place.fresh()
        self.before = [*as_user, *place.before]
        self.sockets = scratch / f"sockets-{type(self).__name__}-{place.name}"
        self.sockets.mkdir()

    def start(self, command):
        self.log = open(self.sockets / "log", "w")
        self.process = subprocess.Popen([*map(str, self.before), *map(str, command)],
                                        stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        for _ in range(WAITED * 20):
            if self.answers():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{type(self).__name__} does not answer: {(self.sockets / 'log').read_text()[-2000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Postgres(Server):
    USER = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")

    @staticmethod
    def programs():
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[4]))
        return found[-1] if found and os.path.exists(f"{found[-1]}/pgbench") else None

    def __init__(self, place, scratch, options):
        super().__init__(place, scratch, self.USER)
        self.bin = self.programs()
        place.run("chown", "postgres:", self.data)
        os.chown(self.sockets, *[int(run("id", word, "postgres")) for word in ("-u", "-g")])
        run(*self.before, f"{self.bin}/initdb", "-D", f"{self.data}/pg", "-A", "trust", "--no-locale",
            "-E", "UTF8")
        self.start([f"{self.bin}/postgres", "-D", f"{self.data}/pg", "-k", self.sockets, "-c",
                    "listen_addresses=", "-c", "synchronous_commit=on", "-c", "shared_buffers=256MB",
                    "-c", "max_wal_size=4GB"])
        self.pgbench("-i", "-q", "-s", 1 if options.quick else 10)

    def answers(self):
        return subprocess.run([f"{self.bin}/pg_isready", "-h", str(self.sockets), "-q"]).returncode == 0

    def pgbench(self, *words):
        return run(f"{self.bin}/pgbench", "-h", self.sockets, "-U", "postgres", *words, "postgres",
                   stderr=subprocess.DEVNULL)

    def measure(self, seconds):
        told = {}
        for name, words in (("TPC-B, 1 client", ["-c", 1]), ("TPC-B, 4 clients", ["-c", 4, "-j", 2]),
                            ("select, 1 client", ["-S", "-c", 1])):
            text = self.pgbench("-n", "-T", seconds, *words)
            told[f"PostgreSQL, pgbench {name}"] = float(re.search(r"tps = ([0-9.]+)", text)[1])
        return told


class MariaDB(Server):
    @staticmethod
    def programs():
        return shutil.which("mariadbd") and shutil.which("sysbench")

    def __init__(self, place, scratch, options):
        super().__init__(place, scratch)
        self.socket = self.sockets / "sock"
        run(*self.before, "mariadb-install-db", "--no-defaults", f"--datadir={self.data}/my",
            "--user=root", stderr=subprocess.DEVNULL)
        self.start(["mariadbd", "--no-defaults", "--user=root", f"--datadir={self.data}/my",
                    f"--socket={self.socket}", "--skip-networking", "--innodb-buffer-pool-size=256M",
                    f"--pid-file={self.sockets}/pid", "--innodb-flush-log-at-trx-commit=1"])
        run("mariadb", "--no-defaults", f"--socket={self.socket}", "-e", "create database sbtest")
        self.rows = 10_000 if options.quick else 100_000
        self.sysbench(1, 1, "prepare")

    def answers(self):
        return subprocess.run(["mariadb", "--no-defaults", f"--socket={self.socket}", "-e", "select 1"],
                              capture_output=True).returncode == 0

    def sysbench(self, threads, seconds, what):
        return run("sysbench", "oltp_write_only", "--db-driver=mysql", f"--mysql-socket={self.socket}",
                   "--mysql-user=root", "--tables=1", f"--table-size={self.rows}", f"--time={seconds}",
                   f"--threads={threads}", what)

    def measure(self, seconds):
        told = {}
        for threads in (1, 4):
            text = self.sysbench(threads, seconds, "run")
            name = f"MariaDB, sysbench oltp_write_only, {threads} client{'s' if threads > 1 else ''}"
            told[name] = float(re.search(r"transactions: .*\(([0-9.]+) per sec", text)[1])
        return told


class Redis(Server):
    @staticmethod
    def programs():
        # The server is this program too, by another name (and comes without a service).
        return shutil.which("redis-check-rdb") and shutil.which("redis-benchmark")

    def __init__(self, place, scratch, options):
        super().__init__(place, scratch)
        program, self.socket = self.sockets / "redis-server", self.sockets / "sock"
        program.symlink_to(shutil.which("redis-check-rdb"))
        self.start([program, "--port", 0, "--unixsocket", self.socket, "--save", "", "--appendonly",
                    "yes", "--appendfsync", "always", "--dir", self.data])

    def answers(self):
        ping = subprocess.run(["redis-cli", "-s", str(self.socket), "ping"], capture_output=True)
        return b"PONG" in ping.stdout

    def measure(self, seconds):
        told = {}
        for clients in (1, 16):
            text = run("redis-benchmark", "-s", self.socket, "-t", "set", "-n", seconds * 20_000, "-c",
                       clients, "-d", 100, "--csv", stderr=subprocess.DEVNULL)
            name = f"redis AOF always, set, {clients} client{'s' if clients > 1 else ''}"
            told[name] = float(text.splitlines()[-1].split(",")[1].strip('"'))
        return told


def add(times, place, found):
    for row, value in found.items():
        times.setdefault(row, {}).setdefault(place.name, []).append(value)


def servers(places, scratch, options):
    times = {}
    for kind in (Postgres, MariaDB, Redis):
        if not kind.programs():
            print(f"without {kind.__name__}: it is not installed", file=sys.stderr)
            continue
        running = [kind(place, scratch, options) for place in places]
        for round in range(options.repeat + 1):
            for server in running if round % 2 else reversed(running):
                found = server.measure(1 if options.quick or round == 0 else options.seconds)
                if round > 0:
                    add(times, server.place, found)
        for server in running:
            server.stop()
    return times


def beside(places, scratch, options):
    program, times = scratch / "processes", {}
    run("cc", "-O2", "-o", program, APPS / "processes.c")
    for round in range(options.repeat + 1):
        for place in places:
            text = place.run(program, place.directory, 2000 if options.quick else 20000)
            if round > 0:
                add(times, place, {name: float(value) for name, value in
                                   (line.split("\t") for line in text.splitlines())})
    return times


def starts(scratch, options):
    """Nanoseconds of a program that does nothing: alone, and more on volumes of each size."""
    program, count, found = scratch / "processes", 100 if options.quick else 500, {}
    environments = {"alone": []}
    for size in ("64M", "64G", "1T"):
        volume = scratch / f"huge/{size}.pm"
        run(SOLERA, "format", "--size", size, volume, stderr=subprocess.DEVNULL)
        environments[size] = [f"LD_PRELOAD={LIBRARY}", f"SOLERA_VOLUME={volume}", f"SOLERA_AT={AT}"]
    # Nobody else has the volume: each start is a first one.
    for round in range(options.repeat + 1):
        for name, words in environments.items():
            value = float(run(program, "--starts", count, *words, "/bin/true"))
            if round > 0:
                found.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def spread(values):
    return (max(values) - min(values)) * 100 / statistics.median(values)


def server_table(times):
    lines = ["| in a second (spread) | solera | tmpfs, 4K pages | x tmpfs | target | reached |",
             "|---|---|---|---|---|---|"]
    for row, found in times.items():
        own, peer = (statistics.median(found[name]) for name in ("solera", "tmpfs"))
        cells = [f"{statistics.median(found[name]):,.0f} ({spread(found[name]):.0f} %)"
                 for name in ("solera", "tmpfs")]
        ends = [f"{SERVER_TARGET} x tmpfs", mark(own / peer, round(own / peer, 2) >= SERVER_TARGET)]
        if "select" in row:
            ends = ["-", "-"]
        lines.append(f"| {row} | {cells[0]} | {cells[1]} | {own / peer:.2f} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def beside_table(times):
    lines = ["| ns a step of one process (spread) | solera | tmpfs, 4K pages | x tmpfs | target | reached |",
             "|---|---|---|---|---|---|"]
    middle = {row: {name: statistics.median(values) for name, values in found.items()}
              for row, found in times.items()}
    for row, found in times.items():
        cells = [f"{middle[row][name]:,.0f} ({spread(found[name]):.0f} %)" for name in ("solera", "tmpfs")]
        target, reached = "-", "-"
        if row in BESIDE:
            one, processes, least = BESIDE[row]
            done = processes * middle[one]["solera"] / middle[row]["solera"]
            target = f"{least} x the calls of one" if processes > 1 else f"{least} of alone"
            reached = mark(done, round(done, 2) >= least)
        elif row.endswith(", fsync"):
            more = middle[row]["solera"] - middle[row.removesuffix(", fsync")]["solera"]
            target, reached = "+30 ns", mark(more, more <= middle["fsync of nothing"]["solera"] + 30)
        lines.append(f"| {row} | {cells[0]} | {cells[1]} | "
                     f"{middle[row]['solera'] / middle[row]['tmpfs']:.2f} | {target} | {reached} |")
    return "\n".join(lines)


def start_table(found):
    lines = ["| /bin/true, from start to end | us | more | target |", "|---|---|---|---|"]
    for name, value in found.items():
        more = value - found["alone"]
        where, told, target = f"on a volume of {name}", f"{more / 1000:.0f}", "+250, "
        target += "met" if more <= START_NS else "**missed**"
        if name == "alone":
            where, told, target = "without the library", "-", "-"
        lines.append(f"| {where} | {value / 1000:.0f} | {told} | {target} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short, not for figures")
    parser.add_argument("--repeat", type=int, default=5, help="runs that count, of each row")
    parser.add_argument("--seconds", type=int, default=5, help="of each run of a server")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/figures")
    options = parser.parse_args()
    own_namespaces("--mount")
    about, begun = machine(), time.monotonic()
    with two_tmpfs() as scratch:
        scratch.chmod(0o755)
        # Where every user may run it.
        command = scratch / "solera"
        for source in (SOLERA, LIBRARY):
            shutil.copy(source, scratch)
        region = scratch / "huge/v.pm"
        run("dd", "if=/dev/zero", f"of={region}", "bs=1M", f"count={1024 if options.quick else 3072}",
            stderr=subprocess.DEVNULL)
        run(SOLERA, "format", "--force", region)
        region.chmod(0o666)
        run("chmod", "-R", "a+rwX", f"{region}.solera")
        places = [Place("solera", AT, [command, "run", "--volume", region, "--at", AT, "--"]),
                  Place("tmpfs", str(scratch / "small"), [])]
        places[0].run("chmod", "1777", AT)
        told = servers(places, scratch, options)
        together = beside(places, scratch, options)
        started = starts(scratch, options)
    seconds = time.monotonic() - begun
    parts = [f"# Servers, and processes beside each other\n\nWritten by `make servers` on "
             f"{datetime.date.today()}: medians of {options.repeat}, of {options.seconds} seconds each for "
             f"servers, peers in turns. Machine: {about}. Mode strict. The column *reached* says what of the "
             "target was reached, and whether that meets it; why some are missed: "
             f"[decisions.md](../decisions.md). Taken in {seconds / 60:.0f} minutes.\n",
             f"## Servers\n\nMore is better. Clients and sockets are outside.\n\n{server_table(told)}\n",
             "## Processes\n\nLess is better. A step on names makes, closes, renames and removes a file.\n\n"
             f"{beside_table(together)}\n",
             f"## Starts\n\n{start_table(started)}\n"]
    (options.output / "servers.md").write_text(wrapped("\n".join(parts)))
    print("\n".join(parts))


if __name__ == "__main__":
    main()
