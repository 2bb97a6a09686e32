#!/usr/bin/env python3
"""What the tests take, as Markdown: each stage and each test program of the last `make test`, from its
logs; then each test, run once alone: seconds on the clock and of the processors, and what it waited for
when none of its threads ran, by samples of where the kernel has them. Tests of less than a second are
counted only. All of it goes to target/test-logs/times.json as well.

usage: scripts/times.py [--stages] [NAME...]    (--stages: no test is run; NAME: tests of these programs)
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import units

LOGS = units.ROOT / "target/test-logs"
SHOWN_MIN = 1.0
SAMPLE = 0.05
# Where the kernel has a thread that waits, and what that means; the first that fits.
WAITS = [
    ("nanosleep|timer", "a sleep"), ("fuse", "the mount"), ("do_wait|wait4|pidfd", "a process"),
    ("pipe|fifo", "a pipe"), ("unix_|sock|sk_|inet_|tcp_|accept", "a socket"),
    ("poll|select", "an event"), ("futex", "a thread"), ("lock|flock|fcntl", "a lock"),
    ("ptrace|signal|sigsuspend|stop", "a signal"), ("io_|folio|bio|blk|jbd2|xfs|ext4", "the disk"),
]


def table(head, rows):
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head))
    for row in rows:
        print("|", " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row), "|")
    print()


def stages():
    for ended in LOGS.glob("*.ended"):
        _, clock, used = ended.read_text().split()
        yield ended.stem, int(clock), int(used)


def programs():
    form = re.compile(r"^ +Running (\S+) (\S+): ([0-9.]+) s, ([0-9.]+) s of the processors")
    for line in (LOGS / "units.log").read_text(errors="replace").splitlines():
        found = form.match(line)
        if found:
            yield f"{found[1]} {found[2]}", float(found[3]), float(found[4])


def session(number):
    """Threads of a session: (state, what it waits in)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[3]) != number:
                continue
            for task in (stat.parent / "task").iterdir():
                state = (task / "stat").read_text().rpartition(")")[2].split()[0]
                yield state, (task / "wchan").read_text()
        except (OSError, IndexError):
            pass  # It has ended meanwhile.


def waits(number):
    """What a session waits for; nothing if a thread of it runs. A parent's wait for a child says least."""
    threads = list(session(number))
    if any(state in "RD" for state, _ in threads):
        return None
    found = Counter()
    for _, where in threads:
        found[next((what for form, what in WAITS if re.search(form, where)), where)] += 1
    for least in ("a thread", "a process"):
        if len(found) > 1:
            found.pop(least, None)
    return found.most_common(1)[0][0] if found else None


def measure(program, test):
    """Runs one test alone: (name, seconds, of the processors, what it waits for)."""
    name, executable, package, directory = program
    begun, next_sample, waited = time.monotonic(), time.monotonic() + SAMPLE, Counter()
    child = subprocess.Popen(
        [executable, "--exact", test], cwd=directory, env=units.environment(package, directory),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    units.running.add(child.pid)
    while True:
        ended, status, used = os.wait4(child.pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() >= next_sample:
            waited[waits(child.pid)] += 1
            next_sample = time.monotonic() + SAMPLE
        time.sleep(0.002)
    units.running.discard(child.pid)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begun
    waited.pop(None, None)
    most = waited.most_common(1)
    said = most[0][0] if most else ""
    return [f"{name} {test}", seconds, used.ru_utime + used.ru_stime, said, child.returncode]


def tests(wanted):
    for program in json.loads(units.BUILT.read_text()):
        if wanted and program[0] not in wanted:
            continue
        listed = subprocess.run(
            [program[1], "--list", "--format", "terse"], cwd=program[3], stdout=subprocess.PIPE, text=True
        ).stdout
        for line in listed.splitlines():
            if line.endswith(": test"):
                yield measure(program, line.removesuffix(": test"))


def main():
    if not (LOGS / "units.log").exists() or not units.BUILT.exists():
        sys.exit("scripts/times.py: make test has not run here yet")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, units.interrupted)
    wanted = [word for word in sys.argv[1:] if word != "--stages"]
    slowest = {"key": lambda row: row[1], "reverse": True}
    found = {"stages": sorted(stages(), **slowest), "programs": sorted(programs(), **slowest)}
    table(["stage", "s", "s of the processors"], found["stages"])
    table(["test program", "s", "s of the processors"], [row for row in found["programs"] if row[1] >= SHOWN_MIN])
    if "--stages" not in sys.argv:
        found["tests"] = sorted(tests(wanted), **slowest)
        shown = [row[:4] for row in found["tests"] if row[1] >= SHOWN_MIN]
        table(["test, alone", "s", "s of the processors", "waits most for"], shown)
        rest = [row for row in found["tests"] if row[1] < SHOWN_MIN]
        print(f"{len(rest)} more tests take {sum(row[1] for row in rest):.0f} s together, alone, one after another.")
        for row in found["tests"]:
            if row[4] != 0:
                print(f"FAILED: {row[0]} ended with {row[4]}", file=sys.stderr)
    (LOGS / "times.json").write_text(json.dumps(found, indent=1))


main()
