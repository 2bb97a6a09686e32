"""Clients of Go's stores: write, kill the server with SIGKILL in the middle, start it again, and look whether
what it had promised is there. Prints what it finds, without what differs from run to run.

usage: go_servers.py etcd|victoria PROGRAM DIRECTORY
environment: SOLERA and RUN (what `solera run` is told; empty: the server runs as it is)
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROUNDS = 3
SECONDS_MAX = 60
# Servers that are killed: as long as they are written to before that.
SECONDS_WRITTEN = 1.5
ERRORS = "errors-of-servers"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A server with its files in a directory; `path`: what says that it is ready."""

    def __init__(self, arguments, port, ready):
        self.arguments, self.at, self.ready = arguments, f"http://127.0.0.1:{port}", ready
        self.process = None

    def start(self):
        run = os.environ["RUN"].split()
        under = [os.environ["SOLERA"], "run", *run, "--"] if run else []
        with open(ERRORS, "ab") as errors:
            self.process = subprocess.Popen([*under, *self.arguments], stdout=subprocess.DEVNULL, stderr=errors)
        until = time.monotonic() + SECONDS_MAX
        while True:
            try:
                if self.ready in self.ask("/health"):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the server is not ready: {self.process.poll()}")
            time.sleep(0.05)

    def ask(self, path, body=None):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with urllib.request.urlopen(self.at + path, data, timeout=SECONDS_MAX) as answer:
            return answer.read().decode()

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def killed_while(self, write):
        """Writes until the server is gone: `write` is called with 0, 1, ...; gives how many came back."""
        done = 0

        def writes():
            nonlocal done
            try:
                while True:
                    write(done)
                    done += 1
            except (OSError, urllib.error.HTTPError, ValueError):
                pass

        writer = threading.Thread(target=writes)
        writer.start()
        time.sleep(SECONDS_WRITTEN)
        self.end(signal.SIGKILL)
        writer.join()
        return done


def text(value):
    return base64.b64encode(value.encode()).decode()


def etcd(program, directory):
    port, peers = free_port(), f"http://127.0.0.1:{free_port()}"
    clients = f"http://127.0.0.1:{port}"
    server = Server([
        program, "--data-dir", directory, "--listen-client-urls", clients, "--advertise-client-urls", clients,
        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
        "--snapshot-count", "300", "--log-level", "fatal",
    ], port, '"true"')
    promised = {}

    def put(key, value):
        server.ask("/v3/kv/put", {"key": text(key), "value": text(value)})
        promised[key] = value

    def missing():
        found = json.loads(server.ask("/v3/kv/range", {"key": text("k"), "range_end": text("l")}))
        pairs = {kept["key"]: kept["value"] for kept in found["kvs"]}
        return sum(pairs.get(text(key)) != text(value) for key, value in promised.items()), found

    for turn in range(ROUNDS):
        server.start()
        written = server.killed_while(lambda count, turn=turn: put(f"k{turn}-{count}", f"value {count * 7} " * 40))
        server.start()
        print(f"killed: {written > 20}, missing: {missing()[0]}")
        server.end(signal.SIGTERM)
    server.start()
    revision = missing()[1]["header"]["revision"]
    server.ask("/v3/kv/compaction", {"revision": revision, "physical": True})
    server.ask("/v3/maintenance/defragment", {})
    print(f"defragmented, missing: {missing()[0]}")
    server.end(signal.SIGTERM)
    server.start()
    print(f"started again, missing: {missing()[0]}")
    server.end(signal.SIGTERM)


def victoria(program, directory):
    port = free_port()
    server = Server([
        program, f"-storageDataPath={directory}", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y",
        "-search.latencyOffset=0s", "-loggerLevel=FATAL",
    ], port, "OK")
    now = int(time.time()) * 1000
    promised = {}

    def send(name, count):
        lines = [f'{name}{{part="{part}"}} {count * 10 + part} {now - 1000 * count}' for part in range(10)]
        server.ask("/api/v1/import/prometheus", "\n".join(lines).encode())
        promised.setdefault(name, 0)
        promised[name] = count + 1

    def missing(names):
        """Of values of these names, by the sum of all."""
        found = {}
        for name in names:
            said = server.ask(f"/api/v1/export?match[]={name}&start={(now - 10**7) / 1000}&end={now / 1000 + 10}")
            for line in said.splitlines():
                for value in json.loads(line)["values"]:
                    found.setdefault(name, set()).add(value)
        return sum(set(range(promised[name] * 10)) != found.get(name, set()) for name in names)

    def snapshot():
        name = json.loads(server.ask("/snapshot/create"))["snapshot"]
        return json.loads(server.ask(f"/snapshot/delete?snapshot={name}"))["status"]

    for turn in range(ROUNDS):
        server.start()
        for count in range(100):
            send(f"kept_{turn}", count)
        # What a snapshot has is on the medium; the rest a few seconds later.
        snapshot()
        server.killed_while(lambda count, turn=turn: send(f"beside_{turn}", count))
        server.start()
        print(f"killed, missing: {missing([f'kept_{turn}' for turn in range(turn + 1)])}")
        server.end(signal.SIGINT)
    server.start()
    server.ask("/internal/force_merge")
    print(f"merged, missing: {missing([f'kept_{turn}' for turn in range(ROUNDS)])}")
    print("its snapshot is deleted:", snapshot())
    print("ended by SIGINT:", server.end(signal.SIGINT))
    server.start()
    print(f"started again, missing: {missing([f'kept_{turn}' for turn in range(ROUNDS)])}")
    server.end(signal.SIGINT)


def main():
    Path(ERRORS).write_bytes(b"")
    {"etcd": etcd, "victoria": victoria}[sys.argv[1]](*sys.argv[2:])
    for line in Path(ERRORS).read_text(errors="replace").splitlines():
        # What it wants to be known has a time.
        if " INFO: " not in line:
            print(line)


main()
