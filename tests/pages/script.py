#!/usr/bin/env python3
"""Makes a bash script of what a page shows: every block of `sh`, in order. A command's line may end with
`   # TEXT`: what it prints. A block of `ini` is a unit of systemd: its commands run as systemd would run
them, after a reboot that has emptied the memory.

usage: tests/pages/script.py PAGE
       tests/pages/script.py --readme README.md    the first block, which has no kind, as it is typed on a
                                                   terminal; then each command that the text names
"""

import re
import shlex
import sys

PRINTS = re.compile(r"^(.*?\S)\s{3,}# ?(.*)$", re.S)
HEAD = r"""
set -eE -o pipefail
at=nowhere
trap 'echo "$at: it has failed (exit code $?)"' ERR
prints() {
    [ "$(echo $1)" = "$2" ] || { echo "$at: it prints: $1"; echo "the page says: $2"; exit 1; }
}
"""
REBOOT = """
# The memory is empty, and all processes are gone.
rm -rf /dev/shm/*
"""


def blocks(page):
    """Kind, number of the first line, and lines of each block."""
    kind = None
    for number, line in enumerate(open(page), 1):
        if line.startswith("```"):
            if kind is None:
                kind, first, lines = line[3:].strip(), number + 1, []
            else:
                yield kind, first, lines
                kind = None
        elif kind is not None:
            lines.append(line.rstrip("\n"))


def commands(lines):
    """Each with its place in the block: continued lines, and what is typed to it, are of one command."""
    at = 0
    while at < len(lines):
        first = at
        end = re.search(r"<<\s*(\w+)", lines[at])
        while lines[at].endswith(("\\", "|")):
            at += 1
        if end:
            while lines[at] != end[1]:
                at += 1
        at += 1
        if text := "\n".join(lines[first:at]).strip():
            yield first, text


def typed(page, first, lines):
    for at, text in commands(lines):
        print(f"at={shlex.quote(f'{page}:{first + at}')}")
        found = PRINTS.match(text)
        if found and "<<" not in text:
            print(f"said=$({found[1]}\n)\nprints \"$said\" {shlex.quote(found[2].strip())}")
        else:
            print(text)


def unit(page, first, lines):
    """Its steps as root where a `+` says so, else as its user."""
    steps, user = {}, "root"
    for line in lines:
        name, _, value = line.partition("=")
        if name == "User":
            user = value
        if name.startswith("Exec"):
            steps.setdefault(name, []).append(value)

    def run(value):
        text = value.lstrip("+").replace("/usr/bin/solera", "solera")
        text = re.sub(r"/usr/lib/postgresql/\d+/bin", "$(echo /usr/lib/postgresql/*/bin)", text)
        return text if value.startswith("+") else f"runuser -u {user} -- {text}"

    print(f"at={page}:{first}")
    print(REBOOT)
    for again in range(2):
        for value in steps.get("ExecStartPre", []):
            print(run(value))
        print(f"{run(steps['ExecStart'][0])} > /tmp/unit.log 2>&1 &")
        print("for _ in $(seq 100); do psql -h /tmp -U postgres -Atc 'select 1' > /dev/null 2>&1 && break; sleep 0.1; done")
        print("said=$(psql -h /tmp -U postgres -Atc 'select count(*) from t')")
        print(f"prints \"$said\" {100000 + again}")
        print("psql -h /tmp -U postgres -c 'insert into t values (0)'")
        # As KillSignal says; what systemd signals is the main process.
        print("kill -INT $(head -n 1 <(solera cat /dev/shm/pg.pm:/data/postmaster.pid))")
        print("wait $! || true")
        for value in steps.get("ExecStopPost", []):
            print(run(value))
        print(REBOOT)


def readme(page):
    text = open(page).read()
    kind, first, lines = next(blocks(page))
    assert kind == "" and len(lines) == 2, lines
    # The build is there: what else is typed is typed.
    build, _, make = lines[0].partition(" && ")
    assert build == "cargo build --release", lines[0]
    print(f"at={page}:{first}\n{make}")
    rows = "create table t(a); insert into t values (42); select a from t;"
    print(f"at={page}:{first + 1}\n{lines[1]} <<< {shlex.quote(rows)} | grep -x 42")
    # On a terminal, where the program asks; and once more, by lines.
    screen = f"(sleep 1; echo 'select a + 1 from t;'; echo .quit) | script -qec {shlex.quote(lines[1])} /dev/null"
    print(f"{screen} | tr '\\r' '\\n' | grep -x 43")
    names = re.findall(r"`((?:solera|make) [^`]*)`", text)
    assert len(names) > 15, names
    fixed = {"VOLUME": "/dev/shm/v.pm", "DIR": "/tmp"}
    for name in names:
        words = [fixed.get(word, word) for word in shlex.split(name)]
        print(f"at={shlex.quote(f'{page}: `{name}`')}")
        if words[0] == "make":
            print(f"make -n {words[1]} > /dev/null")
        elif words[1] in ("mount", "info", "doctor") and len(words) > 2:
            if words[1] == "mount":
                print(f"mkdir -p /tmp/mnt && mount --bind /tmp/mnt /mnt && mkdir -p {words[3]}")
                print(f"{shlex.join(words)}\nsqlite3 {words[3]}/my.db 'select a from t' | grep -x 42")
                print(f"solera run --require {words[3]} -- sqlite3 {words[3]}/my.db 'select a from t' | grep -x 42")
                print(f"solera umount {words[3]}")
            else:
                print(f"{shlex.join(words)} > /dev/null")
        elif words[1:] == ["run", "--report"]:
            print(f"{shlex.join(words)} --volume /dev/shm/v.pm --at /pm -- cat /pm/my.db > /dev/null")
        else:
            # A command, and options of it, that its help knows.
            inner = [word for word in words[2:3] if re.fullmatch(r"[a-z]+", word)]
            print(f"said=$(solera {shlex.join(words[1:2] + inner)} --help)")
            for option in (word for word in words[2:] if word.startswith("-")):
                print(f"grep -q -e {shlex.quote(option)} <<< \"$said\"")


def main():
    print(HEAD)
    if sys.argv[1] == "--readme":
        readme(sys.argv[2])
        return
    page = sys.argv[1]
    for kind, first, lines in blocks(page):
        if kind == "sh":
            typed(page, first, lines)
        elif kind == "ini":
            unit(page, first, lines)


if __name__ == "__main__":
    main()
