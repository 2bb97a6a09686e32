"""Checks of Python's multiprocessing, mmap, zipfile, subprocess and more on a directory."""
import concurrent.futures, dbm.dumb, fcntl, gzip, hashlib, io, logging.handlers, mmap, multiprocessing, os, pickle, random, shelve, signal, subprocess, sys, tarfile, time, zipfile

AT = sys.argv[1]
os.makedirs(AT + "/more", exist_ok=True)
os.chdir(AT + "/more")


def fill(part):
    path = f"part{part}"
    with open(path, "wb") as f:
        for i in range(500):
            f.write(b"%d:%d\n" % (part, i))
    with open("shared", "r+b", buffering=0) as f:
        for i in range(100):
            os.pwrite(f.fileno(), b"%07d\n" % (part * 100 + i), (part * 100 + i) * 8)
    with open("log", "ab", buffering=0) as f:
        for i in range(200):
            f.write(b"%03d %05d %s\n" % (part, i, b"x" * (i % 50)))
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def count(path, rounds):
    for _ in range(rounds):
        with open(path, "r+") as f:
            fcntl.lockf(f, fcntl.LOCK_EX)
            n = int(f.read())
            f.seek(0)
            f.write(str(n + 1))
            f.flush()
            fcntl.lockf(f, fcntl.LOCK_UN)


def slots(path, slot):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        for i in range(1000):
            at = (i * 8 + slot) * 8
            m[at:at + 8] = b"%d%07d" % (slot, i)


def listen(queue, path):
    for text in iter(queue.get, None):
        with open(path, "a") as f:
            f.write(text + "\n")


def processes(method):
    context = multiprocessing.get_context(method)
    open("shared", "wb").truncate(8 * 800)
    open("log", "wb").close()
    with context.Pool(4) as pool:
        sums = pool.map(fill, range(8))
    for part, digest in enumerate(sums):
        assert digest == hashlib.sha256(b"".join(b"%d:%d\n" % (part, i) for i in range(500))).hexdigest(), part
    assert open("shared", "rb").read() == b"".join(b"%07d\n" % i for i in range(800))
    lines = open("log", "rb").read().splitlines()
    assert len(lines) == 1600 and len(set(lines)) == 1600, (len(lines), len(set(lines)))
    assert all(len(line) == 10 + int(line[4:9]) % 50 for line in lines), "an append was torn"
    open("count", "w").write("0")
    workers = [context.Process(target=count, args=("count", 150)) for _ in range(4)]
    [w.start() for w in workers], [w.join() for w in workers]
    assert [w.exitcode for w in workers] == [0] * 4 and open("count").read() == "600"
    open("slots", "wb").truncate(8 * 8 * 1000)
    workers = [context.Process(target=slots, args=("slots", n)) for n in range(8)]
    [w.start() for w in workers], [w.join() for w in workers]
    assert open("slots", "rb").read() == b"".join(b"%d%07d" % (n, i) for i in range(1000) for n in range(8))
    queue = context.Queue()
    worker = context.Process(target=listen, args=(queue, "heard-" + method))
    worker.start()
    for i in range(300):
        queue.put("message %d" % i)
    queue.put(None)
    worker.join()
    assert open("heard-" + method).read().split("\n")[:-1] == ["message %d" % i for i in range(300)]
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        assert list(pool.map(os.path.getsize, ["count"] * 20)) == [3] * 20
    # A worker that is killed holds nothing afterwards.
    worker = context.Process(target=count, args=("count", 10 ** 9))
    worker.start()
    while open("count").read() in ("600", ""):
        time.sleep(0.01)
    worker.kill(), worker.join()
    with open("count", "r+") as f:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


def mappings():
    with open("map", "w+b") as f:
        f.truncate(1 << 20)
        m = mmap.mmap(f.fileno(), 0)
        m[:5], m[4094:4098] = b"begin", b"page"
        assert m.find(b"page") == 4094 and m.rfind(b"begin") == 0
        m.resize(2 << 20)
        assert os.fstat(f.fileno()).st_size == 2 << 20 and m[4094:4098] == b"page"
        m[(2 << 20) - 3:] = b"end"
        m.move(100, 4094, 4)
        m.flush(0, 4096)
        f.seek(100)
        assert f.read(4) == b"page"
        f.seek(-3, os.SEEK_END)
        assert f.read() == b"end"
        # The caller's buffer lies in a mapping of the file that the call reads or writes.
        assert os.preadv(f.fileno(), [memoryview(m)[8192:12288]], 0) == 4096 and m[8192:8197] == b"begin"
        assert os.pwrite(f.fileno(), memoryview(m)[4090:4100], 20000) == 10 and m[20004:20008] == b"page"
        m.close()
        window = mmap.mmap(f.fileno(), 8192, offset=mmap.ALLOCATIONGRANULARITY * 2, access=mmap.ACCESS_READ)
        assert window[:5] == b"begin" and len(window) == 8192
        try:
            window[0] = 1
            raise AssertionError("a read-only mapping was written")
        except TypeError:
            window.close()
    # A mapping outlives the close and the unlink of its file, and a fork shares it.
    f = open("gone", "w+b")
    f.truncate(65536)
    m = mmap.mmap(f.fileno(), 0)
    f.close()
    os.unlink("gone")
    pid = os.fork()
    if pid == 0:
        m[1000:1005] = b"child"
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0 and m[1000:1005] == b"child"
    anonymous = mmap.mmap(-1, 4096)
    anonymous[:3] = b"abc"
    m.close(), anonymous.close()


def archives():
    random.seed(5)
    files = {f"d{i % 7}/f{i}": random.randbytes(random.randrange(8000)) for i in range(300)}
    with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    with zipfile.ZipFile("a.zip", "a", zipfile.ZIP_LZMA) as z:
        with z.open("stream", "w") as out:
            for i in range(1000):
                out.write(b"%d\n" % i)
    with zipfile.ZipFile("a.zip") as z:
        assert z.testzip() is None and len(z.namelist()) == 301
        z.extractall("unzipped")
        assert z.read("stream").split()[999] == b"999"
    for name, data in files.items():
        assert open("unzipped/" + name, "rb").read() == data, name
    assert subprocess.run([sys.executable, "-m", "zipfile", "-t", "a.zip"], capture_output=True, text=True).stdout == "Done testing\n"
    os.makedirs("package/inner")
    open("package/__init__.py", "w").write("answer = 42\n")
    open("package/inner/__init__.py", "w").write("from .. import answer\n")
    with zipfile.PyZipFile("p.zip", "w") as z:
        z.writepy("package")
    sys.path[:0] = [os.getcwd() + "/p.zip"]
    import package
    assert package.answer == 42 and "p.zip" in package.__file__
    with tarfile.open("a.tar.xz", "w:xz") as t:
        t.add("unzipped")
    with tarfile.open("a.tar.xz") as t:
        assert len([m for m in t if m.isfile()]) == 301
    with gzip.open("g.gz", "wt") as g:
        g.write("text\n" * 10000)
    assert subprocess.run("zcat g.gz | wc -l", shell=True, capture_output=True).stdout == b"10000\n"
    with dbm.dumb.open("dumb", "c") as d:
        for i in range(200):
            d[str(i)] = "v" * i
    with shelve.open("shelf") as s:
        s["list"] = list(range(1000))
    with shelve.open("shelf") as s:
        assert s["list"][999] == 999
    handler = logging.handlers.RotatingFileHandler("rotating.log", maxBytes=1000, backupCount=3)
    for i in range(200):
        handler.emit(logging.LogRecord("n", 20, "p", 1, "message %d", (i,), None))
    handler.close()
    assert sorted(n for n in os.listdir() if n.startswith("rotating")) == ["rotating.log"] + ["rotating.log.%d" % i for i in (1, 2)]


def subprocesses():
    open("in", "w").write("".join("%d\n" % i for i in range(2000)))
    with open("in") as i, open("out", "w") as o, open("err", "w") as e:
        child = subprocess.Popen(["sh", "-c", "sort -rn; echo done >&2"], stdin=i, stdout=o, stderr=e)
        assert child.wait(30) == 0
    assert open("out").readline() == "1999\n" and open("err").read() == "done\n"
    assert subprocess.run(["wc", "-l"], stdin=open("in"), stdout=subprocess.PIPE).stdout == b"2000\n"
    pipe = subprocess.Popen(["cat", "in"], stdout=subprocess.PIPE)
    last = subprocess.Popen(["tail", "-n", "1"], stdin=pipe.stdout, stdout=subprocess.PIPE)
    assert last.communicate()[0] == b"1999\n" and pipe.wait() == 0
    # Descriptors passed by number, a working directory, a child of a child, a session, an end by a signal.
    with open("passed", "w+") as f:
        f.write("parent\n"), f.flush()
        code = "import os,sys; n=int(sys.argv[1]); os.write(n, b'child\\n'); os.lseek(n, 0, 0)"
        subprocess.run([sys.executable, "-c", code, str(f.fileno())], pass_fds=[f.fileno()], check=True)
        assert f.tell() == 0 and f.read() == "parent\nchild\n"
        assert subprocess.run([sys.executable, "-c", f"import os; os.fstat({f.fileno()})"], capture_output=True).returncode == 1
    os.mkdir("sub")
    assert subprocess.run(["pwd"], cwd="sub", capture_output=True, text=True).stdout == os.getcwd() + "/sub\n"
    assert subprocess.run(["sh", "-c", "(echo deep; exec sh -c 'cd sub && pwd') >deep; cat deep"], capture_output=True, text=True, start_new_session=True).stdout == f"deep\n{os.getcwd()}/sub\n"
    assert subprocess.run(["env", "-i", "/bin/sh", "-c", "cat in | wc -c"], capture_output=True).stdout == b"8890\n"
    child = subprocess.Popen(["sh", "-c", "while :; do echo x >>endless; done"])
    time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL and os.path.getsize("endless") > 0
    try:
        subprocess.run([os.getcwd() + "/none"])
        raise AssertionError("a program that is not there was started")
    except FileNotFoundError:
        pass
    open("script", "w").write("#!/bin/sh\necho from $0 $1\n")
    os.chmod("script", 0o755)
    assert subprocess.run(["./script", "x"], capture_output=True).stdout == b"from ./script x\n"


if __name__ == "__main__":
    for part in (lambda: processes("fork"), lambda: processes("spawn"), mappings, archives, subprocesses):
        part()
    print("all of Python's further checks passed")
