#!/usr/bin/env python3
"""Prose of Markdown pages in lines of at most 100 columns; tables and code stay as they are.

usage: scripts/wrap.py FILE...           rewrites the pages
       scripts/wrap.py --check FILE...   tells of wider lines; exit code 1 if there are any

Pages that scripts write go through `wrapped`.
"""
import re
import sys
import textwrap
from pathlib import Path

WIDTH = 100
ITEM = re.compile(r"\s*([-*]|\d+\.)\s+")
# What begins a line that is no prose, or would make one of what was none.
OTHER = ("#", "|", "```", "<", "![", ">")


def stays(line):
    """Whether a line belongs to no paragraph."""
    return not line.strip() or line.lstrip().startswith(OTHER)


def paragraphs(text):
    """The lines of a page, those of a paragraph together: (whether it is prose, lines)."""
    lines, at, code = text.split("\n"), 0, False
    while at < len(lines):
        first, end = lines[at], at + 1
        fence = first.lstrip().startswith("```")
        prose = not (code or fence or stays(first))
        code ^= fence
        while prose and end < len(lines) and not lines[end - 1].endswith("  "):
            if stays(lines[end]) or ITEM.match(lines[end]):
                break
            end += 1
        yield prose, lines[at:end]
        at = end


def filled(lines):
    """A paragraph anew, if a line of it is too wide."""
    if all(len(line) <= WIDTH for line in lines):
        return lines
    item = ITEM.match(lines[0])
    head = item.group() if item else re.match(r"\s*", lines[0]).group()
    indent = " " * len(head)
    words = " ".join([lines[0][len(head):], *lines[1:]]).split()
    # No line may begin as an item or a heading does.
    kept = [("\0" if ITEM.match(word + " ") or word.startswith(OTHER) else " ") + word for word in words]
    new = textwrap.wrap("".join(kept).lstrip("\0 "), WIDTH, initial_indent=head,
                        subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in new]


def wrapped(text):
    """A page with no prose wider than that."""
    return "\n".join("\n".join(filled(lines) if prose else lines)
                     for prose, lines in paragraphs(text))


def main(arguments):
    check = arguments[:1] == ["--check"]
    wide = 0
    for name in arguments[check:]:
        text = Path(name).read_text()
        if not check:
            Path(name).write_text(wrapped(text))
            continue
        place = 0
        for prose, lines in paragraphs(text):
            for line in lines:
                place += 1
                if prose and len(line) > WIDTH:
                    print(f"{name}:{place}: {len(line)} columns (scripts/wrap.py {name})")
                    wide += 1
    return 1 if wide else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) > 1 else 2)
    sys.exit(main(sys.argv[1:]))
