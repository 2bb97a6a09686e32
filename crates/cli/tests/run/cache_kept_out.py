# Reads through the cache when it is out of reach: usage: NAMES EMPTY-DIRECTORY WAYS.
import ctypes, os, struct, sys

start, empty, ways = sys.argv[1:]
names = [start + str(number) for number in range(8)]
LENGTH = 300_000


def content(number, age):
    return bytes([number + 1 + 16 * age]) * LENGTH


def forbid(errno):
    """`open` and its kin, and mappings of files, end with this number from here on."""
    def load(at):
        return struct.pack("HBBI", 0x20, 0, 0, at)

    def equals(value, then, otherwise):
        return struct.pack("HBBI", 0x15, then, otherwise, value)

    def end(value):
        return struct.pack("HBBI", 0x06, 0, 0, value)

    # Number; the lower half of the fifth argument of `mmap` is -1 if it is of no file.
    lines = [load(0), equals(2, 5, 0), equals(257, 4, 0), equals(437, 3, 0), equals(9, 0, 3),
             load(16 + 4 * 8), equals(0xFFFFFFFF, 1, 0), end(0x50000 | errno), end(0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
    try:
        os.open("/etc/passwd", os.O_RDONLY)
        raise AssertionError("it may still open files")
    except OSError as error:
        assert error.errno == errno, error


for number, name in enumerate(names):
    with open(name, "wb") as file:
        file.write(content(number, 0))
    os.chmod(name, 0o666)
files = [os.open(name, os.O_RDWR) for name in names]


def check(number, age):
    expected = content(number, age)
    assert os.pread(files[number], 50_000, 70_001) == expected[70_001:120_001], (number, age)
    os.lseek(files[number], 0, 0)
    assert os.read(files[number], LENGTH + 1) == expected, (number, age)


for number in range(4):
    check(number, 0)
for way in ways.split():
    if way == "setuid":
        os.setgid(65534)
        os.setuid(65534)
    elif way == "seteuid":
        os.seteuid(65534)
    elif way == "chroot":
        os.chroot(empty)
        os.chdir("/")
    else:
        forbid(int(way.removeprefix("forbid-")))
for age in range(3):
    for number in range(8):
        for _ in range(2):
            check(number, age)
        assert os.pwrite(files[number], content(number, age + 1), 0) == LENGTH
if ways == "seteuid":
    os.seteuid(0)
print("right")
