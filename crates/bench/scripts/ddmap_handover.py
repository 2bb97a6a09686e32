#!/usr/bin/env python3
"""How long a volume takes to change hands, of which so much was touched: `make ddmap-handover` (a
minute or two).

Two nodes on loopback, each with room for all of it, and each with a runtime directory of its own, as
if on a machine of its own. A program of one node has the volume; one of the other node waits for it.
Measured, in turns:

- *hands*: from the end of the program that has it until the one that waits has loaded a page;
- *asked*: the whole of `solera run` on the other node while nobody has the volume, until then;
- *here*: the same on the host, where the volume is;
- *move*: the command `solera domain move`, by hand; and the processor time of both nodes in it, which
  says more than the time on a machine that has other work.

usage: ddmap_handover.py [--size MIB] [--rounds N]
"""
import argparse, datetime, os, pathlib, signal, statistics, subprocess, tempfile, time

SOLERA = os.environ.get("SOLERA", str(pathlib.Path(__file__).resolve().parents[3] / "target/release/solera"))
# Says when it has loaded a page, by the clock that this script looks at.
LOADS = ("import mmap,os,time; f=os.open('/dm/file',os.O_RDWR);"
         "m=mmap.mmap(f,0); m[0]; print(time.monotonic(), flush=True)")


class Machine:
    """A node, and what its commands find."""

    def __init__(self, folder, number, room, join):
        self.number = number
        run = f"{folder}/run{number}"
        os.mkdir(run, 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": run}
        line = ["node", "--domain", "dm", "--listen", "127.0.0.1:0", "--store", f"{folder}/{number}",
                "--capacity", f"{room}M", *(["--join", join] if join else [])]
        self.node = self.started(*line)
        self.address = self.node.stdout.readline().split(" at ")[1].split(",")[0]

    def started(self, *words):
        return subprocess.Popen([SOLERA, *words], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def solera(self, *words):
        return subprocess.run([SOLERA, *words], env=self.environment, text=True, check=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout

    def used(self):
        """Seconds of a processor that the node has used."""
        with open(f"/proc/{self.node.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def loads(self):
        """Seconds from now until a program here has loaded a page."""
        begun = time.monotonic()
        said = self.solera("run", "--ddmap", "dm/v", "--", "python3", "-c", LOADS)
        return float(said) - begun


def hands(has, wants):
    holds = has.started("run", "--ddmap", "dm/v", "--", "python3", "-c",
                        LOADS + "; time.sleep(1000)")
    holds.stdout.readline()
    asks = wants.started("run", "--ddmap", "dm/v", "--", "python3", "-c", LOADS)
    while '"waiting": []' in has.solera("domain", "status", "--json", "dm"):
        time.sleep(0.01)
    begun = time.monotonic()
    holds.send_signal(signal.SIGKILL)
    said = asks.communicate()[0]
    holds.wait()
    return float(said) - begun


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--size", type=int, default=1024, help="MiB that are touched [1024]")
    words.add_argument("--rounds", type=int, default=9)
    words = words.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        room, machines = words.size * 2, []
        for number in (1, 2):
            machines.append(Machine(folder, number, room, machines[0].address if machines else None))
        try:
            return measure(machines, words)
        finally:
            for machine in machines:
                machine.node.kill()
                machine.node.wait()


def measure(machines, words):
    host, other = machines
    host.solera("format", "--ddmap", "dm/v", "--size", f"{words.size * 3 // 2}M")
    fill = f"import os; f=open('/dm/file','wb')\nfor _ in range({words.size}): f.write(os.urandom(1<<20))"
    host.solera("run", "--ddmap", "dm/v", "--", "python3", "-c", fill)
    times = {"hands": [], "asked": [], "here": [], "move": [], "nodes' processor, a move": []}
    for _ in range(words.rounds):
        times["here"].append(host.loads())
        times["hands"].append(hands(host, other))
        times["asked"].append(host.loads())
        begun, used = time.monotonic(), host.used() + other.used()
        host.solera("domain", "move", "dm/v", "--to", str(other.number))
        times["move"].append(time.monotonic() - begun)
        times["nodes' processor, a move"].append(host.used() + other.used() - used)
        host, other = other, host
    print(f"{datetime.date.today()}: {words.size} MiB touched, medians of {words.rounds} (least to most), load "
          f"{os.getloadavg()[0]:.1f}")
    for name, all_of in times.items():
        print(f"{name:24} {statistics.median(all_of):.3f} s ({min(all_of):.3f} to {max(all_of):.3f})")
    host.solera("fsck", "dm/v")


main()
