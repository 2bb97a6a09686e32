#!/usr/bin/env python3
"""Draws the crates as Cargo has them, in docs/design.md between the marks: each with those that it
builds on. Left out are those that another one of the list builds on, and what tests alone need.

usage: scripts/crates.py [--check]    (--check: fails if the page shows another picture)
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/design.md"
BEGIN, END = "<!-- crates: scripts/crates.py -->\n```\n", "```\n<!-- crates end -->\n"
COLUMNS = 100


def graph():
    """Which crates of the workspace each one builds on."""
    asked = [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--offline", "--format-version", "1"]
    told = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    packages = json.loads(told)["packages"]
    own = {package["name"] for package in packages}
    return {
        short(package["name"]): {
            short(on["name"]) for on in package["dependencies"] if on["name"] in own and on["kind"] is None
        }
        for package in packages
    }


def short(name):
    return name.removeprefix("solera-")


def picture(needs):
    """A line a crate, those that build on nothing at the bottom."""
    below = {}

    def reach(crate):
        if crate not in below:
            below[crate] = set(needs[crate]).union(*map(reach, needs[crate]))
        return below[crate]

    heights = {}

    def height(crate):
        if crate not in heights:
            heights[crate] = 1 + max(map(height, needs[crate]), default=-1)
        return heights[crate]

    lines = []
    for level in range(max(map(height, needs)), -1, -1):
        for crate in sorted(crate for crate in needs if height(crate) == level):
            direct = needs[crate]
            shown = sorted(on for on in direct if not any(on in reach(other) for other in direct))
            lines.append(f"{level}  {crate:<12}{' ' + ', '.join(shown) if shown else ''}".rstrip() + "\n")
        if level:
            lines.append("\n")
    assert all(len(line) <= COLUMNS for line in lines)
    return "".join(lines)


def main():
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    shown, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"error: {PAGE}: there are no marks for the picture of the crates")
    drawn = picture(graph())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(before + begin + drawn + end + after)
    elif drawn != shown:
        sys.exit(f"error: {PAGE}: its picture of the crates is another one (scripts/crates.py draws it)")


main()
