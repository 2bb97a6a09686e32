#!/usr/bin/env python3
"""Counts the words of the pages that people read in order: those that docs/SUMMARY.md lists before its
head "Figures". A word stands between blanks and has a letter or a digit: so tables and code count, their
bars do not. Fails if a page, or all of
them together, are longer than a reader reads; and if a page of figures stands elsewhere than in
docs/figures/, or one of the others there, so that nothing is left uncounted.

usage: scripts/words.py          prints what is too long
       scripts/words.py --all    prints each page's words
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/SUMMARY.md"
FIGURES = "# Figures"
ALL_MAX = 30_000
PAGE_MAX = {
    "README.md": 1_000,
    "docs/caveats.md": 1_500,
    "docs/split.md": 600,
    "docs/flac.md": 600,
    "docs/flex.md": 600,
    "docs/ddmap.md": 600,
}


def listed(text):
    """The pages that a part of the table of contents names."""
    return [f"docs/{name}" for name in re.findall(r"\]\(([^)#]+\.md)\)", text)]


def words(name):
    return sum(any(map(str.isalnum, word)) for word in (ROOT / name).read_text().split())


def main(arguments):
    in_order, _, figures = SUMMARY.read_text().partition(f"\n{FIGURES}\n")
    pages = listed(in_order)
    counts = {name: words(name) for name in dict.fromkeys([*pages, *PAGE_MAX])}
    total = sum(counts[name] for name in pages)
    if arguments == ["--all"]:
        for name, count in sorted(counts.items(), key=lambda each: -each[1]):
            print(f"{count:6} {name}")
    wrong = [f"{name}: {counts[name]} words, more than {most}"
             for name, most in PAGE_MAX.items() if counts[name] > most]
    if total > ALL_MAX:
        wrong.append(f"docs/: {total} words are read in order, more than {ALL_MAX}")
    for name in pages:
        if name.startswith("docs/figures/"):
            wrong.append(f"{name} is listed before \"{FIGURES}\"")
    for name in listed(figures):
        if not name.startswith("docs/figures/"):
            wrong.append(f"{name} is listed after \"{FIGURES}\", and is not in docs/figures/")
    print("\n".join(wrong) if wrong else f"{total} words are read in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--all"]):
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    sys.exit(main(sys.argv[1:]))
