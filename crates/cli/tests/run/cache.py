# Runs with the cache, beside programs without it: usage: PIPES MOUNT PREFIX.
import os, random, sys

pipes, mount, prefix = sys.argv[1:]
random.seed(7)
LONGEST = 5 << 20
models = {name: b"" for name in ("a", "b")}
files = {}
for name in models:
    files[name] = os.open(f"{prefix}/{name}", os.O_RDWR | os.O_CREAT, 0o600)

# Those without it, by fifos.
others = [(open(f"{pipes}/in{number}", "w"), open(f"{pipes}/out{number}")) for number in (0, 1)]


def splice(old, at, new):
    old = old.ljust(at, b"\0")
    return old[:at] + new + old[at + len(new):]


def change():
    name = random.choice("ab")
    length = random.choice([1, 4096, 100_000, 2 << 20])
    at, value = random.randrange(LONGEST - length), random.randrange(1, 256)
    kind = random.choice(["write", "write", "write", "cut"])
    who = random.randrange(4)
    if who < 2:
        print(name, kind, at, length, value, file=others[who][0], flush=True)
        assert others[who][1].readline() == "ok\n"
    elif kind == "write":
        assert os.pwrite(files[name], bytes([value]) * length, at) == length
    else:
        os.ftruncate(files[name], at)
    if kind == "write":
        models[name] = splice(models[name], at, bytes([value]) * length)
    else:
        models[name] = models[name][:at].ljust(at, b"\0")


def look():
    name = random.choice("ab")
    length = random.choice([1, 4096, 100_000, 2 << 20])
    at = random.randrange(LONGEST)
    expected = models[name][at:at + length]
    assert os.pread(files[name], length, at) == expected, (name, at, length)
    path = random.choice([mount, prefix])
    fd = os.open(f"{path}/{name}", os.O_RDONLY)
    os.lseek(fd, at, 0)
    assert os.read(fd, length) == expected, (path, name, at, length)
    os.close(fd)
    if random.randrange(40) == 0:
        child = os.fork()
        if child == 0:
            # It has none of its parent's windows.
            os._exit(0 if os.pread(files[name], length, at) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0


for step in range(400):
    change()
    for _ in range(random.randrange(4)):
        look()
for other in others:
    other[0].close()
    assert other[1].read() == ""
print("done")
