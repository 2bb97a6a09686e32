#!/usr/bin/env python3
"""Which cases of a sampled suite run at this commit: prints those of the names given that are in the
one of PARTS parts that runs, one a line; all of them in the long run (SOLERA_TEST_LONG). Decides as
the crate `rotation` does, by the commit's name or SOLERA_ROTATION.

usage: scripts/rotation.py PARTS NAME...    (a part of names)
       scripts/rotation.py                  (the seed)
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


def part(identity, parts):
    digest = hashlib.sha256(f"{seed()} {identity}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % parts


def main():
    if len(sys.argv) < 2:
        print(seed())
        return
    parts = int(sys.argv[1])
    for name in sys.argv[2:]:
        if "SOLERA_TEST_LONG" in os.environ or part(name, parts) == 0:
            print(name)


main()
