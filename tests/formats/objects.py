"""What tests/formats does to a volume: `make DIR` fills it with objects of every kind that the format
has, the same in every run; `work DIR` goes on changing others until it is killed; `judge DIR` looks at
what was left of those. What `make` made is told by `tell DIR` of crates/cli/tests/commands/stream.py."""

import mmap
import os
import pathlib
import struct
import sys
import threading

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "crates/cli/tests/commands"))
import stream  # noqa: E402

CHUNK = 2 << 20
BLOCK = 4096
# Of the files that are being changed when the program is killed.
WORKED = 8
PAGES = 16


def numbered(name, size):
    """A file each word of which says where it is: it packs well."""
    with open(name, "wb") as file:
        for at in range(0, size, 1 << 16):
            words = range(at, min(at + (1 << 16), size), 64)
            file.write(b"".join(b"%s %020d\n" % (name.encode()[:16].rjust(16), at) + b"." * 26
                                for at in words)[:size - at])


def make(top):
    os.makedirs(os.path.join(top, "kinds"))
    stream.make(os.path.join(top, "kinds"))
    os.chdir(top)
    numbered("kinds/large", 1 << 20)
    os.utime("kinds/large", ns=(1, 2))
    os.chmod("kinds/large", 0o6755)
    # Leaves of whole chunks, trees of several levels, direct words.
    numbered("chunks", 3 * CHUNK + 12345)
    with open("pieces", "wb") as file:
        for piece in range(700):
            file.seek(piece * 3 * BLOCK)
            file.write(b"%07d" % piece * 100)
    with open("far", "wb") as file:
        for at in (0, 11 * BLOCK, 12 * BLOCK, 1 << 30, 1 << 40, (1 << 43) + 5):
            file.seek(at)
            file.write(b"at %d" % at)
    # Blocks that were asked for and hold nothing yet, within the file and behind its end.
    with open("asked", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 40 * BLOCK)
        file.seek(7 * BLOCK)
        file.write(b"within")
    with open("behind", "wb") as file:
        file.write(b"short")
        keep_size(file.fileno(), 64 * BLOCK)
    # A directory of several levels, names that are long or collide in nothing but their beginning.
    os.mkdir("many")
    for number in range(3000):
        name = f"many/{number:04d}" + "x" * (number % 7 * 30)
        if number % 3 == 0:
            os.mkdir(name)
        elif number % 3 == 1:
            os.symlink(name[::-1], name)
        else:
            with open(name, "wb") as file:
                file.write(name.encode())
    # Extended attributes, nearly all that there is room for; and the one that the format reads.
    for number in range(14):
        os.setxattr("pieces", f"user.number {number}", b"%x" % number * (number * 30))
    os.setxattr("far", "user.solera.align", b"2M")
    # A chain of renames, and names that have gone.
    os.makedirs("moved/a/b")
    os.rename("moved/a/b", "moved/c")
    os.rename("moved/c", "moved/a/d")
    for number in range(200):
        with open(f"moved/{number}", "wb") as file:
            file.write(b"gone")
        os.unlink(f"moved/{number}")
    # Stores by a mapping.
    with open("mapped", "w+b") as file:
        file.truncate(8 * BLOCK)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[3 * BLOCK:3 * BLOCK + 6] = b"stored"
            memory.flush()
    for folder, folders, files in os.walk("."):
        for name in folders + files:
            path = os.path.join(folder, name)
            if not path.startswith("./kinds"):
                os.utime(path, ns=(10 ** 18 + 1, 10 ** 18 + len(path)), follow_symlinks=False)
    os.utime("kinds", ns=(10 ** 18, 10 ** 18 + 3))
    os.utime(".", ns=(10 ** 18, 10 ** 18 + 7))


def keep_size(number, length):
    """FALLOC_FL_KEEP_SIZE, which Python's own call does not have."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    if libc.fallocate(number, 1, 0, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def page(turn):
    return struct.pack("<q", turn) * (BLOCK // 8)


def overwrite(number):
    """Each write is whole or not there; a file's pages are never further apart than one turn."""
    file = os.open(f"worked-{number}", os.O_RDWR | os.O_CREAT, 0o644)
    turn = 0
    while True:
        for at in range(PAGES):
            os.pwrite(file, page(turn), at * BLOCK)
        turn += 1


def names(number):
    """One of two names is always there, with all its bytes."""
    one, other = f"names-{number}", f"names-{number}+"
    with open(one, "wb") as file:
        file.write(page(number))
    while True:
        os.rename(one, other)
        os.mkdir(f"folder-{number}")
        os.rename(other, f"folder-{number}/{one}")
        os.rename(f"folder-{number}/{one}", one)
        os.rmdir(f"folder-{number}")


def work(top):
    os.chdir(top)
    os.mkdir("worked")
    os.chdir("worked")
    for number in range(WORKED):
        for what in (overwrite, names):
            threading.Thread(target=what, args=(number,), daemon=True).start()
    print("at work", flush=True)
    threading.Event().wait()


def judge(top):
    """What was being worked on is whole, in the strict mode."""
    os.chdir(os.path.join(top, "worked"))
    for number in range(WORKED):
        with open(f"worked-{number}", "rb") as file:
            turns = []
            while bytes_read := file.read(BLOCK):
                turn = struct.unpack_from("<q", bytes_read)[0]
                assert bytes_read == page(turn), (number, len(turns), "is torn")
                turns.append(turn)
        assert all(0 <= turns[0] - turn <= 1 for turn in turns), (number, turns)
        assert turns == sorted(turns, reverse=True), (number, turns)
        places = [f"names-{number}", f"names-{number}+", f"folder-{number}/names-{number}"]
        there = [place for place in places if os.path.exists(place)]
        assert len(there) == 1, (number, there)
        with open(there[0], "rb") as file:
            assert file.read() == page(number), there
    print("whole")


if __name__ == "__main__":
    {"make": make, "work": work, "judge": judge}[sys.argv[1]](sys.argv[2])
