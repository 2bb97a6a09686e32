#!/usr/bin/env python3
"""Builds the tests of the workspace and runs them, some test programs at once: many wait for processes
and clocks most of the time, and some have a single test that is long. Prints what `cargo test` prints,
program by program, and what was not tested, and why: a test that cannot run here says so in its output,
which `cargo test` keeps to itself. The explorer's programs have stages of their own; it is built here, too:
without it dependencies would have other features, and all would be built once more.

usage: scripts/units.py [NAME...]            (only test programs of these names: `processes`, `solera-volume`)
       scripts/units.py --build              (builds all, and runs nothing)
       scripts/units.py --built [NAME...]    (what --build has built, without asking cargo)
environment: JOBS (programs at once; default: one more than there are processors), and what the tests know
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = ["--release", "--workspace"]
# Not --all-targets, which also builds the test programs that a manifest says there are not: that of the
# preload library.
BUILD = ["cargo", "build", *WORKSPACE, "--lib", "--bins", "--tests", "--examples", "--message-format", "json-render-diagnostics"]
BUILT = ROOT / "target/test-logs/programs.json"
APART = "solera-explorer"
# Long ones begin first, so that none is left alone at the end; a name that is gone does no harm.
LONG = ["deaths", "run", "solera-volume", "domains", "interposition", "solera-ddmap", "commands", "mounts", "caching"]
# These look at the whole machine: its free huge pages and its memory in one piece, which others that run
# beside them would take.
ALONE = ["machine", "huge_pages"]


def build():
    """Builds, and keeps which test programs there are: (name, executable, package's name, its directory)."""
    done = subprocess.run(BUILD, cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit("error: the tests cannot be built")
    programs = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if not message["executable"]:
            continue
        directory = Path(message["manifest_path"]).parent
        package = manifest_name(directory)
        target = message["target"]
        name = target["name"] if target["kind"] == ["test"] else package
        if package == APART and name != APART:
            continue
        programs.append((name, message["executable"], package, str(directory)))
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    BUILT.write_text(json.dumps(programs, indent=1))
    return programs


def manifest_name(directory):
    lines = (directory / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("name = "))


def told(said):
    """What a test program said, without the output of tests that passed; what these did not test."""
    before, found, after = said.partition("\nsuccesses:\n")
    if not found:
        return said, []
    passed, end, after = after.partition("\nsuccesses:\n")
    after = after.partition("\n\n")[2]
    skipped = []
    for line in passed.splitlines():
        if line.startswith("skipped: "):
            skipped.append(line.removeprefix("skipped: "))
        elif line.endswith(": nothing tested"):
            skipped.append(line.removesuffix(": nothing tested"))
    return before + "\n" + after, skipped


def environment(package, directory):
    """What cargo gives a test program."""
    return dict(os.environ, CARGO="cargo", CARGO_MANIFEST_DIR=directory, CARGO_PKG_NAME=package)


running = set()


def run(program):
    """Runs one; returns whether it passed, and prints all that it said at once."""
    name, executable, package, directory = program
    begun = time.monotonic()
    # Not a pipe: what outlives the test may have it open. In a session of its own: all that it started
    # can be found, should this be interrupted.
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [executable, "--show-output"],
            cwd=directory,
            env=environment(package, directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.add(child.pid)
        _, status, used = os.wait4(child.pid, 0)
        running.discard(child.pid)
        child.returncode = code = os.waitstatus_to_exitcode(status)
        log.seek(0)
        said = log.read().decode(errors="replace")
    seconds, used = time.monotonic() - begun, used.ru_utime + used.ru_stime
    head = f"     Running {package} {name}: {seconds:.1f} s, {used:.1f} s of the processors"
    said, skipped = told(said)
    lines = [head, said.rstrip("\n"), *(f"skipped: {name}: {why}" for why in skipped)]
    lines.append(f"0 passed, 0 failed, {len(skipped)} skipped")
    if code != 0 and "\ntest result: FAILED" not in said:
        lines.append(f"FAILED: {name} ended with {code}")
        lines.append("0 passed, 1 failed, 0 skipped")
    print("\n".join(lines), flush=True)
    return code == 0


def interrupted(number, _frame):
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may have anything in it: state, parent, group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) in running:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, IndexError):
            pass  # It has ended meanwhile.
    os._exit(128 + number)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    programs = json.loads(BUILT.read_text()) if "--built" in sys.argv else build()
    if "--build" in sys.argv:
        return
    programs = [p for p in programs if not wanted or p[0] in wanted]
    if not programs:
        sys.exit(f"error: there is no test program {' '.join(wanted)}")
    programs.sort(key=lambda p: LONG.index(p[0]) if p[0] in LONG else len(LONG))
    jobs = int(os.environ.get("JOBS") or (os.cpu_count() or 1) + 1)
    with ThreadPoolExecutor(jobs) as pool:
        good = list(pool.map(run, (p for p in programs if p[0] not in ALONE)))
    good += [run(p) for p in programs if p[0] in ALONE]
    if not wanted:
        documented = ["cargo", "test", *WORKSPACE, "--doc", "--no-fail-fast"]
        good.append(subprocess.run(documented, cwd=ROOT).returncode == 0)
    sys.exit(0 if all(good) else 101)


if __name__ == "__main__":
    main()
