#!/usr/bin/env python3
"""Times the calls of a static Go program on a volume (mode strict) and on the tmpfs that the volume lies
on, in turns, and prints the medians and their ratios beside what they are to be at most; and what the
start of Go programs takes. bbolt comes from Go's module proxy; without it its row is left out.

usage: go_calls.py [ROUNDS]     (default 5)
needs: go, target/release/solera
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOLERA = HERE.parents[2] / "target/release/solera"
# Of tmpfs's time.
AT_MOST = {
    "pread 4 KiB": 0.5,
    "pwrite 4 KiB": 2.0,
    "stat": 0.3,
    "open, close": 0.7,
    "create, close, unlink": 0.8,
    "a byte there and back over TCP": 1.05,
    "a value there and back, two locked threads": 1.2,
    "bbolt, a commit": 1.0,
}
BOLT = """module bolt

go 1.24

require (
	go.etcd.io/bbolt v1.4.3
	golang.org/x/sys v0.29.0
)
"""
BOLT_SUMS = """go.etcd.io/bbolt v1.4.3 h1:dEadXpI6G79deX5prL3QRNP6JB8UxVkqo4UPnHaNXJo=
go.etcd.io/bbolt v1.4.3/go.mod h1:tKQlpPaYCVFctUIgFKFnAlvbmB3tpy1vkTnDWohtc0E=
golang.org/x/sys v0.29.0 h1:TPYlXGxvx1MGTn2GiZDhnjPA9wZzZeGKHHmKhHYvgaU=
golang.org/x/sys v0.29.0/go.mod h1:/VUhepiaJMQUp4+oa/7Zr1D23ma6VTLIYjOOTFZPUcA=
"""
HELLO = 'package main\nfunc main() { println("hello") }\n'
# A program of 30 MB: packages whose beginnings run, and a file in it.
LARGE = """package main

import (
	_ "archive/zip"
	_ "crypto/tls"
	_ "database/sql"
	_ "debug/dwarf"
	_ "embed"
	_ "encoding/xml"
	_ "go/types"
	_ "html/template"
	_ "image/png"
	_ "net/http/httputil"
	_ "net/rpc"
)

//go:embed data
var data string

func main() { println(len(data)) }
"""
LARGE_BYTES = 30_000_000
# Milliseconds of the processor beyond those of /bin/true, all under `solera run`.
STARTS_AT_MOST = {"hello": 2, "large": 4}
STARTS = 20


def lines(command):
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split("\t") for line in said.splitlines())}


def starts(command):
    """Milliseconds of the processor that a start of this takes, of itself and its children."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1000 * (usage.ru_utime + usage.ru_stime)

    before = used()
    subprocess.run(command, check=True, capture_output=True)
    return used() - before


def built(place, environment):
    """Builds the programs; gives those whose calls are timed."""
    def build(*arguments, **options):
        return subprocess.run(["go", "build", "-o", *arguments], env=environment | options.pop("more", {}), **options)

    build(place / "calls", HERE / "go_calls.go", check=True)
    (place / "hello.go").write_text(HELLO)
    build(place / "hello", place / "hello.go", check=True)
    large = place / "source"
    large.mkdir()
    (large / "main.go").write_text(LARGE)
    (large / "go.mod").write_text("module large\n\ngo 1.24\n")
    module = {"GO111MODULE": "on"}
    (large / "data").write_bytes(b"")
    build(place / "large", ".", cwd=large, more=module, check=True)
    missing = max(0, LARGE_BYTES - (place / "large").stat().st_size)
    (large / "data").write_bytes(os.urandom(missing))
    build(place / "large", ".", cwd=large, more=module, check=True)
    bolt = place / "bolt-source"
    bolt.mkdir()
    (bolt / "go.mod").write_text(BOLT)
    (bolt / "go.sum").write_text(BOLT_SUMS)
    (bolt / "main.go").write_text((HERE / "go_bolt.go").read_text())
    got = build(place / "bolt", ".", cwd=bolt, more=module, capture_output=True, text=True)
    if got.returncode != 0:
        print(f"without bbolt: {got.stderr.strip()[-200:]}", file=sys.stderr)
        return [place / "calls"]
    return [place / "calls", place / "bolt"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        place = Path(place)
        environment = dict(os.environ, CGO_ENABLED="0", GO111MODULE="off", GOFLAGS="", GOTOOLCHAIN="local")
        programs = built(place, environment)
        subprocess.run([SOLERA, "format", "--size", "256M", place / "v.pm"], check=True, capture_output=True)
        (place / "native").mkdir()
        run = [SOLERA, "run", "--volume", place / "v.pm", "--at", place / "pm", "--"]
        native, volume = [], []
        for _ in range(rounds):
            native.append({})
            volume.append({})
            for program in programs:
                native[-1] |= lines([program, place / "native"])
                volume[-1] |= lines([*run, program, place / "pm"])
        begun = {"true": "/bin/true", "hello": place / "hello", "large": place / "large"}
        alone, under = {name: [] for name in begun}, {name: [] for name in begun}
        for _ in range(STARTS * rounds):
            for name, program in begun.items():
                alone[name].append(starts([program]))
                under[name].append(starts([*run, program]))
    print("| a call of a static Go program | tmpfs, ns | volume, ns | ratio | at most |")
    print("|---|---|---|---|---|")
    for name in native[0]:
        [own, other] = [statistics.median(one[name] for one in all) for all in (native, volume)]
        print(f"| {name} | {own:.0f} | {other:.0f} | {other / own:.2f} | {AT_MOST.get(name, '-')} |")
    print("\n| a start, ms of the processor | alone | under `solera run` | over `true` there | at most |")
    print("|---|---|---|---|---|")
    least = statistics.median(under["true"])
    for name in begun:
        [own, other] = [statistics.median(all[name]) for all in (alone, under)]
        print(f"| {name} | {own:.2f} | {other:.2f} | {other - least:+.2f} | {STARTS_AT_MOST.get(name, '-')} |")


main()
