# Changes files without the cache, as it is told by lines: usage: DIRECTORY.
import os, sys

for line in sys.stdin:
    name, kind, at, length, value = line.split()
    at, length = int(at), int(length)
    fd = os.open(sys.argv[1] + "/" + name, os.O_RDWR)
    if kind == "write":
        assert os.pwrite(fd, bytes([int(value)]) * length, at) == length
    else:
        os.ftruncate(fd, at)
    os.close(fd)
    print("ok", flush=True)
