"""Checks of Python's file modules on a directory; every statement that can fail says what it saw."""
import errno, fcntl, glob, hashlib, mmap, os, shutil, sqlite3, stat, subprocess, sys, tempfile, threading

AT = sys.argv[1]
os.chdir(AT)
assert os.getcwd() == AT, os.getcwd()

# os: descriptors, positions, vectors, attributes, links, errors.
fd = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
assert os.write(fd, b"0123456789") == 10 and os.lseek(fd, 2, os.SEEK_SET) == 2
assert os.read(fd, 3) == b"234" and os.pread(fd, 4, 6) == b"6789" and os.pwrite(fd, b"XY", 1) == 2
assert os.writev(fd, [b"aa", b"bbb"]) == 5 and os.lseek(fd, 0, os.SEEK_CUR) == 10
copy = os.dup(fd); assert os.lseek(copy, 0, os.SEEK_CUR) == 10; os.lseek(fd, 0, os.SEEK_SET); assert os.lseek(copy, 0, os.SEEK_CUR) == 0; os.close(copy)
os.ftruncate(fd, 1 << 20); assert os.fstat(fd).st_size == 1 << 20 and os.stat("a").st_blocks <= 8
assert os.lseek(fd, 0, os.SEEK_HOLE) == 4096, os.lseek(fd, 0, os.SEEK_HOLE)
try: os.lseek(fd, 1 << 19, os.SEEK_DATA); assert False
except OSError as e: assert e.errno == errno.ENXIO
os.posix_fallocate(fd, 0, 8192); os.fsync(fd); os.fdatasync(fd); os.close(fd)
for call, code in [(lambda: os.open("a", os.O_CREAT | os.O_EXCL), errno.EEXIST), (lambda: os.open("none", os.O_RDONLY), errno.ENOENT),
                   (lambda: os.mkdir("a"), errno.EEXIST), (lambda: os.rmdir("a"), errno.ENOTDIR), (lambda: os.open("a/b", os.O_RDONLY), errno.ENOTDIR),
                   (lambda: os.unlink("."), errno.EISDIR), (lambda: os.stat("x" * 256), errno.ENAMETOOLONG), (lambda: os.readlink("a"), errno.EINVAL),
                   (lambda: os.open(".", os.O_WRONLY), errno.EISDIR), (lambda: os.rename("none", "b"), errno.ENOENT), (lambda: os.read(fd, 1), errno.EBADF)]:
    try: call(); assert False, "no error where errno %d was expected" % code
    except OSError as e: assert e.errno == code, (e, code)
os.link("a", "b"); assert os.stat("b").st_nlink == 2 and os.path.samefile("a", "b")
os.symlink("a", "s"); assert os.readlink("s") == "a" and os.lstat("s").st_size == 1 and stat.S_ISLNK(os.lstat("s").st_mode)
os.utime("a", ns=(1234567890123456789, 987654321987654321)); assert os.stat("a").st_mtime_ns == 987654321987654321 and os.stat("a").st_atime_ns == 1234567890123456789
os.chmod("a", 0o600); assert stat.S_IMODE(os.stat("a").st_mode) == 0o600
os.setxattr("a", "user.k", b"value"); assert os.getxattr("a", "user.k") == b"value" and os.listxattr("a") == ["user.k"]; os.removexattr("a", "user.k"); assert os.listxattr("a") == []
os.makedirs("p/q/r"); os.rename("p/q", "q"); assert os.listdir("p") == [] and os.listdir("q") == ["r"]
os.replace("b", "c"); assert not os.path.exists("b")
directory = os.open("q", os.O_RDONLY | os.O_DIRECTORY)
inner = os.open("file", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=directory); os.write(inner, b"!"); os.close(inner)
assert sorted(os.listdir(directory)) == ["file", "r"] and os.stat("file", dir_fd=directory).st_size == 1
os.fchdir(directory); assert os.getcwd() == AT + "/q" and os.path.exists("file"); os.chdir(".."); os.close(directory)
with os.scandir(".") as entries: assert {e.name: e.is_dir(follow_symlinks=False) for e in entries} == {"a": False, "c": False, "s": False, "p": True, "q": True}
assert [len(x) for x in os.walk("q").__next__()[1:]] == [1, 1]

# Holding an unlinked file; append; copies inside the kernel's calls.
f = open("gone", "w+b"); f.write(b"still here"); f.flush(); os.unlink("gone"); f.seek(0); assert f.read() == b"still here"; f.close()
with open("log", "a") as log: log.write("one\n"); log.flush(); os.pwrite(log.fileno(), b"two\n", 0)
assert open("log").read() == "one\ntwo\n"
with open("big", "wb") as out:
    digest = hashlib.md5()
    for i in range(300): block = os.urandom(10007); out.write(block); digest.update(block)
assert hashlib.md5(open("big", "rb").read()).digest() == digest.digest()
src, dst = os.open("big", os.O_RDONLY), os.open("big2", os.O_WRONLY | os.O_CREAT)
done = 0
while True:
    n = os.copy_file_range(src, dst, 1 << 20)
    if n == 0: break
    done += n
os.close(src); os.close(dst); assert done == 3002100 and open("big", "rb").read() == open("big2", "rb").read()

# mmap, shared and private.
with open("big", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    assert hashlib.md5(m).digest() == digest.digest()
    m[5000:5005] = b"HELLO"; m.flush(); f.seek(5000); assert f.read(5) == b"HELLO"
    os.pwrite(f.fileno(), b"WORLD", 5000); assert m[5000:5005] == b"WORLD"
with open("big", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m: m[:3] = b"abc"; f.seek(0); assert f.read(3) != b"abc"

# shutil and glob.
shutil.copytree("q", "tree"); shutil.copy2("a", "tree/a2"); shutil.move("tree", "moved"); assert sorted(glob.glob("moved/*")) == ["moved/a2", "moved/file", "moved/r"]
name = shutil.make_archive("archive", "gztar", ".", "moved"); shutil.unpack_archive(name, "unpacked"); assert os.path.exists("unpacked/moved/file")
shutil.rmtree("moved"); assert shutil.disk_usage(".").total > 0 and not os.path.exists("moved")

# tempfile, on the volume.
tempfile.tempdir = AT
with tempfile.NamedTemporaryFile() as t: t.write(b"x" * 100000); t.flush(); assert os.path.getsize(t.name) == 100000 and t.name.startswith(AT)
with tempfile.TemporaryFile() as t: t.write(b"abc"); t.seek(0); assert t.read() == b"abc"
with tempfile.TemporaryDirectory() as d: open(os.path.join(d, "f"), "w").write("y")
assert not os.path.exists(d)
with tempfile.SpooledTemporaryFile(max_size=10) as t: t.write(b"0123456789abcdef"); t.seek(0); assert len(t.read()) == 16
handle, path = tempfile.mkstemp(); os.close(handle); os.unlink(path)

# Locks between processes, threads on one file, subprocesses with inherited descriptors.
with open("lock", "w") as f:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pid = os.fork()
    if pid == 0:
        try: fcntl.lockf(open("lock", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
        except OSError as e: os._exit(0 if e.errno in (errno.EAGAIN, errno.EACCES) else 2)
    assert os.waitpid(pid, 0)[1] == 0
def append(n):
    for i in range(200):
        with open("threads", "ab") as f: f.write(b"%d %d\n" % (n, i))
workers = [threading.Thread(target=append, args=(n,)) for n in range(4)]
[w.start() for w in workers]; [w.join() for w in workers]
assert len(set(open("threads").read().split("\n"))) == 801
with open("out", "wb") as out: subprocess.run(["sh", "-c", "echo shell; cat s | head -c 3"], stdout=out, check=True)
assert open("out", "rb").read()[:6] == b"shell\n"
with open("log") as inp: assert subprocess.run(["cat"], stdin=inp, capture_output=True, check=True).stdout == b"one\ntwo\n"
assert subprocess.run("wc -c < big", shell=True, capture_output=True, check=True).stdout.strip() == b"3002100"

# sqlite3 through the module.
db = sqlite3.connect("m.db"); assert db.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
db.execute("create table t(a integer primary key, b text)")
for i in range(300):
    with db: db.execute("insert into t values(?, ?)", (i, "v%d" % i))
second = sqlite3.connect("m.db"); assert second.execute("select count(*), sum(a) from t").fetchone() == (300, 44850); second.close()
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"; db.close()
print("all of Python's checks passed")
