#!/usr/bin/env python3
"""Whole programs over kernel file systems, with `solera run --split` and without (as root, minutes).

ext4 and XFS (made with exchange-range, if mkfs.xfs knows it) in files of a tmpfs, by loop devices, and
the tmpfs itself, in a mount namespace of this script's own. The kernel alone and the engine in posix
mode (which promises the same) take turns; medians count. x is the engine's time over the kernel's.
"""
import argparse, contextlib, os, pathlib, statistics, subprocess, sys, tempfile

import benchmarks

MOUNTED = "SOLERA_SPLIT_BENCH"


def places(base):
    for kind in ("tmpfs", "ext4", "xfs"):
        at = base / kind
        at.mkdir()
        if kind != "tmpfs":
            image = base / f"{kind}.image"
            with open(image, "wb") as file:
                file.truncate(4 << 30)
            makes = {"ext4": [["mkfs.ext4", "-qF"]],
                     "xfs": [["mkfs.xfs", "-qf", "-i", "exchange=1"], ["mkfs.xfs", "-qf"]]}
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            made = any(subprocess.run([*make, image], **quiet).returncode == 0
                       for make in makes[kind])
            if not made or subprocess.run(["mount", "-o", "loop", image, at]).returncode != 0:
                print(f"without {kind}: it cannot be made and mounted here", file=sys.stderr)
                continue
        for name in ("kernel", "split"):
            (at / name).mkdir()
        engine = [benchmarks.SOLERA, "run", "--split", at / "split", "--"]
        yield kind, [benchmarks.Place("kernel", at / "kernel", []),
                     benchmarks.Place("split", at / "split", engine)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    options = parser.parse_args()
    if MOUNTED not in os.environ:
        os.environ[MOUNTED] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(prefix="solera-split-") as scratch, \
            contextlib.ExitStack() as stack:
        base = pathlib.Path(scratch) / "memory"
        base.mkdir()
        benchmarks.run("mount", "-t", "tmpfs", "-o", "size=12g", "tmpfs", base)
        stack.callback(subprocess.run, ["umount", "-R", base])
        for kind, peers in places(base):
            work = pathlib.Path(scratch) / f"work-{kind}"
            work.mkdir()
            for row, times in benchmarks.apps(peers, work, options).items():
                kernel, split = (statistics.median(times[name]) for name in ("kernel", "split"))
                print(f"{kind}\t{row}\tkernel {kernel:.0f}\tsplit {split:.0f}\tx {split / kernel:.2f}")


if __name__ == "__main__":
    main()
