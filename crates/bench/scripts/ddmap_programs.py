#!/usr/bin/env python3
"""Takes the figures of programs in docs/figures/ddmap.md: `make ddmap-programs` (as root).

Stores of keys and values are mapped from a volume of a domain with half of their bytes on its host,
from a plain volume, and from a network file system with a cache of the same size: a memory control
group. All of it on loopback, in namespaces of this script's own, so that the bytes on the wire are
those of that loopback. With --quick everything is smaller: to see that it works, not for figures.
"""
import argparse, contextlib, json, os, pathlib, re, shutil, signal, statistics, subprocess, sys, tempfile, time

import measuring, ddmap

BEGIN, END = "<!-- programs: make ddmap-programs -->", "<!-- end of the programs -->"
AT = "/solera-ddmap-programs"
MIB = 1 << 20
# The least that `--local` takes.
LEAST = 4 * MIB
# What a program may have in memory besides what it maps: a bit more than it needs.
BESIDE = {"lmdb": 4 * MIB, "pmemobj": 16 * MIB}
SHARES = {"sshfs": "sftp", "ssh": "ssh", "gluster": "gluster"}
# Of a store: its program's library, bytes of a value, bytes that one takes, threads.
STORES = {"LMDB": ("lmdb", 1024, 2600, 1), "libpmemobj map": ("pmemobj", 4096, 4200, 8)}
# Row, store, mix, what is aimed at, operations, the driver's way.
MIXES = [("LMDB, 1 KiB, read-only", "LMDB", "read", 3, 40000, []),
         ("LMDB, 1 KiB, read-only, NORDAHEAD", "LMDB", "read", 3, 20000, ["random"]),
         ("LMDB, 1 KiB, half updates, each synced", "LMDB", "half", 2, 12000, []),
         ("LMDB, 1 KiB, half updates, WRITEMAP", "LMDB", "half", None, 200, ["stores"]),
         ("libpmemobj map, 4 KiB, 8 threads, half updates", "libpmemobj map", "half", 2, 8000, [])]
YCSB = [(f"YCSB {name} on LMDB, zipf 0.99", "LMDB", name, None, 1000 if name == "E" else 8000, [])
        for name in "ABCDEF"]
READ, LOAD = "RocksDB, mmap, readrandom (C)", "RocksDB, mmap, fillrandom (load A)"
ROCKSDB = [(READ, 2, 4 * MIB), (LOAD, 1, 20 * MIB)]


class Failed(Exception):
    pass


def run(words, **options):
    """What a program says; it is given ten minutes."""
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise Failed(f"{' '.join(words)}: exit {done.returncode}: {' / '.join(said)}")
    return done.stdout


def begun(words, **options):
    """A process, which ends with this one, and the first line that it prints."""
    words = ["setpriv", "--pdeathsig", "TERM", *map(str, words)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, **options)
    return process, process.stdout.readline()


def ended(process):
    """Its input ends, and nodes are asked to go; what it has under way may take a while."""
    process.stdin.close()
    if "node" in process.args:
        process.terminate()
    for patience in (30, 5):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(patience)
        process.kill()


class Volume:
    """A volume: of a domain, or a plain file."""

    filled_in = directory = AT

    def __init__(self, name, words, is_ddmap):
        self.name, self.words, self.is_ddmap = name, words, is_ddmap

    def prefix(self, local=None, beside=0):
        more = ["--local", local] if self.is_ddmap and local else []
        return [measuring.SOLERA, "run", *self.words, *more, "--at", AT, "--"]

    filling = prefix

    def forget(self):
        """Of a domain: next to nothing of it is on its host, so that all begin in the same way."""
        if not self.is_ddmap:
            return
        holding = subprocess.Popen([str(word) for word in [*self.prefix(LEAST), "cat"]], stdin=subprocess.PIPE)
        try:
            for _ in range(200):
                about = json.loads(run([measuring.SOLERA, "domain", "status", "--json", "demo"]))["volumes"][0]
                if about["here_bytes"] - about["stays_bytes"] <= LEAST:
                    return
                time.sleep(0.1)
            raise Failed(f"the volume's pages do not leave its host: {about}")
        finally:
            ended(holding)


class Share:
    """A directory of a network file system, whose cache is limited for who runs on it."""

    def __init__(self, name, told, group):
        self.name, self.group = name, group
        self.filled_in, self.directory = told["served"], pathlib.Path(told["mounted"])

    def prefix(self, local, beside):
        return self.group.prefix(local + beside)

    def filling(self):
        return []

    def forget(self):
        """Nothing of it is in the kernel's cache."""
        for path in pathlib.Path(self.filled_in).rglob("*"):
            if path.is_file() and ".glusterfs" not in path.parts:
                with open(self.directory / path.relative_to(self.filled_in), "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Group:
    """A memory control group."""

    def __init__(self):
        name = f"solera-ddmap-{os.getpid()}"
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.path = pathlib.Path(root) / name
            if not (pathlib.Path(root) / "cgroup.procs").exists():
                continue
            with contextlib.suppress(OSError):
                self.path.mkdir()
                if (self.path / limit).exists():
                    self.limit = self.path / limit
                    return
                self.path.rmdir()
        raise Failed("no memory control group can be made here: the peers' cache cannot be limited")

    def prefix(self, limit):
        self.limit.write_text(str(limit))
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def remove(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                return self.path.rmdir()
            time.sleep(0.1)


def wire():
    """Bytes that have gone over this name space's loopback."""
    for line in open("/proc/net/dev"):
        if line.split(":")[0].strip() == "lo":
            return int(line.split(":")[1].split()[0])
    return 0


class Rows:
    """What was measured: of each row and place, a value each round."""

    def __init__(self):
        self.found, self.skipped = {}, []

    def add(self, row, unit, aim, place, value):
        entry = self.found.setdefault(row, {"unit": unit, "aim": aim, "values": {}})
        entry["values"].setdefault(place, []).append(value)

    def measured(self, row, aim, place, per_second, bytes_each):
        self.add(row, "1,000/s", aim, place.name, per_second / 1000)
        if place.name != "local":
            self.add(f"{row}: on the wire", "KiB each", None, place.name, bytes_each / 1024)

    def report(self):
        rows = []
        for row, entry in self.found.items():
            told = {name: self.middle(values) for name, values in entry["values"].items()}
            own = told.pop("ddmap", None)
            if own is None:
                continue
            peers = []
            for name, peer in told.items():
                ratio = own["value"] / peer["value"]
                peer.update(peer=name, ratio=ratio, more=own["value"] - peer["value"])
                if entry["aim"] and name != "local":
                    peer.update(at_least=entry["aim"], met=round(ratio, 2) >= entry["aim"])
                peers.append(peer)
            rows.append({"row": row, "unit": entry["unit"], **own, "peers": peers})
        return rows

    @staticmethod
    def middle(values):
        middle = statistics.median(values)
        return {"value": middle, "spread_percent": (max(values) - min(values)) * 100 / middle if middle else 0}


def told(what):
    """How far it is; on a terminal it stays on one line."""
    print(f"\r\033[K{what}" if sys.stderr.isatty() else what, end="" if sys.stderr.isatty() else "\n",
          file=sys.stderr, flush=True)


def drivers(scratch, rows):
    built = {}
    for store, (library, *_) in STORES.items():
        program = scratch / library
        words = ["g++", "-O2", "-std=c++17", "-w", "-pthread", "-o", program, measuring.APPS / f"{library}_mixes.cc",
                 f"-l{library}"]
        try:
            run(words)
            built[store] = program
        except (OSError, Failed):
            rows.skipped.append(f"{store}: it does not compile here (g++, lib{library}-dev)")
    return built


def mixes(places, built, rows, options):
    """Stores of our drivers: the same mixes on each place in turns; the results are the same."""
    for store, program in built.items():
        library, value, each, threads = STORES[store]
        count = options.mib * MIB // each // threads * threads
        chosen = [mix for mix in MIXES + (YCSB if options.ycsb else []) if mix[1] == store]
        local = {}
        for place in places:
            told(f"{store}: fill, {place.name}")
            words = [*place.filling(), program, "fill", f"{place.filled_in}/{library}", count, value]
            local[place] = int(run(words).split()[1]) // 2
        for round in range(options.rounds):
            for row, _, mix, aim, ops, way in chosen:
                ops = ops // (10 if options.quick else 1) // threads * threads
                for place in places:
                    told(f"{row}: round {round + 1} of {options.rounds}, {place.name}")
                    place.forget()
                    before = wire()
                    said = run([*place.prefix(local[place], BESIDE[library]), program, "run", f"{place.directory}/{library}", count,
                                value, mix, ops, threads, round + 1, *way])
                    # As many do not count ahead.
                    rows.measured(row, aim, place, 1e9 / float(said.split()[1]), (wire() - before) / (2 * ops))
        sums = {}
        for place in places:
            told(f"{store}: all of it again, {place.name}")
            words = [*place.prefix(local[place], BESIDE[library]), program, "sum", f"{place.directory}/{library}", count, value]
            sums.setdefault(run(words).strip(), []).append(place.name)
        if len(sums) != 1:
            raise Failed(f"{store} has not the same everywhere: {sums}")
        for place in places:
            run([*place.filling(), "rm", "-rf", f"{place.directory}/{library}"])


def db_bench(prefix, path, what, count, *more):
    """Operations a second of the last part."""
    said = run([*prefix, "db_bench", f"--db={path}", f"--benchmarks={what}", f"--num={count}", "--value_size=1000",
                "--compression_type=none", "--mmap_read=1", "--mmap_write=1", "--seed=1", "--write_buffer_size=4194304",
                "--target_file_size_base=4194304", "--max_background_jobs=2", *more])
    found = re.findall(r"^\w+ +: +[\d.]+ micros/op (\d+) ops/sec", said, re.MULTILINE)
    if not found:
        raise Failed(f"db_bench {what}: no rate in {said[-200:]!r}")
    return int(found[-1])


def rocksdb(places, rows, options):
    if not shutil.which("db_bench"):
        rows.skipped.append("RocksDB: there is no db_bench (rocksdb-tools)")
        return
    count = options.mib * MIB // 1100
    reads = 2000 if options.quick else 20000
    local = {}
    for place in places:
        told(f"RocksDB: fill, {place.name}")
        path = f"{place.filled_in}/rocksdb"
        db_bench(place.filling(), path, "fillseq", count)
        used = run([*place.filling(), "du", "--bytes", "--summarize", path])
        local[place] = int(used.split()[0]) // 2
    for round in range(options.rounds):
        for row, aim, beside in ROCKSDB:
            for place in places:
                told(f"{row}: round {round + 1} of {options.rounds}, {place.name}")
                place.forget()
                before, prefix = wire(), place.prefix(local[place], beside)
                if row == READ:
                    rate = db_bench(prefix, f"{place.directory}/rocksdb", "readrandom,readrandom", count,
                                    "--use_existing_db=1", f"--reads={reads}")
                    each = (wire() - before) / (2 * reads)
                else:
                    rate = db_bench(prefix, f"{place.directory}/load", "fillrandom", count)
                    each = (wire() - before) / count
                    run([*place.filling(), "rm", "-rf", f"{place.directory}/load"])
                rows.measured(row, aim, place, rate, each)
    for place in places:
        run([*place.filling(), "rm", "-rf", f"{place.directory}/rocksdb"])


def volumes(scratch, stack, options):
    """A domain of four nodes, of which each has room for all, and a plain volume."""
    capacity = options.mib * MIB * 2
    nodes, said = begun([measuring.SOLERA, "node", "--demo", 4, "--capacity", capacity, "--store", scratch / "nodes"])
    stack.callback(ended, nodes)
    if not said:
        raise Failed("the nodes do not start")
    run([measuring.SOLERA, "format", "--ddmap", "demo/v", "--size", options.mib * MIB * 5])
    yield Volume("ddmap", ["--ddmap", "demo/v"], True)
    if "local" in options.peers:
        run([measuring.SOLERA, "format", "--size", options.mib * MIB * 5, scratch / "plain.pm"])
        yield Volume("local", ["--volume", scratch / "plain.pm"], False)


def shares(scratch, stack, rows, options):
    wanted = [peer for peer in options.peers if peer in SHARES]
    if not wanted:
        return
    group = Group()
    stack.callback(group.remove)
    for peer in wanted:
        words = [measuring.SOLERA, "bench", "ddmap-worker", "share", SHARES[peer], scratch / peer]
        process, said = begun(words, stderr=subprocess.PIPE)
        stack.callback(ended, process)
        if said:
            about = json.loads(said)
            yield Share(about["name"], about, group)
        else:
            rows.skipped.append(f"{peer}: {process.stderr.read().strip().rsplit(': ', 1)[-1]}")


def measure(options, rows):
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="solera-ddmap-")))
        os.environ["XDG_RUNTIME_DIR"] = str(scratch / "run")
        (scratch / "run").mkdir(mode=0o700)
        places = [*volumes(scratch, stack, options), *shares(scratch, stack, rows, options)]
        built = drivers(scratch, rows)
        wanted = {store for store in built if store.split()[0].lower() in options.programs}
        mixes(places, {store: built[store] for store in built if store in wanted}, rows, options)
        if "rocksdb" in options.programs:
            rocksdb(places, rows, options)
    told("")


def words_of(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="each program's runs on each place")
    parser.add_argument("--mib", type=int, default=128, help="about the size of each store, in MiB")
    parser.add_argument("--peers", type=words_of, default=["local", "sshfs", "gluster"],
                        help="local, sshfs (without encryption), ssh (sshfs as it comes), gluster")
    parser.add_argument("--programs", type=words_of, default=["lmdb", "libpmemobj", "rocksdb"],
                        help="lmdb, libpmemobj, rocksdb")
    parser.add_argument("--ycsb", action="store_true", help="YCSB's A to F on LMDB, too")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    parser.add_argument("--json", action="store_true", help="print JSON, and leave the page alone")
    parser.add_argument("--page", type=pathlib.Path, default=measuring.ROOT / "docs/figures/ddmap.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("ddmap_programs: it takes root: mounts, and a limit for their cache")
    if options.quick:
        options.rounds, options.mib = 1, min(options.mib, 24)
    about = measuring.machine()
    measuring.own_namespaces("--mount", "--net")
    run(["ip", "link", "set", "lo", "up"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = Rows()
    try:
        measure(options, rows)
    except (Failed, subprocess.TimeoutExpired) as error:
        sys.exit(f"ddmap_programs: {error}")
    report = {"rounds": options.rounds, "mib": options.mib, "rows": rows.report(), "skipped": rows.skipped}
    if options.json:
        return print(json.dumps(report, indent=1))
    text = ddmap.taken(report, about, f"medians of {options.rounds}, places in turns. Stores of about {options.mib} MiB, "
                       "half of each on the host; 4 nodes on loopback.")
    ddmap.put(options.page, BEGIN, END, f"{text}\n\n{ddmap.table(report)}")
    print(ddmap.table(report))


if __name__ == "__main__":
    main()
