"""A domain for tests: nodes in network namespaces of their own, what runs on them, and how they fail.

All of it lives in the namespaces that `run` makes: processes, mounts and devices end with them.
"""

import ctypes
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOLERA = os.environ.get("SOLERA") or os.path.join(ROOT, "target/release/solera")
# Where stores lie: a tmpfs of the test's own.
MEMORY = "/dev/shm"
PORT = 7470
CAPACITY_MIB = 16
# Of a holder where each page lies with two.
HOLDER_MIB = 28
VOLUME_MIB = 48
# The file: written once, and left for `fresh`. Twice what its host has.
FILLED, SPARE = 6144, 3072
# What no command may take longer than, in seconds.
COMMAND_MAX = 60
KINDS = ("roam", "near", "fresh", "idle")


class Failed(Exception):
    """What is promised does not hold."""


class Skipped(Exception):
    """This machine cannot do it."""


def ends_with_us():
    """In a child, before it begins: it is killed with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def started(line, **options):
    """A process in a group of its own."""
    return subprocess.Popen(line, start_new_session=True, preexec_fn=ends_with_us, **options)


def kill(process):
    """Kills a process that `started` began, and all of its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def ran(line, seconds=COMMAND_MAX, **options):
    """What a command says, and its exit code; it is killed, with what it began, after `seconds`."""
    process = started(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    try:
        said = process.communicate(timeout=seconds)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        kill(process)
        raise Failed(f"{' '.join(line)}: not done after {seconds} s") from None
    return process.returncode, said


def must(line, **options):
    code, said = ran(line, **options)
    if code:
        raise Failed(f"{' '.join(line)}: exit code {code}: {said.strip()}")
    return said


def until(what, holds, seconds):
    """Waits until `holds()`, or fails with `what`, or what that says then; gives the seconds it
    took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > seconds:
            raise Failed(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return time.monotonic() - begun


def lives(process):
    """Whether a process has not ended: orphans that have are not waited for."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


class Space:
    """A network namespace, which lives as long as a process that sleeps in it."""

    def __init__(self):
        line = ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        self.process = started(line, stdout=subprocess.PIPE)
        self.process.stdout.readline()
        self.number = str(self.process.pid)
        self.ip("link set lo up")

    def within(self, line):
        return ["nsenter", f"--net=/proc/{self.number}/ns/net", *line]

    def ip(self, words):
        must(self.within(["ip", *words.split()]))

    def end(self):
        kill(self.process)


class Wire:
    """A link through `wire.c`, which can be slow, lossy and deaf."""

    def __init__(self, program, node, hub, number, seed):
        line = [program, node.number, "eth0", hub.number, f"v{number}", str(seed)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = started(line, **pipes)
        if self.process.stdout.readline() != "ready\n":
            raise Skipped("there are no TAP devices (/dev/net/tun)")

    def set(self, words):
        """Gives how many frames are still to be damaged."""
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().split()
        if said[:1] != ["ok"]:
            raise Failed(f"the wire does not take '{words}'")
        return int(said[1])


class Node:
    """A node of the domain, in its own namespace."""

    def __init__(self, domain, number, wired, options):
        self.domain, self.number, self.options = domain, number, options
        self.space, self.wire, self.process, self.known_as = Space(), None, None, number
        self.address = f"10.77.0.{number}"
        self.store = f"{domain.folder}/node{number}"
        self.log = f"{domain.folder}/node{number}.log"
        self.runtime = f"{domain.folder}/run{number}"
        os.mkdir(self.runtime, 0o700)
        hub = domain.hub
        if wired:
            self.wire = Wire(domain.programs["wire"], self.space, hub, number, domain.seed + number)
        else:
            pair = f"link add v{number} type veth peer name eth0 netns {self.space.number}"
            hub.ip(pair)
        hub.ip(f"link set v{number} master hub up")
        self.space.ip(f"addr add {self.address}/24 dev eth0")
        self.space.ip("link set eth0 up")

    def capacity_mib(self):
        is_larger = self.domain.copies == 2 and self.number != self.domain.host_number
        return HOLDER_MIB if is_larger else CAPACITY_MIB

    def environment(self):
        return {**os.environ, "XDG_RUNTIME_DIR": self.runtime}

    def start(self):
        """Starts it, also with a store that it had."""
        line = [SOLERA, "node", "--domain", "dm", "--listen", f"{self.address}:{PORT}", "--store"]
        line += [self.store, "--capacity", f"{self.capacity_mib()}M", *self.options]
        if self.number != 1 and not os.path.exists(f"{self.store}/node"):
            line += ["--join", f"10.77.0.{self.domain.first}:{PORT}"]
        begun = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            output = {"stdout": log, "stderr": log, "env": self.environment()}
            self.process = started(self.space.within(line), **output)

        def is_up():
            with open(self.log, encoding="utf-8", errors="replace") as log:
                log.seek(begun)
                said = log.read()
            if self.process.poll() is not None:
                raise Failed(f"node {self.number} does not start: {said.strip()}")
            return " at " in said

        until(f"node {self.number} is up", is_up, 20)
        with open(self.log, encoding="utf-8", errors="replace") as log:
            # One that joins gets the next number.
            self.known_as = int(log.read().split("node ", 1)[1].split()[0])

    def kill(self):
        kill(self.process)

    def signal(self, number):
        self.process.send_signal(number)

    def link(self, state):
        """Pulls its cable out of the hub (`down`), or puts it back (`up`)."""
        self.domain.hub.ip(f"link set v{self.number} {state}")

    def command(self, *words):
        """A line and its environment: `solera` on this machine."""
        return self.space.within([SOLERA, *words]), {"env": self.environment()}

    def solera(self, *words):
        line, options = self.command(*words)
        return must(line, **options)

    def status(self):
        return json.loads(self.solera("domain", "status", "--json", "dm"))

    def end(self):
        if self.process:
            kill(self.process)
        if self.wire:
            kill(self.wire.process)
        self.space.end()


class Ledger:
    """What `pages.c` notes down, read while it runs; the layout is its `struct ledger`."""

    SLOT, SLOTS, HEAD = 128, 256, 128
    FIELDS = ("process", "kind", "accesses", "longest_ns", "since_ns", "adds_begun", "adds_done",
              "unavailable", "wrong")

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def number(self, at, to=None):
        if to is not None:
            struct.pack_into("<Q", self.memory, at, to)
        return struct.unpack_from("<Q", self.memory, at)[0]

    def stop(self, yes):
        self.number(24, int(yes))

    def slots(self):
        """One dictionary for each thread that ever worked; `at` is where it stands."""
        for slot in range(min(self.number(16), self.SLOTS)):
            at = self.HEAD + slot * self.SLOT
            values = struct.unpack_from("<9Q", self.memory, at)
            its = dict(zip(self.FIELDS, values), at=at)
            its["kind"] = KINDS[its["kind"]]
            # What waits now counts, too; the dead wait for nothing.
            if its["since_ns"] and lives(its["process"]):
                waits_ns = time.monotonic_ns() - its["since_ns"]
                its["longest_ns"] = max(its["longest_ns"], waits_ns)
            yield its

    def forget_longest(self):
        for its in self.slots():
            self.number(its["at"] + 24, 0)


class Program:
    """`pages work` under `solera run`."""

    def __init__(self, domain, kind, processes, threads):
        self.kind, self.log = kind, f"{domain.folder}/program{len(domain.loads)}.log"
        words = ["work", "/dm/file", domain.ledger_path, kind, str(processes), str(threads)]
        line, options = domain.pages(*words)
        with open(self.log, "wb") as log:
            self.process = started(line, stdout=log, stderr=log, **options)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read().strip()

    def signal(self, number):
        """To all of its processes."""
        os.killpg(self.process.pid, number)


class Domain:
    """Nodes 1 to 4, a volume of which one is the host, and a file on it twice as large as that."""

    def __init__(self, programs, seed, host=1, wired=(), patience=20, file=True, nodes=4, copies=1,
                 active=()):
        self.programs, self.seed, self.patience = programs, seed, patience
        self.copies, self.host_number, self.first = copies, host, 1
        self.folder = f"{MEMORY}/domain{time.monotonic_ns()}"
        os.mkdir(self.folder)
        self.loads, self.nodes, self.hub, self.host, self.ledger = [], {}, None, None, None
        try:
            self.hub = Space()
            self.hub.ip("link add hub type bridge")
            self.hub.ip("link set hub up")
            for number in range(1, nodes + 1):
                options = [] if number == host or number in active else ["--passive"]
                self.add(number, number in wired, options).start()
            self.host = self.nodes[host]
            until("the host knows all", lambda: len(self.host.status()["nodes"]) == nodes, 10)
            self.host.solera("format", "--ddmap", "dm/v", "--size", f"{VOLUME_MIB}M", "--copies",
                             str(copies))
            self.ledger_path = f"{self.folder}/ledger"
            if file:
                self.make()
        except BaseException:
            self.end()
            raise

    def add(self, number, wired=False, options=("--passive",)):
        """Another machine; its node is not started."""
        self.nodes[number] = Node(self, number, wired, options)
        return self.nodes[number]

    def split(self, numbers):
        """Cuts these nodes from all others; none: all reach each other again."""
        if numbers:
            self.hub.ip("link add beside type bridge")
            self.hub.ip("link set beside up")
            for number in numbers:
                self.hub.ip(f"link set v{number} master beside")
        else:
            for number in self.nodes:
                self.hub.ip(f"link set v{number} master hub")
            self.hub.ip("link delete beside")

    def is_first(self, number, term):
        """Waits until all nodes say that this one is first, in this term."""
        def says(node):
            status = node.status()
            return (status["first"], status["term"]) == (number, term)
        until(lambda: [(node.status()["first"], node.status()["term"])
                       for node in self.nodes.values()],
              lambda: all(says(node) for node in self.nodes.values()), 20)

    def holders(self):
        return [node for node in self.nodes.values() if node is not self.host]

    def run(self, *words):
        """A line and its environment: a program on the volume."""
        return self.host.command(
            "run", "--ddmap", "dm/v", "--patience", f"{self.patience}s", "--", *words)

    def pages(self, *words):
        return self.run(self.programs["pages"], *words)

    def make(self):
        line, options = self.pages("make", "/dm/file", self.ledger_path, str(FILLED), str(SPARE))
        must(line, **options)
        self.ledger = Ledger(self.ledger_path)

    def start(self, kind, processes=1, threads=2):
        """A program that works; it has touched something when this returns."""
        known = len(list(self.ledger.slots()))
        program = Program(self, kind, processes, threads)
        self.loads.append(program)

        def works():
            if program.process.poll() is not None:
                raise Failed(f"'{kind}' ended at once: {program.said()}")
            new = list(self.ledger.slots())[known:]
            return len(new) >= processes * threads and (
                kind == "idle" or all(its["accesses"] for its in new))

        until(f"'{kind}' works", works, 20)
        return program

    def start_all(self):
        """Who roams over the file, who stays in a small part, who writes what is new."""
        self.start("roam")
        self.start("roam", 1, 1)
        self.start("near", 1, 4)
        self.start("fresh", 1, 1)

    def accesses(self, *kinds):
        """How often something was touched so far."""
        return sum(its["accesses"] for its in self.ledger.slots() if its["kind"] in kinds)

    def go_on(self, *kinds, times=50, seconds=5):
        """Those kinds touch something, so many times."""
        begun = self.accesses(*kinds)
        what = f"{' and '.join(kinds)} go on"
        return until(what, lambda: self.accesses(*kinds) >= begun + times, seconds)

    def all_go_on(self, seconds=10):
        """Each thread that lives touches something."""
        begun = {its["at"]: its["accesses"] for its in self.living()}

        def done():
            return all(its["accesses"] > begun.get(its["at"], 0) for its in self.living())

        return until("each thread goes on", done, seconds)

    def living(self):
        groups = {load.process.pid for load in self.loads if load.process.poll() is None}
        for its in self.ledger.slots():
            if its["kind"] == "idle" or not lives(its["process"]):
                continue
            if os.getpgid(its["process"]) in groups:
                yield its

    def waiting(self, *kinds):
        """The longest that one of those kinds waits now, in seconds."""
        now = time.monotonic_ns()
        return max((now - its["since_ns"] for its in self.living()
                    if its["kind"] in kinds and its["since_ns"]), default=0) / 1e9

    def longest(self, *kinds):
        """The longest access of those kinds since `forget`."""
        return max((its["longest_ns"] for its in self.ledger.slots() if its["kind"] in kinds),
                   default=0) / 1e9

    def unavailable(self):
        return sum(its["unavailable"] for its in self.ledger.slots())

    def volume(self):
        return self.host.status()["volumes"][0]

    def pages_leave(self, least=64, seconds=10):
        """Pages are sent away from now on."""
        begun = self.volume()["evicted_pages"]
        until("pages leave", lambda: self.volume()["evicted_pages"] >= begun + least, seconds)

    def settle(self):
        """Programs work, pages leave, and nothing is bad yet; what they waited so far is forgotten."""
        self.start_all()
        self.pages_leave(500, 20)
        self.ledger.forget_longest()

    def directory(self):
        """The words of the directory that are not zeros, and which page of the region is theirs."""
        with open(f"{self.host.store}/volumes/v/directory", "rb") as file:
            words = file.read()
        for page, (word,) in enumerate(struct.iter_unpack("<Q", words)):
            if word:
                yield page, word

    def holders_of(self, word):
        """The nodes besides the host that have a page, as its word of the directory says."""
        owner, other = word >> 50 & 0xFFF, word >> 38 & 0xFFF
        if word >> 62 != 1 or owner == self.host.known_as:
            return []
        return [owner, other] if other else [owner]

    def held(self, number):
        """The pages that a node has, as the directory says."""
        known_as = self.nodes[number].known_as
        return [page for page, word in self.directory() if known_as in self.holders_of(word)]

    def spares(self, number):
        """The pages of the host's of which a node has a spare, if it has not dropped it."""
        host, known_as = self.host.known_as, self.nodes[number].known_as
        return [page for page, word in self.directory() if word >> 62 == 1
                and word >> 50 & 0xFFF == host and word >> 38 & 0xFFF == known_as]

    def single(self):
        """The pages that only one node has, or none that was not removed."""
        gone = {its["node"] for its in self.host.status()["nodes"] if its["standing"] == "gone"}
        holders = ((page, self.holders_of(word)) for page, word in self.directory())
        return [page for page, nodes in holders if nodes and len(set(nodes) - gone) < 2]

    def is_whole(self, seconds=60):
        """Waits until each page that is away has two holders: how long that took."""
        def is_so():
            return self.volume()["single_bytes"] == 0 and not self.single()
        return until("each page has two holders", is_so, seconds)

    def lose(self, number):
        """A node is killed, and its store is gone."""
        self.nodes[number].kill()
        shutil.rmtree(self.nodes[number].store)

    def forget(self, number):
        """It is removed from the domain, once it was not heard of for long enough."""
        self.host.solera("domain", "forget", "dm", str(self.nodes[number].known_as))
        self.nodes.pop(number).end()

    def set_directory(self, page, word):
        with open(f"{self.host.store}/volumes/v/directory", "r+b") as file:
            os.pwrite(file.fileno(), struct.pack("<Q", word), page * 8)

    def kept(self, number):
        """How many pages a node keeps, as it says."""
        return sum(its["bytes"] for its in self.nodes[number].status()["kept"]) // 4096

    def stop_programs(self, codes=(0,), seconds=20):
        """Ends those that live, and fails where one did not end as it should."""
        self.ledger.stop(True)
        ends = time.monotonic() + seconds
        for load in self.loads:
            try:
                code = load.process.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"'{load.kind}' does not end within {seconds} s") from None
            if code not in codes and code != -signal.SIGKILL:
                raise Failed(f"'{load.kind}' ends with {code}: {load.said()}")
        self.loads.clear()
        self.ledger.stop(False)

    def check(self, how, codes=(0,), enough=None):
        """Looks at all pages, or until `enough` could not be had, and gives what it says."""
        words = [] if enough is None else [str(enough)]
        line, options = self.pages("check", "/dm/file", self.ledger_path, how, *words)
        code, said = ran(line, seconds=120, **options)
        if code not in codes:
            raise Failed(f"pages check {how}: exit code {code}: {said.strip()}")
        return said

    def verify(self):
        """All pages are there and right, mapped and by calls, and the volume is clean."""
        self.check("load")
        self.check("read")
        self.fsck()

    def fsck(self):
        said = self.host.solera("fsck", "dm/v")
        if "clean" not in said:
            raise Failed(f"fsck: {said.strip()}")

    def state(self):
        """How things stand, in words."""
        for its in self.living() if self.ledger else []:
            waits = (time.monotonic_ns() - its["since_ns"]) / 1e9 if its["since_ns"] else 0
            yield (f"'{its['kind']}', process {its['process']}: {its['accesses']} pages, waits "
                   f"{waits:.1f} s, at most {its['longest_ns'] / 1e9:.1f} s, "
                   f"{its['unavailable']} refused, {its['wrong']} wrong")
        if self.host and self.host.process.poll() is None:
            line, options = self.host.command("domain", "status", "dm")
            try:
                yield from ran(line, seconds=10, **options)[1].splitlines()
            except Failed as failed:
                yield str(failed)

    def end(self):
        for load in self.loads:
            kill(load.process)
        for node in self.nodes.values():
            node.end()
        if self.hub:
            self.hub.end()
        shutil.rmtree(self.folder, ignore_errors=True)
