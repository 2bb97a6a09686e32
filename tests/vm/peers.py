#!/usr/bin/env python3
"""Prints what the guest of `tests/vm/run nfs` and `tests/vm/run swap` has counted, as tables, and holds
it against what docs/figures/ddmap-guest.md promises. usage: peers.py nfs|swap LOG

Bytes and faults only: the guest is emulated, so its times say nothing.
"""
import sys

# Bytes on the wire of a peer over those of the volume, a read: at least. By what the reads are, how the
# peer and the volume are read, and with which options. Behind it the factor of the paper's table 6.3.
LEAST = {
    "nfs": {
        ("seq", "map", "map", "-"): (0.2, 7),
        ("seq", "map", "map", "--prefetch off"): (0.4, 7),
        ("zipf", "map", "map", "-"): (4, 36.8),
        ("zipf", "map", "read", "-"): (20, 36.8),
        ("zipf", "advised", "map", "-"): (0.3, None),
        ("random", "map", "map", "-"): (4, 115),
        ("random", "map", "read", "-"): (20, 115),
        ("random", "advised", "map", "-"): (0.3, None),
    },
    "swap": {
        ("seq", "map", "map", "-"): (0.1, None),
        ("seq", "map", "map", "--prefetch off"): (0.2, None),
        ("zipf", "map", "map", "-"): (0.3, None),
        ("random", "map", "map", "-"): (0.3, None),
    },
}
PATTERNS = {"seq": "in order", "zipf": "zipf 0.99", "random": "random"}


def records(path):
    """The guest's lines: a kind, and what it says by name."""
    for line in open(path, encoding="utf-8", errors="replace"):
        words = line.split()
        if words[:1] == ["VM"] and len(words) > 2:
            yield words[1], dict(word.split("=", 1) for word in words[2:] if "=" in word)


class Counted:
    """A row: what went over the wire, and how many touches waited for it."""

    def __init__(self, said):
        self.peer, self.pattern, self.how = said["peer"], said["pattern"], said["how"]
        self.ahead, self.options = said.get("ahead"), said.get("words", "-").replace("_", " ")
        self.loads = int(said["loads"])
        self.arrived, self.left = int(said["in"]), int(said["out"])
        self.bytes = (self.arrived + self.left) / self.loads
        number = lambda name: int(said.get(name, 0))
        # Of a volume: traps that ask a holder, and reads that do; of others: what the kernel counts, which
        # are no calls.
        if self.peer == "ddmap":
            self.waits = number("faults-remote") + number("line-miss")
        else:
            self.waits = number("major") if self.how != "read" else None
        self.unused = number("ahead-wasted") << 12

    def name(self):
        what = {"map": "mapped", "advised": "mapped, MADV_RANDOM", "read": "pread"}[self.how]
        if self.peer == "nfs" and self.how == "map":
            what += f", {self.ahead} KiB ahead"
        return f"{self.peer}, {what}" + (f", {self.options}" if self.options != "-" else "")


def mib(count):
    return f"{count / (1 << 20):.1f}"


def table(rows):
    yield ("| values | by | reads | came, MiB | ahead and not used | left | touches that waited | "
           "bytes a read | of ddmap's, mapped | of ddmap's, pread |")
    yield "|---|---|---|---|---|---|---|---|---|---|"
    # As it comes: those with options stand behind.
    own = {(row.pattern, row.how): row for row in reversed(rows) if row.peer == "ddmap"}
    for pattern, title in PATTERNS.items():
        for row in rows:
            if row.pattern != pattern:
                continue
            ratios = []
            for how in ("map", "read"):
                beside = own.get((pattern, how))
                shown = row.peer != "ddmap" and beside
                ratios.append(f"{row.bytes / beside.bytes:.2f}" if shown else "-")
            waits = f"{row.waits:,}" if row.waits is not None else "-"
            unused = mib(row.unused) if row.peer == "ddmap" else "-"
            yield (f"| {title} | {row.name()} | {row.loads:,} | {mib(row.arrived)} | {unused} | "
                   f"{mib(row.left)} | {waits} | {row.bytes:,.0f} | {ratios[0]} | {ratios[1]} |")


def judged(verb, rows):
    """A line for each promise, and whether it is kept."""
    # What NFS does by itself, without being told how far to read ahead, stands first.
    found = {}
    for row in rows:
        found.setdefault((row.peer, row.pattern, row.how, row.options), row)
    for (pattern, how, ours, options), (least, paper) in LEAST[verb].items():
        peer = found.get((verb, pattern, how, "-"))
        own = found.get(("ddmap", pattern, ours, options))
        if not peer or not own:
            yield False, f"{PATTERNS[pattern]}: not counted"
            continue
        ratio = peer.bytes / own.bytes
        words = (f"{PATTERNS[pattern]}: {peer.name()}: {ratio:.2f} times the bytes of {own.name()}; "
                 f"at least {least:g} is promised")
        if paper:
            words += f", the paper has {paper:g}"
        yield ratio >= least, words


def lost(said):
    """What became of programs when the wire or the server was lost."""
    yield "| lost | data on | the program | within | then |"
    yield "|---|---|---|---|---|"
    for kind, one in said:
        if kind != "LOST":
            continue
        same = lambda other: (other["peer"], other["what"]) == (one["peer"], one["what"])
        if one["ended"] == "yes":
            became = {"135": "SIGBUS", "137": "killed (SIGKILL)"}.get(one["code"], f"exit code {one['code']}")
        else:
            became = f"hangs, threads in state{one['state'].replace('_', ' ')}"
        then = []
        for other, words in said:
            if other == "KILLED" and same(words):
                then.append("a signal ends it" if words["ended"] == "yes" else "no signal ends it")
            if other == "SWAPOFF" and same(words):
                then.append("swapoff hangs" if words["hangs"] == "yes" else f"swapoff: exit code {words['code']}")
            if other == "AGAIN" and same(words):
                then.append("it is back: all as it was" if words["code"] == "0" else f"it is back: {words['said']}")
        yield (f"| the {one['what']} | {one['peer']} | {became} | {one['after']} s | {'; '.join(then) or '-'} |")
    for words in sorted({one["said"] for kind, one in said if kind == "LOST" and one["said"]}):
        yield f"\nIt said: {words.replace('_', ' ')}"


def ends_by_name(said):
    """The volume's program gets a clear end, and goes on where it was when the nodes are back."""
    for kind, one in said:
        if one.get("peer") != "ddmap":
            continue
        if kind == "LOST":
            clear = one["ended"] == "yes" and one["code"] == "135"
            yield clear, f"the {one['what']} is lost: SIGBUS (exit code {one['code']}, after {one['after']} s)"
        elif kind == "AGAIN":
            yield one["code"] == "0", f"the {one['what']} is back: every value is as it was"


def main():
    verb, path = sys.argv[1:]
    said = list(records(path))
    rows = [Counted(words) for kind, words in said if kind == "COUNTED"]
    print("\n".join(table(rows)))
    verdicts = list(judged(verb, rows))
    if verb == "swap":
        print("\n".join(lost(said)))
        ends = list(ends_by_name(said))
        verdicts += ends if len(ends) == 4 else [(False, "ddmap: not all losses were tried")]
    for kept, words in verdicts:
        print("VM PASSED" if kept else "VM FAILED", words)
    failed = sum(not kept for kept, _ in verdicts)
    print(f"{len(verdicts) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
