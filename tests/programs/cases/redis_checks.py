"""Drives redis-server on a volume over a local socket, kills it, and counts what is left."""
import os, random, signal, socket, subprocess, sys, threading, time

AT, SCRATCH = sys.argv[1], sys.argv[2]
RUN = [os.environ["SOLERA"], "run", *os.environ["RUN"].split(), "--"]


class Server:
    """redis-server with its files in the volume's directory `name`."""

    def __init__(self, name, *options):
        self.path = os.path.join(SCRATCH, name + ".sock")
        subprocess.run(RUN + ["mkdir", "-p", f"{AT}/{name}"], check=True)
        self.process = subprocess.Popen(
            RUN + ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", f"{AT}/{name}", *options],
            stdout=open(os.path.join(SCRATCH, name + ".log"), "ab"), stderr=subprocess.STDOUT)
        for _ in range(600):
            assert self.process.poll() is None, open(os.path.join(SCRATCH, name + ".log")).read()[-3000:]
            try:
                if self.connect().ask("PING") == b"PONG":
                    return
            except (OSError, RuntimeError):
                pass
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def connect(self):
        return Client(self.path)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self, how):
        try:
            self.connect().ask("SHUTDOWN", how)
        except (OSError, RuntimeError, EOFError):
            pass
        assert self.process.wait(30) == 0, "SHUTDOWN " + how


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rb")

    def ask(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.answer()

    def answer(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.stream.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise EOFError("the connection ended")
            return data[:-2]
        return [self.answer() for _ in range(int(rest))]


def value(key):
    return (b"%d:" % key) * (1 + key % 40)


def fill(server, first, seconds):
    """Writes keys from `first` on, through three connections, until the server is killed. Gives for
    each acknowledged key the time of its acknowledgement."""
    acknowledged = {}

    def write(part):
        client, key = server.connect(), first + part
        try:
            while True:
                assert client.ask("SET", key, value(key)) == b"OK"
                acknowledged[key] = time.monotonic()
                key += 3
        except (OSError, EOFError):
            pass

    writers = [threading.Thread(target=write, args=(part,)) for part in range(3)]
    [w.start() for w in writers]
    time.sleep(seconds)
    # A busy machine may have done little by then.
    patience = time.monotonic() + 60
    while len(acknowledged) <= 50 and time.monotonic() < patience:
        time.sleep(0.05)
    killed = time.monotonic()
    server.kill()
    [w.join() for w in writers]
    return acknowledged, killed


def check(server, keys):
    """All of `keys` are there with their values. Gives those that are missing."""
    client, missing, keys = server.connect(), [], list(keys)
    for at in range(0, len(keys), 200):
        part = keys[at:at + 200]
        for key, found in zip(part, client.ask("MGET", *part)):
            if found is None:
                missing.append(key)
            else:
                assert found == value(key), (key, found)
    return missing


def durable(name, fsync, grace, rounds):
    options = ["--appendonly", "yes", "--appendfsync", fsync, "--save", ""]
    server, kept, first = Server(name, *options), set(), 0
    for turn in range(rounds):
        if turn == 1:  # A rewrite runs while the next kill comes.
            server.connect().ask("BGREWRITEAOF")
        acknowledged, killed = fill(server, first, random.uniform(0.2, 0.7))
        assert len(acknowledged) > 50, "hardly anything was written"
        server = Server(name, *options)
        lost = check(server, sorted(acknowledged))
        late = [key for key in lost if acknowledged[key] > killed - grace]
        print(f"{name}: {len(acknowledged)} acknowledged, {len(lost)} lost")
        assert len(late) == len(lost), ("acknowledged, and lost", sorted(set(lost) - set(late))[:10])
        assert not check(server, sorted(kept)), "what an earlier kill had left is gone"
        kept |= set(acknowledged) - set(lost)
        first = max(acknowledged) + 10
    client = server.connect()
    client.ask("BGREWRITEAOF")
    while b"aof_rewrite_in_progress:1" in client.ask("INFO", "persistence"):
        time.sleep(0.02)
    assert b"aof_last_bgrewrite_status:ok" in client.ask("INFO", "persistence")
    server.end("NOSAVE")
    server = Server(name, *options)
    assert not check(server, sorted(kept)), "lost by the rewrite"
    server.end("NOSAVE")


def snapshot():
    server = Server("snapshot", "--save", "", "--appendonly", "no")
    client = server.connect()
    for key in range(20000):
        client.socket.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%d\r\n$%d\r\n%s\r\n" % (len(str(key)), key, len(value(key)), value(key)))
        if key % 100 == 99:
            assert [client.answer() for _ in range(100)] == [b"OK"] * 100
    assert client.ask("BGSAVE") == b"Background saving started"
    while b"rdb_bgsave_in_progress:1" in client.ask("INFO", "persistence"):
        time.sleep(0.02)
    assert b"rdb_last_bgsave_status:ok" in client.ask("INFO", "persistence")
    server.kill()
    server = Server("snapshot", "--save", "", "--appendonly", "no")
    assert server.connect().ask("DBSIZE") == 20000 and not check(server, range(20000))
    server.connect().ask("SET", "last", "word")
    server.end("SAVE")
    server = Server("snapshot", "--save", "", "--appendonly", "no")
    assert server.connect().ask("DBSIZE") == 20001 and server.connect().ask("GET", "last") == b"word"
    server.end("NOSAVE")


durable("always", "always", 0, 3)
durable("everysec", "everysec", 2, 2)
snapshot()
