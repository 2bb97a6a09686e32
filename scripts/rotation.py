#!/usr/bin/env python3
"""Which cases of a sampled suite run at this commit: prints those of the names given that are in the
one of PARTS parts that runs, one a line; all of them in the long run (SOLERA_TEST_LONG). Decides as
the crate `rotation` does, by the commit's name or SOLERA_ROTATION.

usage: scripts/rotation.py PARTS NAME...                  (a part of names)
       scripts/rotation.py deal COUNT IDENTITY NAME...    (so many of the names, in the long run, too)
       scripts/rotation.py number IDENTITY PARTS          (a number from 0 to PARTS - 1, in the long run, too)
       scripts/rotation.py                                (the seed)
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seed():
    if "SOLERA_ROTATION" in os.environ:
        return os.environ["SOLERA_ROTATION"]
    asked = ["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def digest(chosen_by, identity):
    first = hashlib.sha256(f"{chosen_by} {identity}".encode()).digest()[:4]
    return int.from_bytes(first, "big")


def main():
    chosen_by = seed()
    if len(sys.argv) < 2:
        print(chosen_by)
        return
    if sys.argv[1] == "deal":
        count, identity, *names = sys.argv[2:]
        names.sort(key=lambda name: digest(chosen_by, f"{identity} {name}"))
        print("\n".join(names[: int(count)]))
        return
    if sys.argv[1] == "number":
        print(digest(chosen_by, sys.argv[2]) % int(sys.argv[3]))
        return
    parts = int(sys.argv[1])
    for name in sys.argv[2:]:
        if "SOLERA_TEST_LONG" in os.environ or digest(chosen_by, name) % parts == 0:
            print(name)


main()
