"""What `stream.rs` does to a tree: `make DIR` fills it with objects of every kind; `tell DIR`
prints all that can be seen of it, a line for each object."""

import hashlib
import os
import socket
import stat
import sys

ODD = [b"with\nnewline", b"\xff\xfe not UTF-8", b"spaces and = and %3D", b"n" * 120, b"-rf", b"..."]


def make(top):
    os.chdir(top)
    os.makedirs(b"deep/" + b"/".join(b"d%d" % number for number in range(40)))
    for number, name in enumerate(ODD):
        with open(name, "wb") as file:
            file.write(b"%d" % number * (number * 1000))
        os.symlink(name, b"link to " + name[:20])
    os.symlink(b"t" * 1000, "long target")
    os.symlink("/absolute/../there", "deep/away")
    with open("large", "wb") as file:
        file.write(os.urandom(5 << 20))
    # Holes at the beginning, within, at the end; nothing but a hole; nothing.
    with open("holes", "wb") as file:
        for at in (1 << 20, 3 << 20, (3 << 20) + 8192):
            file.seek(at)
            file.write(b"data" * 1024)
        file.truncate(1 << 30)
    with open("hole", "wb") as file:
        file.truncate(123456789)
    open("empty", "wb").close()
    os.mkdir("empty directory", 0o700)
    os.link("large", "deep/second name")
    os.link(ODD[1], b"deep/d0/\xff")
    os.link("deep/away", "deep/away too")
    os.mkfifo("fifo", 0o622)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    if os.geteuid() == 0:
        os.mknod("character", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod("block", stat.S_IFBLK | 0o640, os.makedev(259, 70000))
        os.chown("empty", 4000000, 3999999)
        os.lchown("long target", 12, 34)
        os.setxattr("empty directory", "trusted.a", b"\0\n=%")
    os.setxattr("large", "user.a=b%c", b"a\nb\0c" * 50)
    os.setxattr("large", "user.empty", b"")
    os.setxattr("deep", "user.of a directory", b"x" * 2000)
    os.chmod("large", 0o6755)
    os.chmod("empty directory", 0o1577)
    os.chmod("deep", 0o500)
    for name, times in [
        ("large", (1, 2)),
        ("empty", (-1, -999999999)),
        ("holes", (4102444800123456789, 1700000000000000001)),
        ("deep", (1500000000000000003, 1500000000000000004)),
    ]:
        os.utime(name, ns=times)
    os.utime("long target", ns=(77, 88), follow_symlinks=False)
    os.setxattr(".", "user.top", b"of the root")
    os.chmod(".", 0o751)
    os.utime(".", ns=(5000000005, 6000000006))


def parts(path, size):
    """Where a file has data."""
    found, at = [], 0
    # Not to change what is told.
    with open(os.open(path, os.O_RDONLY | os.O_NOATIME), "rb") as file:
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            found.append((start, at, hashlib.sha256(file.read(at - start)).hexdigest()))
    return found


def tell(top):
    os.chdir(top)
    paths = [b"."]
    for folder, folders, files in os.walk(b"."):
        paths += [os.path.join(folder, name) for name in folders + files]
    seen = {path: os.lstat(path) for path in sorted(paths)}
    first = {}
    for path, found in seen.items():
        kind = stat.S_IFMT(found.st_mode)
        size = found.st_size if kind != stat.S_IFDIR else 0
        links = found.st_nlink if kind != stat.S_IFDIR else 0
        told = [path, oct(found.st_mode), links, found.st_uid, found.st_gid, size, found.st_rdev]
        told += [found.st_mtime_ns, found.st_atime_ns, first.setdefault(found.st_ino, path)]
        if kind == stat.S_IFLNK:
            told.append(os.readlink(path))
        told += [(name, os.getxattr(path, name, follow_symlinks=False))
                 for name in sorted(os.listxattr(path, follow_symlinks=False))]
        if kind == stat.S_IFREG:
            told += parts(path, size)
        print(told)


if __name__ == "__main__":
    {"make": make, "tell": tell}[sys.argv[1]](sys.argv[2])
