#!/usr/bin/env python3
"""Checks the links of all Markdown pages that are tracked: the file is there, and so is the heading that
a link names. A page below docs/ links only to what is below docs/, or it would be dead in the book
(`make book`); docs/SUMMARY.md, its table of contents, lists each page there. Addresses on the network
are not asked. Source files that a page or a comment names between backticks are there, too: by the end
of their path; so are the test programs that `--test` names. Prints each dead link; the exit code is 1 if there is one.

usage: scripts/links.py
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "docs"
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
# What a page names as a source of ours. CHANGELOG.md says what was.
SOURCE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:rs|py|sh))`")
PROGRAM = re.compile(r"--test\s+(\w+)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)


def prose(path):
    """The lines of a page with their numbers, without blocks and spans of code."""
    fenced = False
    for number, line in enumerate(path.read_text().split("\n"), 1):
        fence = line.lstrip().startswith("```")
        if not fenced and not fence:
            yield number, re.sub(r"(`+).*?\1", "", line)
        fenced ^= fence


def anchors(path):
    """What the headings of a page are called in links."""
    found, fenced = set(), False
    for line in path.read_text().split("\n"):
        fenced ^= line.startswith("```")
        head = re.match(r"#+\s+(.*)", line)
        if head and not fenced:
            plain = re.sub(r"[^\w\- ]", "", head.group(1).lower())
            name, count = plain.replace(" ", "-"), 0
            while (name if not count else f"{name}-{count}") in found:
                count += 1
            found.add(name if not count else f"{name}-{count}")
    return found


def dead(page, link):
    """Why a link of a page leads nowhere; empty if it leads somewhere."""
    if ELSEWHERE.match(link):
        return ""
    name, _, anchor = unquote(link).partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return "there is no such file"
    if BOOK in page.parents and BOOK not in target.parents:
        return "it leaves docs/, and is dead in the book"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "that page has no such heading"
    return ""


def unnamed():
    """Sources that are named and are not there: the place, and the name."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    ends = set()
    for name in listed:
        parts = name.split("/")
        ends.update("/".join(parts[at:]) for at in range(len(parts)))
    programs = {match[1] for name in listed if (match := re.search(r"/tests/(\w+)(?:/main)?\.rs$", name))}
    for name in listed:
        if name == "CHANGELOG.md" or not name.endswith((".md", ".rs", ".py", ".sh", ".c")):
            continue
        text = (ROOT / name).read_text()
        for program in set(PROGRAM.findall(text)) - programs if name.endswith((".md", ".rs")) else ():
            yield f"{name}: there is no test program {program}"
        for number, line in enumerate(text.split("\n"), 1):
            for source in SOURCE.findall(line):
                if source not in ends:
                    yield f"{name}:{number}: there is no {source}"


def main():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    pages = [ROOT / name for name in names.stdout.split()]
    broken, links, listed = [], 0, set()
    for page in pages:
        for number, line in prose(page):
            for link in LINK.findall(line):
                links += 1
                if page == BOOK / "SUMMARY.md":
                    listed.add((BOOK / link).resolve())
                if why := dead(page, link):
                    broken.append(f"{page.relative_to(ROOT)}:{number}: {link}: {why}")
    for page in sorted(set(BOOK.rglob("*.md")) - listed - {BOOK / "SUMMARY.md"}):
        broken.append(f"docs/SUMMARY.md: {page.relative_to(BOOK)} is not listed")
    broken.extend(unnamed())
    print("\n".join(broken) if broken else f"{links} links of {len(pages)} pages lead somewhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
