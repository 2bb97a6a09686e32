"""What fails, and what is promised there: each row of docs/ddmap.md, "What is promised", and more.

A case makes a domain, lets programs use it, breaks something, and looks at three things: who waits
and who goes on meanwhile; that all go on once it is mended; that then every byte is what was
stored, no increment is lost, and the volume is clean.
"""

import os
import random
import shutil
import signal
import time

from domain import Failed, Skipped, must, ran, started, until

STOP, CONT, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
# What two busy processors may add to a time, in seconds.
SLACK = 4
# For so long a holder gets no pages that did not answer, in seconds.
LEFT_ALONE = 8
CASES = {}


class Case:
    """A test, its row of the table, and what it saw."""

    def __init__(self, work, fails, waits, short):
        self.work, self.fails, self.waits, self.short = work, fails, waits, short
        self.name = work.__name__.replace("_", "-")
        self.known = KNOWN.get(self.name)
        # The longest wait of all programs, and of that whose pages are nearly always here; seconds.
        self.longest = self.others = None


def case(fails, waits, short=False):
    def keep(work):
        made = Case(work, fails, waits, short)
        CASES[made.name] = made
        return work
    return keep


# Cases that fail, and why: they run when they are named.
KNOWN = {}


def expect(holds, what):
    if not holds:
        raise Failed(what)


def seen(new, domain):
    """Notes down what was waited since programs were settled."""
    new.case.longest = domain.longest("roam", "near", "fresh")
    new.case.others = domain.longest("near")


def nothing_in_vain(domain):
    """Holders keep what the directory says they have, spares, and no more than a batch besides."""
    for node in domain.holders():
        def besides(node=node):
            return domain.kept(node.number) - len(domain.held(node.number))

        def most(node=node):
            return 128 + len(domain.spares(node.number))
        until(lambda: f"node {node.number} drops what it keeps in vain: {besides()} pages, {most()}",
              lambda: 0 <= besides() <= most(), 15)


def is_mended(new, domain, seconds=10, lasted=0, most=SLACK):
    """All go on and end well, and everything is right. What was broken for so many seconds has
    delayed somebody, and nobody longer than it and `most`."""
    domain.all_go_on(seconds)
    seen(new, domain)
    longest = new.case.longest
    expect(longest > lasted * 0.6, f"nobody has waited: {longest:.1f} s of {lasted} s")
    expect(longest < lasted + most, f"somebody has waited for {longest:.1f} s, not {lasted} s")
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)


# Programs


@case("nothing", "nobody", short=True)
def nothing(new):
    domain = new()
    domain.settle()
    domain.go_on("roam", "near", "fresh", times=5000, seconds=60)
    is_mended(new, domain)


@case("a program is killed, again and again, while pages leave", "nobody", short=True)
def program_killed(new):
    domain = new()
    domain.settle()
    living = domain.volume()["processes"]
    for _ in range(6):
        victim = domain.start("roam", 2)
        time.sleep(0.2)
        victim.signal(KILL)
        domain.all_go_on(3)
        until("its slots are taken back", lambda: domain.volume()["processes"] <= living, 4)
    domain.pages_leave()
    is_mended(new, domain)


@case("one process of a program is killed, the others live", "nobody")
def process_killed(new):
    domain = new()
    domain.settle()
    family = domain.start("roam", 4, 1)
    children = [its["process"] for its in domain.living()
                if os.getpgid(its["process"]) == family.process.pid]
    for child in children[:3]:
        os.kill(child, KILL)
        domain.all_go_on(3)
    is_mended(new, domain)


@case("a program is stopped", "who wants a page that it was bringing", short=True)
def program_stopped(new):
    domain = new()
    domain.settle()
    victim = domain.start("roam", 2)
    domain.ledger.forget_longest()
    victim.signal(STOP)
    domain.pages_leave(200)
    time.sleep(3)
    domain.pages_leave(200)
    # Its own clock stood still: what counts is how long the others waited.
    domain.go_on("near", times=1000)
    domain.go_on("fresh", times=100)
    others = [its["longest_ns"] / 1e9 for its in domain.living()
              if os.getpgid(its["process"]) != victim.process.pid]
    victim.signal(CONT)
    domain.all_go_on()
    new.case.longest, new.case.others = max(others), domain.longest("near")
    domain.stop_programs()
    domain.verify()


@case("a program is stopped, then killed", "who wants a page that it was bringing")
def program_stopped_and_killed(new):
    domain = new()
    domain.settle()
    for _ in range(5):
        victim = domain.start("roam")
        victim.signal(STOP)
        time.sleep(0.2)
        victim.signal(KILL)
        domain.all_go_on(3)
    is_mended(new, domain)


# The host's node


@case("the host's node is killed for 3 s", "touches that need room", short=True)
def host_node_killed(new):
    domain = new()
    domain.settle()
    # Its pages are there, and there is room.
    domain.go_on("near", times=1000)
    domain.host.kill()
    domain.go_on("near", times=1000)
    time.sleep(2)
    domain.go_on("near", times=1000)
    expect(domain.waiting("roam", "fresh") > 0.5, "nobody waits for room")
    line, options = domain.run("true")
    code, said = ran(line, **options)
    expect(code == 125, f"a new program is not refused: exit code {code}, {said.strip()}")
    domain.host.start()
    domain.all_go_on()
    domain.pages_leave()
    is_mended(new, domain, lasted=3)


@case("the host's node is killed; a program does nothing meanwhile", "touches that need room")
def host_node_killed_beside_idle(new):
    domain = new()
    domain.settle()
    domain.start("idle")
    domain.host.kill()
    time.sleep(1)
    domain.host.start()
    domain.pages_leave()
    is_mended(new, domain)


@case("the host's node is killed; a program forks meanwhile", "the child, for the node")
def host_node_killed_under_fork(new):
    domain = new(patience=5)
    line, options = domain.run("sh", "-c", "sleep 2; sleep 0.1; echo lived $?")
    with new.thread(lambda: ran(line, **options)) as shell:
        time.sleep(1)
        domain.host.kill()
        time.sleep(2)
        domain.host.start()
        code, said = shell()
    expect((code, said.strip()) == (0, "lived 0"), f"exit code {code}: {said.strip()}")
    domain.verify()


@case("the host's node is stopped for 3 s", "touches that need room")
def host_node_stopped(new):
    domain = new()
    domain.settle()
    domain.host.signal(STOP)
    time.sleep(3)
    domain.go_on("near", times=1000)
    domain.host.signal(CONT)
    is_mended(new, domain, lasted=3)


@case("the host's node is killed while a holder is stopped", "touches of its pages")
def host_node_killed_beside_stopped_holder(new):
    domain = new()
    domain.settle()
    domain.nodes[2].signal(STOP)
    time.sleep(1)
    domain.host.kill()
    domain.host.start()
    time.sleep(3)
    domain.nodes[2].signal(CONT)
    domain.all_go_on(10)
    domain.pages_leave()
    seen(new, domain)
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)


# Holders


@case("a holder is stopped for 3 s", "touches of its pages", short=True)
def holder_stopped(new):
    domain = new()
    domain.settle()
    domain.nodes[2].signal(STOP)
    time.sleep(2)
    expect(domain.waiting("roam") > 1, "nobody waits for its pages")
    domain.go_on("near", times=1000)
    # What it writes needs room: pages leave for other holders.
    domain.go_on("fresh", times=100, seconds=4)
    domain.nodes[2].signal(CONT)
    is_mended(new, domain, lasted=3)


@case("a holder is stopped for longer than `--patience` (2 s)", "touches of its pages; SIGBUS, EIO")
def holder_stopped_past_patience(new):
    domain = new(patience=2)
    domain.settle()
    domain.nodes[2].signal(STOP)
    time.sleep(5)
    are_refused(new, domain)
    domain.nodes[2].signal(CONT)
    domain.verify()


def are_refused(new, domain):
    """Pages of a holder that is not there: refused by name after the patience, and never wrong."""
    expect(domain.unavailable() > 0, "no touch was refused")
    domain.go_on("near", times=1000)
    seen(new, domain)
    longest = new.case.longest
    expect(longest < 2 * domain.patience + SLACK, f"somebody has waited for {longest:.1f} s")
    domain.stop_programs(codes=(0, 3))
    said = domain.check("load", codes=(3,), enough=2)
    expect(" 2 SIGBUS, 0 EIO, 0 wrong" in said, said)
    said = domain.check("read", codes=(3,), enough=2)
    expect(" 0 SIGBUS, 2 EIO, 0 wrong" in said, said)


@case("a holder is killed, and started again after 2 s", "touches of its pages", short=True)
def holder_killed(new):
    domain = new()
    domain.settle()
    domain.nodes[2].kill()
    time.sleep(2)
    domain.go_on("near", times=1000)
    domain.nodes[2].start()
    is_mended(new, domain, lasted=2)


@case("a holder is killed and started again, 5 times", "touches of its pages")
def holder_killed_again_and_again(new):
    domain = new()
    domain.settle()
    for number in (2, 3, 4, 2, 3):
        domain.nodes[number].kill()
        time.sleep(0.3)
        domain.nodes[number].start()
        domain.all_go_on(LEFT_ALONE + 2)
    is_mended(new, domain, most=LEFT_ALONE + 2)


@case("a holder is gone with its store", "touches of its pages, `--patience` (2 s); SIGBUS, EIO",
      short=True)
def holder_gone(new):
    domain = new(patience=2)
    domain.settle()
    domain.nodes[2].kill()
    shutil.rmtree(domain.nodes[2].store)
    time.sleep(5)
    are_refused(new, domain)
    domain.fsck()


def silent(domain, number):
    """For how many seconds node 1 has heard nothing of a node."""
    nodes = domain.nodes[1].status()["nodes"]
    return next(its["silent_seconds"] for its in nodes if its["node"] == number)


@case("another node is at the address of a holder that is gone, which is forgotten",
      "nobody; SIGBUS, EIO at once")
def holder_replaced(new):
    domain = new()
    domain.settle()
    domain.stop_programs()
    domain.nodes[2].kill()
    shutil.rmtree(domain.nodes[2].store)
    # Its address is its own for a while.
    until("node 2 was not heard of for 8 s", lambda: silent(domain, 2) >= 8, 12)
    domain.nodes[2].start()
    gone = len(domain.held(2))
    # The new one has another number: it is not asked for what the old one had.
    domain.host.solera("domain", "forget", "dm", "2")
    time.sleep(2)
    begun = time.monotonic()
    said = domain.check("load", codes=(3,))
    expect(f" {gone} SIGBUS, 0 EIO, 0 wrong" in said, f"{gone} pages are gone: {said}")
    said = domain.check("read", codes=(3,))
    expect(f" 0 SIGBUS, {gone} EIO, 0 wrong" in said, f"{gone} pages are gone: {said}")
    took = time.monotonic() - begun
    expect(took < domain.patience, f"it took {took:.1f} s to say that they are gone")
    new.case.longest = domain.longest("idle")
    domain.fsck()


@case("node 1, a mere holder, is away for 12 s", "touches of its pages; after 8 s, who needs room")
def node_1_away(new):
    domain = new(host=2, patience=30)
    domain.settle()
    domain.nodes[1].kill()
    time.sleep(10)
    domain.go_on("near", times=1000)
    before = domain.volume()["evicted_pages"]
    time.sleep(2)
    sent = domain.volume()["evicted_pages"] - before
    expect(sent == 0, f"{sent} pages were sent away")
    expect(domain.waiting("fresh") > 0.5, "nobody waits for room")
    try:
        domain.add(5).start()
    except Failed as failed:
        expect("does not start" in str(failed), str(failed))
    else:
        raise Failed("another node starts without node 1")
    domain.nodes.pop(5).end()
    domain.nodes[1].start()
    domain.all_go_on()
    domain.pages_leave()
    is_mended(new, domain, lasted=12, most=SLACK)


def no_number(domain, number, by):
    """A new node that is told of that one gets no number."""
    domain.first = by
    try:
        domain.add(number).start()
    except Failed as failed:
        expect("no number is given" in str(failed), str(failed))
    else:
        raise Failed("a node has got a number without a majority")
    domain.nodes.pop(number).end()


@case("node 1, a mere holder, is away for 12 s, and another node is made first",
      "touches of its pages", short=True)
def first_replaced(new):
    domain = new(host=2, patience=30)
    domain.settle()
    domain.nodes[1].kill()
    domain.host.solera("domain", "first", "dm", "--to", "2")
    time.sleep(10)
    domain.go_on("near", times=1000)
    domain.pages_leave()
    domain.first = 4
    domain.add(5).start()
    domain.nodes[1].start()
    domain.is_first(2, 2)
    domain.all_go_on()
    is_mended(new, domain, lasted=12, most=SLACK)


@case("the network is cut in two for 20 s, and each half has a first", "touches of pages beyond")
def firsts_apart(new):
    domain = new(host=2, active=(1,), patience=30)
    domain.settle()
    domain.split([2, 4])
    words = ("domain", "first", "dm", "--to")
    domain.host.solera(*words, "2", "--force")
    domain.nodes[1].solera(*words, "1", "--force")
    term = domain.host.status()["term"]
    expect(domain.nodes[1].status()["first"] == 1, "the other half has its first")
    no_number(domain, 5, 1)
    time.sleep(12)
    domain.go_on("near", times=1000)
    domain.pages_leave()
    domain.split([])
    domain.is_first(2, term)
    domain.first = 3
    domain.add(6).start()
    # Half of them have stored 5, and may have given it for all that the later first knows.
    expect(domain.nodes[6].known_as == 6, f"it is node {domain.nodes[6].known_as}")
    domain.all_go_on()
    # TCP tries again later and later.
    is_mended(new, domain, lasted=20, most=15)


@case("all nodes are killed and started again, programs live", "all that is not there")
def all_nodes_killed(new):
    domain = new()
    domain.settle()
    for node in domain.nodes.values():
        node.process.send_signal(KILL)
    time.sleep(1)
    domain.go_on("near", times=1000)
    for node in domain.nodes.values():
        node.kill()
        node.start()
    domain.all_go_on(10)
    domain.pages_leave()
    is_mended(new, domain)


@case("all nodes and programs are killed at once", "nobody is left", short=True)
def all_killed(new):
    domain = new()
    for _ in range(2):
        domain.settle()
        processes = [node.process for node in domain.nodes.values()]
        processes += [load.process for load in domain.loads]
        for process in processes:
            process.send_signal(KILL)
        domain.loads.clear()
        for node in domain.nodes.values():
            node.kill()
            node.start()
        domain.fsck()
        domain.verify()
    nothing_in_vain(domain)


@case("all nodes and `sqlite3` are killed at once, in a transaction", "nobody is left")
def all_killed_under_sqlite(new):
    if not shutil.which("sqlite3"):
        raise Skipped("there is no sqlite3")
    domain = new(file=False)
    log = f"{domain.folder}/rows"

    def sqlite(words):
        line, options = domain.run("sqlite3", "-batch", "/dm/my.db", words)
        return must(line, **options)

    sqlite("CREATE TABLE rows (id INTEGER PRIMARY KEY, number INTEGER, note BLOB);"
           "WITH RECURSIVE row(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM row WHERE id < 1199)"
           "INSERT INTO rows SELECT id, 0, randomblob(20000) FROM row;")
    number = 0
    for _ in range(3):
        # A transaction each, which has ended when its number is said.
        with open(f"{domain.folder}/words", "w", encoding="utf-8") as words:
            for number in range(number + 1, number + 5001):
                words.write(f"UPDATE rows SET number = {number}, note = randomblob(20000) "
                            f"WHERE id = {number * 7919 % 1200}; SELECT {number};\n")
        with open(log, "w", encoding="utf-8") as said, open(words.name, encoding="utf-8") as asked:
            line, options = domain.run("stdbuf", "-oL", "sqlite3", "-batch", "-bail", "/dm/my.db")
            program = started(line, stdin=asked, stdout=said, stderr=said, **options)
        until("sqlite3 has changed 300 rows", lambda: os.path.getsize(log) > 1200, 20)
        for process in [program, *(node.process for node in domain.nodes.values())]:
            process.send_signal(KILL)
        expect(program.wait() == -KILL, "sqlite3 has ended before")
        for node in domain.nodes.values():
            node.kill()
            node.start()
        domain.fsck()
        with open(log, encoding="utf-8") as said:
            # The last line may be half of one.
            last = int(said.read().split("\n")[-2])
        found = sqlite("PRAGMA integrity_check; SELECT max(number) FROM rows;").split()
        expect(found[0] == "ok" and int(found[1]) >= last, f"{last} was said: {found}")


@case("each node in turn is killed and started again", "touches of its pages")
def nodes_restart(new):
    domain = new()
    domain.settle()
    for node in [*domain.nodes.values()] * 2:
        node.kill()
        node.start()
        domain.all_go_on(LEFT_ALONE + 2)
        domain.pages_leave()
    is_mended(new, domain, most=LEFT_ALONE + 2)


# Room


@case("nodes with room are away, the others are full",
      "who needs room, `--patience` (2 s); then SIGBUS, EIO")
def domain_full(new):
    domain = new(file=False)
    for away in (3, 4):
        domain.nodes[away].kill()
    until("they were not heard of for 8 s",
          lambda: all(silent(domain, away) >= 8 for away in (3, 4)), 12)
    line, options = domain.host.command(
        "run", "--ddmap", "dm/v", "--patience", "2s", "--",
        "dd", "if=/dev/urandom", "of=/dm/x", "bs=64K", "count=608")
    begun = time.monotonic()
    code, said = ran(line, **options)
    new.case.longest = time.monotonic() - begun
    expect(code == 1 and "Input/output error" in said, f"exit code {code}: {said.strip()}")
    for away in (3, 4):
        domain.nodes[away].start()
    line, options = domain.host.command("run", "--ddmap", "dm/v", "--", "rm", "/dm/x")
    code, said = ran(line, **options)
    expect(code == 0, f"the file is not removed: {said.strip()}")
    domain.fsck()


@case("the volume is full", "nobody: `ENOSPC` ahead")
def domain_full_ahead(new):
    domain = new(file=False)

    def runs(*command):
        line, options = domain.host.command("run", "--ddmap", "dm/v", "--", *command)
        return ran(line, **options)

    for _ in range(2):
        code, said = runs("fallocate", "-l", "34M", "/dm/x")
        expect(code == 0, f"there is room for it: {said.strip()}")
        code, said = runs("fallocate", "-l", "34M", "/dm/y")
        expect(code == 1 and "No space left" in said, f"exit code {code}: {said.strip()}")
        code, said = runs("rm", "/dm/x", "/dm/y")
        expect(code == 0, f"the files are not removed: {said.strip()}")
    line, options = domain.host.command("format", "--ddmap", "dm/w", "--size", "40M")
    code, said = ran(line, **options)
    expect(code == 1 and "promised" in said, f"the room is promised twice: {said.strip()}")


# Links


def is_cut(new, seconds, cut, mend, who="roam"):
    """A link that is bad for a while: who needs it waits, the others go on."""
    domain = new.domain
    domain.settle()
    cut()
    time.sleep(seconds * 0.8)
    if seconds > 2:
        expect(domain.waiting(who) > seconds * 0.4, "nobody waits for the link")
        domain.go_on("near", times=1000)
    time.sleep(seconds * 0.2)
    mend()
    # TCP tries again later and later: it may find out as long after as it was away.
    is_mended(new, domain, seconds + 8, lasted=seconds, most=seconds + SLACK)


@case("a holder's link is down for 1 s", "touches of its pages", short=True)
def link_down_1s(new):
    node = new().nodes[2]
    is_cut(new, 1, lambda: node.link("down"), lambda: node.link("up"))


@case("a holder's link is down for 10 s", "touches of its pages")
def link_down_10s(new):
    node = new(patience=30).nodes[2]
    is_cut(new, 10, lambda: node.link("down"), lambda: node.link("up"))


@case("a holder's link is down for ever", "touches of its pages, `--patience` (2 s); SIGBUS, EIO")
def link_down_for_ever(new):
    domain = new(patience=2)
    domain.settle()
    domain.nodes[2].link("down")
    time.sleep(5)
    are_refused(new, domain)
    domain.nodes[2].link("up")
    domain.verify()


@case("the host's link is down for 3 s", "touches of all that is not there")
def host_link_down(new):
    node = new(patience=30).host
    is_cut(new, 3, lambda: node.link("down"), lambda: node.link("up"))


@case("a holder hears, and is not heard, for 3 s", "touches of its pages")
def link_deaf_host(new):
    wire = new(wired=[2], patience=30).nodes[2].wire
    is_cut(new, 3, lambda: wire.set("drop up"), lambda: wire.set("drop no"))


@case("a holder is heard, and does not hear, for 3 s", "touches of its pages", short=True)
def link_deaf_holder(new):
    wire = new(wired=[2], patience=30).nodes[2].wire
    is_cut(new, 3, lambda: wire.set("drop down"), lambda: wire.set("drop no"))


def is_slow(new, words, mended, wired=(2,)):
    """A bad link over which all goes on."""
    domain = new(wired=wired, patience=30)
    domain.settle()
    wires = [domain.nodes[number].wire for number in wired]
    for wire in wires:
        wire.set(words)
    for _ in range(3):
        time.sleep(1.5)
        domain.go_on("near", times=1000)
    domain.go_on("roam", times=5, seconds=10)
    domain.go_on("fresh", times=20, seconds=10)
    for wire in wires:
        wire.set(mended)
    is_mended(new, domain, 15, most=10)


@case("5 % of the frames from and to a holder are lost", "touches of its pages")
def link_lossy(new):
    is_slow(new, "loss 5", "loss 0")


@case("5 % of the frames from and to the host are lost", "touches of all that is not there")
def host_link_lossy(new):
    is_slow(new, "loss 5", "loss 0", wired=[1])


@case("a holder's link takes 100 ms each way", "touches of its pages")
def link_delayed(new):
    is_slow(new, "delay 100", "delay 0")


@case("a holder's link has 1 Mbit/s", "touches of its pages")
def link_slow(new):
    is_slow(new, "rate 1000", "rate 0")


# Two copies of each page that is away

# A holder that does not answer is waited for once by each thread; what two processors may add.
SECOND, BUSY = 1, 1.2


def is_unharmed(new, domain, seconds=10):
    """Nobody has waited for longer than a holder is waited for, nothing was refused or is wrong."""
    domain.all_go_on(seconds)
    seen(new, domain)
    expect(domain.unavailable() == 0, "a touch was refused")
    longest = new.case.longest
    expect(longest < SECOND + BUSY, f"somebody has waited for {longest:.1f} s")


@case("*two copies*: a holder is gone with its store, each in turn", "nobody", short=True)
def two_holder_gone(new):
    domain = new(copies=2)
    domain.settle()
    longest = 0
    for number in (2, 3, 4):
        domain.is_whole()
        domain.ledger.forget_longest()
        domain.lose(number)
        domain.pages_leave()
        time.sleep(2)
        is_unharmed(new, domain)
        domain.forget(number)
        domain.add(number + 10).start()
        domain.is_whole()
        is_unharmed(new, domain)
        longest = max(longest, new.case.longest)
    new.case.longest = longest
    domain.stop_programs()
    domain.verify()


@case("*two copies*: a holder is stopped for 3 s", "touches of its pages, 1 s")
def two_holder_stopped(new):
    domain = new(copies=2)
    domain.settle()
    domain.is_whole()
    domain.nodes[2].signal(STOP)
    time.sleep(3)
    is_unharmed(new, domain)
    domain.nodes[2].signal(CONT)
    domain.all_go_on()
    domain.is_whole()
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)


@case("*two copies*: a holder is killed, and started again after 2 s", "nobody")
def two_holder_killed(new):
    domain = new(copies=2)
    domain.settle()
    domain.is_whole()
    domain.nodes[2].kill()
    time.sleep(2)
    is_unharmed(new, domain)
    domain.nodes[2].start()
    domain.all_go_on()
    domain.is_whole()
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)


@case("*two copies*: a holder's link is down for ever", "touches of its pages, 1 s", short=True)
def two_link_down(new):
    domain = new(copies=2, patience=2)
    domain.settle()
    domain.is_whole()
    domain.nodes[2].link("down")
    time.sleep(12)
    domain.pages_leave()
    is_unharmed(new, domain)
    domain.stop_programs()
    domain.verify()
    domain.nodes[2].link("up")
    domain.is_whole()


@case("*two copies*: the host's link is down for 3 s", "touches of all that is not there")
def two_host_link_down(new):
    node = new(patience=30, copies=2).host
    is_cut(new, 3, lambda: node.link("down"), lambda: node.link("up"))


@case("*two copies*: two holders are gone with their stores at once",
      "nobody; SIGBUS, EIO for what both had", short=True)
def two_both_gone(new):
    domain = new(copies=2)
    domain.settle()
    domain.is_whole()
    domain.stop_programs()
    domain.lose(2)
    domain.lose(3)
    both = set(domain.held(2)) & set(domain.held(3))
    expect(both, "no page was with both")
    domain.forget(2)
    domain.forget(3)
    begun = time.monotonic()
    said = domain.check("load", codes=(3,))
    expect(f" {len(both)} SIGBUS, 0 EIO, 0 wrong" in said, f"{len(both)} pages are gone: {said}")
    said = domain.check("read", codes=(3,))
    expect(f" 0 SIGBUS, {len(both)} EIO, 0 wrong" in said, f"{len(both)} pages are gone: {said}")
    took = time.monotonic() - begun
    expect(took < domain.patience, f"it took {took:.1f} s to say that they are gone")
    line, options = domain.host.command("fsck", "--read-data", "dm/v")
    code, said = ran(line, **options)
    expect("/file" in said and "lost with node" in said, f"{code}: {said.strip()}")
    new.case.longest = domain.longest("idle")


@case("*two copies*: the volume moves, then a holder is gone with its store", "nobody")
def two_moved(new):
    domain = new(copies=2, active=(2,))
    domain.settle()
    domain.stop_programs()
    domain.host.solera("domain", "move", "dm/v", "--to", "2")
    domain.host = domain.nodes[2]
    # What was with the old host lies there alone.
    domain.is_whole()
    domain.start_all()
    domain.pages_leave()
    domain.ledger.forget_longest()
    domain.lose(3)
    time.sleep(2)
    is_unharmed(new, domain)
    domain.forget(3)
    domain.is_whole()
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)


def wants(new, domain, number):
    """A program of another node that waits for the volume: its process."""
    line, options = domain.nodes[number].command(
        "run", "--ddmap", "dm/v", "--wait", "60s", "--", domain.programs["pages"], "check",
        "/dm/file", domain.ledger_path, "load")
    asks = started(line, **options)
    new.asks.append(asks)
    return asks


def is_handed_over(domain, asks, number):
    """The programs that have the volume end; that which waits has it, and finds all pages."""
    domain.stop_programs()
    code = asks.wait(120)
    expect(code == 0, f"what waits for the volume ends with {code}")
    domain.host = domain.nodes[number]
    domain.start_all()
    domain.all_go_on()
    domain.stop_programs()
    domain.verify()


def is_waited_for(domain, numbers):
    """Programs of these nodes wait for the volume."""
    def waiting():
        volumes = domain.host.status()["volumes"]
        return [one["node"] for volume in volumes for one in volume["waiting"]]
    until(lambda: f"{waiting()} wait, not {numbers}", lambda: waiting() == numbers, 20)


@case("programs of two other nodes want the volume, one of which is killed with its node",
      "they, until the host's programs end", short=True)
def handed_over(new):
    domain = new(active=(2, 3))
    domain.settle()
    first = wants(new, domain, 2)
    is_waited_for(domain, [2])
    next_one = wants(new, domain, 3)
    is_waited_for(domain, [2, 3])
    domain.go_on("roam", "near")
    domain.nodes[2].kill()
    expect(first.wait(20) == 125, "a program whose node is gone is told")
    is_waited_for(domain, [3])
    domain.nodes[2].start()
    is_handed_over(domain, next_one, 3)


@case("the link of a node whose program wants the volume is down for longer than 8 s",
      "that program, which is told; touches of the node's pages")
def handed_over_later(new):
    domain = new(active=(2,), patience=60)
    domain.settle()
    told = wants(new, domain, 2)
    is_waited_for(domain, [2])
    domain.nodes[2].link("down")
    is_waited_for(domain, [])
    expect(told.wait(20) == 125, "a program whose host is not there is told")
    domain.nodes[2].link("up")
    asks = wants(new, domain, 2)
    is_waited_for(domain, [2])
    is_handed_over(domain, asks, 2)


@case("*two copies*: one holder after another is gone with its store, at random", "nobody")
def two_soak(new):
    draw = random.Random(new.seed)
    domain = new(copies=2)
    domain.settle()
    ends, number, longest = time.monotonic() + new.minutes * 60, 10, 0
    while time.monotonic() < ends:
        domain.is_whole()
        domain.ledger.forget_longest()
        lost = draw.choice([node.number for node in domain.holders()])
        new.say(f"node {lost} is lost")
        domain.lose(lost)
        time.sleep(draw.choice([0.1, 1, 4]))
        is_unharmed(new, domain, 20)
        domain.forget(lost)
        number += 1
        domain.add(number).start()
        longest = max(longest, domain.longest("roam", "near", "fresh"))
        expect(longest < SECOND + BUSY, f"somebody has waited for {longest:.1f} s")
    domain.is_whole()
    domain.stop_programs()
    domain.verify()
    nothing_in_vain(domain)
    new.case.longest = longest


# What is damaged


@case("a page arrives damaged, some times", "who wants it", short=True)
def page_damaged(new):
    domain = new(wired=[2])
    domain.settle()
    for _ in range(8):
        domain.nodes[2].wire.set("damage 1")
        time.sleep(0.25)
    left = domain.nodes[2].wire.set("loss 0")
    expect(left == 0, f"{left} frames were not damaged")
    expect(domain.unavailable() == 0, "a touch was refused")
    is_mended(new, domain)


@case("pages of a holder arrive damaged for 4 s", "who wants them; SIGBUS, EIO if it goes on")
def pages_damaged(new):
    domain = new(wired=[2], patience=2)
    domain.settle()
    many = 1 << 40
    domain.nodes[2].wire.set(f"damage {many}")
    time.sleep(4)
    domain.go_on("fresh")
    expect(domain.unavailable() > 0, "no touch was refused")
    left = domain.nodes[2].wire.set("damage 0")
    expect(left == 0, "it is mended")
    seen(new, domain)
    domain.stop_programs(codes=(0, 3))
    domain.verify()


@case("words of the directory are damaged", "nobody; EIO for those pages", short=True)
def directory_damaged(new):
    domain = new()
    domain.settle()
    domain.stop_programs()
    held = {page for node in domain.holders() for page in domain.held(node.number)[:3]}
    words = {page: word for page, word in domain.directory() if page in held}
    for page, word in words.items():
        domain.set_directory(page, word ^ 1 << 20)
    said = domain.check("load", codes=(3,))
    expect(f" {len(words)} SIGBUS, 0 EIO, 0 wrong" in said, f"{len(words)} words: {said}")
    said = domain.check("read", codes=(3,))
    expect(f" 0 SIGBUS, {len(words)} EIO, 0 wrong" in said, f"{len(words)} words: {said}")
    for page, word in words.items():
        domain.set_directory(page, word)
    new.case.longest = domain.longest("idle")
    domain.verify()


# All of it


@case("one thing after another, at random", "who needs what is away", short=False)
def soak(new):
    draw = random.Random(new.seed)
    domain = new(wired=[3, 4], patience=60)
    ends = time.monotonic() + new.minutes * 60
    domain.settle()
    next_look = time.monotonic() + 15
    while time.monotonic() < ends:
        wrongs = [draw.choice(WRONGS) for _ in range(draw.choice([1, 1, 2]))]
        new.say(", ".join(wrong.__name__ for wrong in wrongs))
        mends = [wrong(domain, draw) for wrong in wrongs]
        time.sleep(draw.choice([0.1, 0.5, 1, 3]))
        for mend in reversed(mends):
            mend()
        # Behind all else, and in this order: they start only if they reach node 1.
        for node in domain.nodes.values():
            if node.process.poll() is not None:
                node.start()
        domain.all_go_on(30)
        while sum(load.process.poll() is None for load in domain.loads) < 4:
            domain.start(draw.choice(["roam", "near"]), draw.choice([1, 1, 1]))
        if time.monotonic() > next_look:
            seen(new, domain)
            domain.stop_programs()
            domain.verify()
            domain.start_all()
            next_look = time.monotonic() + 15
    is_mended(new, domain, 30, most=30)


def node_is_killed(domain, draw):
    node = domain.nodes[draw.randint(1, 4)]
    node.kill()
    return lambda: None


def node_is_stopped(domain, draw):
    node = domain.nodes[draw.randint(1, 4)]
    # A node that was killed before takes no signal.
    node.process.send_signal(STOP)
    return lambda: node.process.send_signal(CONT)


def program_is_killed(domain, draw):
    living = [load for load in domain.loads if load.process.poll() is None]
    if len(living) > 1:
        draw.choice(living).signal(KILL)
    return lambda: None


def program_is_stopped(domain, draw):
    living = [load for load in domain.loads if load.process.poll() is None]
    load = draw.choice(living)
    load.signal(STOP)
    return lambda: load.process.poll() is None and load.signal(CONT)


def link_is_cut(domain, draw):
    node = domain.nodes[draw.randint(1, 4)]
    node.link("down")
    return lambda: node.link("up")


def link_is_bad(domain, draw):
    wire = domain.nodes[draw.choice([3, 4])].wire
    words = draw.choice(["drop up", "drop down", "loss 5", "delay 50", "rate 1000"])
    wire.set(words)
    mended = "no" if words.startswith("drop") else "0"
    return lambda: wire.set(f"{words.split()[0]} {mended}")


WRONGS = [node_is_killed, node_is_stopped, program_is_killed, program_is_stopped, link_is_cut,
          link_is_bad]
