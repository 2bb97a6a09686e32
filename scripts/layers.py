#!/usr/bin/env python3
"""Checks the layers of each crate (CONTRIBUTING.md, "Layers"): a file names only its own layer and
those below it; the methods of `Volume` stand at the top, those of a layer's type in that layer (else
a layer could call upwards by a method), those of `Process` at the bottom; what takes inode locks,
passes the gate, turns sequence numbers, replays a lane or releases stands in one file each. In every
crate: nobody but the ground names guarded instructions; each module is used; a module that has others is NAME/mod.rs; no folder has more than 20
entries, no layer more than 4,600 lines, tests apart; a facade has no more items than it may.

The bodies of system calls in `preload` stand in LAYER/calls.rs, what it exports, the functions that
stand for the C library's, in LAYER/symbols.rs. They are the way in, so they may name every layer and
what lies beside the layers; nobody names symbols, and no other file exports anything.

usage: scripts/layers.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
# From the lowest up. What lies beside the layers is their top, which may name all of them.
LAYERS = {
    "volume": "medium process space inode txn cache data namespace open watch upkeep recovery check attach",
    "preload": "runtime entry paths descriptors files names mappings signals processes split",
    "ddmap": "protocol wire shared_memory control membership paging node",
    "pmem": "region access persistence recording",
    "memory": "instructions faults",
}
# Where the methods of the types that everybody has may stand: nobody calls upwards by a method.
METHODS = {
    "volume": {
        "Volume": ("volume.rs", "filesystem/", "attach/"),
        "Medium": ("medium/",),
        "Processes": ("process/",),
        "Space": ("space/",),
        "Inodes": ("inode/",),
        "Operations": ("txn/",),
        "Op": ("txn/",),
        "Locked": ("txn/",),
        "Caches": ("cache/",),
        "Files": ("data/",),
        "Names": ("namespace/",),
        "Opens": ("open/",),
        "Upkeep": ("upkeep/",),
        "Recoveries": ("recovery/",),
        "Checks": ("check/",),
    },
    "preload": {"Process": ("entry/",)},
    "ddmap": {},
}
# The crate whose exported functions stand in symbols; the one other file that may have the words: the
# macro around them.
EXPORTS, MACRO = "preload", "interposed.rs"
# What stands in one file, so that whoever changes how it is done changes it once: the calls that may
# be made there alone (where they are declared apart).
ONE = {
    "volume": {
        "inode locks are taken": (r"\.swap_lock\(|\blockword::acquire\(", "txn/acquire.rs", "inode/mod.rs"),
        "the gate is passed": (r"\bgate::(?:pass|wait)\(", "txn/acquire.rs", "txn/gate.rs"),
        "numbers become odd": (r"\.turn_sequences\(1\)|sequence \+ 1\)\?", "txn/acquire.rs", ""),
        "numbers become even": (
            r"\.turn_sequences\(0\)|\.set_sequence\(one\.sequence(?: \+ [24])?\)|\.skip_numbers\(",
            "txn/release.rs",
            "",
        ),
        "lanes are replayed": (r"\bfn (?:replay|undo|redo)_(?:lane|of_dead|if)\b", "txn/replay.rs", ""),
        "operations release": (r"\bfn release\(self|\bfn release_locks\(&mut self", "txn/release.rs", ""),
    },
}
# What every layer may name: the mistakes that tests put in.
COMMON = {"inject"}
# How many public items the root of a crate may have: what its users see of it.
FACADES = {"ddmap": 45}
# Folders that have one entry for each of a kind, however many there are: commands, programs.
FLAT = {"cli/src/commands", "bench/src/programs/suite"}
# Who may name the guarded instructions: nobody else stores into memory that may vanish, or flushes it.
GUARDED = {"memory", "pmem", "emulation", "window"}
ENTRIES, LINES = 20, 4600


def code(path):
    """The lines of a file without comments and without its tests at the end."""
    text = path.read_text().split("\n#[cfg(test)]\nmod tests")[0]
    return re.sub(r"^\s*//.*\n", "", text, flags=re.M)


def is_test(path):
    return path.stem.endswith("_tests") or path.stem in ("testing", "tests")


def is_way_in(crate, place):
    """Whether a file has the calls or the symbols of a layer."""
    return crate == EXPORTS and len(place.parts) > 1 and place.parts[1] in ("calls.rs", "symbols.rs")


def exports(crate, place, text):
    """What breaks the rule of symbols in a file that is no way in."""
    if crate != EXPORTS or is_way_in(crate, place):
        return
    if re.search(r"\bsymbols::|\bsymbols\b(?=[,}])", text):
        yield f"{crate}/src/{place} names symbols"
    if str(place) != MACRO and re.search(r"\binterpose! \{|\bno_mangle\b|\bexport_name\b", text):
        yield f"{crate}/src/{place} exports a function"


def named(text):
    """The modules of the crate's root that a file names: `crate::a::b`, `use crate::{a, b::c}`."""
    found = set(re.findall(r"\bcrate::(\w+)", text))
    for group in re.findall(r"\buse crate::\{((?:[^{};]|\{[^{}]*\})*)\}", text):
        found.update(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\{[^{}]*\}", "", group)))
    return found


def broken_by(crate, layers):
    """Every rule that a file or folder of the crate breaks, a line each."""
    src = CRATES / crate / "src"
    files = {path: code(path) for path in sorted(src.rglob("*.rs"))}
    rank = {layer: at for at, layer in enumerate(layers)}
    beside = {path.stem for path in src.glob("*.rs")} - {"lib", "main"} - COMMON
    for path, text in files.items():
        place = path.relative_to(src)
        layer = place.parts[0] if len(place.parts) > 1 and place.parts[0] in rank else None
        yield from exports(crate, place, text)
        if crate not in GUARDED and re.search(r"\bmemory::(?:\{?instructions|faults)\b", text):
            yield f"{crate}/src/{place} names what only {', '.join(sorted(GUARDED))} may"
        if layer and not is_test(path) and not is_way_in(crate, place):
            above = {name for name in named(text) if rank.get(name, -1) > rank[layer] or name in beside}
            # Where a type's methods may stand, its file may be named.
            tops = METHODS.get(crate, {}).items()
            above -= {kind.lower() for kind, places in tops if str(place).startswith(places)}
            yield from (f"{crate}/src/{place} names {name}, which is above" for name in sorted(above))
        for kind, places in METHODS.get(crate, {}).items():
            stands = str(place).startswith(places) or is_test(path)
            if not stands and re.search(rf"^impl(<[^>]*>)? {kind}(<[^{{]*>)? \{{", text, re.M):
                yield f"{crate}/src/{place} has an impl {kind}"
        if path.with_suffix("").is_dir():
            yield f"{crate}/src/{place} stands beside its folder: it is {place.with_suffix('')}/mod.rs"
        if place.name not in ("lib.rs", "main.rs", "mod.rs") and not is_test(path):
            yield from unused(crate, path, place, files)
    for what, (pattern, home, declared) in ONE.get(crate, {}).items():
        for path, text in files.items():
            place = str(path.relative_to(src))
            if place not in (home, declared) and not is_test(path) and re.search(pattern, text):
                yield f"{crate}/src/{place}: {what} in {home} alone"
        if not re.search(pattern, files.get(src / home, "")):
            yield f"{crate}/src/{home}: it is not here that {what}"
    for folder in {path.parent for path in files}:
        entries = len(list(folder.iterdir()))
        if entries > ENTRIES and f"{crate}/{folder.relative_to(src.parent)}" not in FLAT:
            yield f"{crate}/{folder.relative_to(src.parent)} has more than {ENTRIES} entries"
    for layer in layers:
        own = [p for p in files if p.is_relative_to(src / layer) and not is_test(p)]
        if sum(len(p.read_text().splitlines()) for p in own) > LINES:
            yield f"{crate}/src/{layer} has more than {LINES} lines"
    if crate in FACADES:
        yield from facade(crate, files[src / "lib.rs"], FACADES[crate])


def facade(crate, text, most):
    """Whether the root of a crate shows more than it may, or a module whole."""
    items = re.findall(r"^pub (?:const |unsafe |async )*(?:fn|struct|enum|trait|type|const|static|union) ", text, re.M)
    count = len(items)
    for names in re.findall(r"^pub use ([^;]*);", text, re.M):
        if "*" in names:
            yield f"{crate}/src/lib.rs shows all of a module: {names}"
        count += len(re.findall(r"\w+(?=\s*(?:,|\}|$))", names))
    for module in re.findall(r"^pub mod (\w+)", text, re.M):
        yield f"{crate}/src/lib.rs shows the module {module} whole"
    if count > most:
        yield f"{crate}/src/lib.rs shows {count} items, more than {most}"


def unused(crate, path, place, files):
    """Whether a file is no module, or one that no other file names and that exports no symbol."""
    name = path.stem
    declared = [re.search(rf"^\s*(pub(?:\(\w+\))? )?mod {name};", text, re.M) for text in files.values()]
    if not any(declared):
        yield f"{crate}/src/{place} is no module"
    elif any(found and found[1] == "pub " for found in declared):
        pass  # Its users may be others.
    elif not re.search(r"interpose!|timed!|^hidden!|#\[unsafe\(no_mangle\)\]|^impl ", files[path], re.M) and not any(
        re.search(rf"\b{name}\b(?!;)", text) for other, text in files.items() if other != path
    ):
        yield f"{crate}/src/{place} is used by nothing"


def main():
    crates = sorted(path.parent.name for path in CRATES.glob("*/src"))
    broken = [line for crate in crates for line in broken_by(crate, LAYERS.get(crate, "").split())]
    for line in broken:
        print(f"error: {line} (CONTRIBUTING.md, \"Layers\")")
    sys.exit(1 if broken else 0)


main()
