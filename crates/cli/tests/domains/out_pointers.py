"""Calls of the kernel's whose out-pointers lie in a mapped page that was loaded, and nothing else,
since it came: the page is clean, and protected. out_pointers.py FILE: each call has a page of its own.
What a call has taken and cannot store would be gone."""

import ctypes
import mmap
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time

PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)
CALLS = []


def call(act):
    CALLS.append((act.__name__, act))
    return act


def done(value, name):
    if value < 0:
        raise SystemExit(f"{name}: {os.strerror(ctypes.get_errno())}")
    return value


def pipe(data):
    out, into = os.pipe()
    os.write(into, data)
    os.close(into)
    return out


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.c_void_p),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p),
                ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


@call
def read(at):
    return done(libc.read(pipe(b"word"), ctypes.c_void_p(at), 64), "read"), b"word"


@call
def readv(at):
    return done(libc.readv(pipe(b"word"), (Iovec * 1)(Iovec(at, 64)), 1), "readv"), b"word"


@call
def pread(at):
    with tempfile.TemporaryFile() as file:
        file.write(b"word")
        file.flush()
        return done(libc.pread(file.fileno(), ctypes.c_void_p(at), 64, 0), "pread"), b"word"


@call
def recv(at):
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    two.send(b"word")
    return done(libc.recv(one.fileno(), ctypes.c_void_p(at), 64, 0), "recv"), b"word"


def received(message):
    """A datagram over loopback."""
    one, two = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.bind(("127.0.0.1", 0))
    two.sendto(b"word", one.getsockname())
    return done(message(one.fileno()), "recvmsg")


@call
def recvfrom_address(at):
    data, length = ctypes.create_string_buffer(64), ctypes.c_uint32(16)
    got = received(lambda fd: libc.recvfrom(fd, data, 64, 0, ctypes.c_void_p(at),
                                            ctypes.byref(length)))
    assert (got, data.value) == (4, b"word"), (got, data.value)
    return 2, struct.pack("H", socket.AF_INET)


@call
def recvmsg_all(at):
    iov = (Iovec * 1)(Iovec(at + 64, 64))
    header = Msghdr(at, 16, ctypes.cast(iov, ctypes.c_void_p), 1, at + 256, 64, 0)
    got = received(lambda fd: libc.recvmsg(fd, ctypes.byref(header), 0))
    assert (got, ctypes.string_at(at + 64, 4)) == (4, b"word"), got
    return 2, struct.pack("H", socket.AF_INET)


@call
def getsockname(at):
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    length = ctypes.c_uint32(16)
    done(libc.getsockname(one.fileno(), ctypes.c_void_p(at), ctypes.byref(length)), "getsockname")
    return 2, struct.pack("H", socket.AF_INET)


@call
def getsockopt(at):
    one, length = socket.socket(), ctypes.c_uint32(4)
    done(libc.getsockopt(one.fileno(), socket.SOL_SOCKET, socket.SO_TYPE, ctypes.c_void_p(at),
                         ctypes.byref(length)), "getsockopt")
    return 4, struct.pack("i", socket.SOCK_STREAM)


@call
def accept_address(at):
    one, two = socket.socket(), socket.socket()
    one.bind(("127.0.0.1", 0))
    one.listen()
    two.connect(one.getsockname())
    length = ctypes.c_uint32(16)
    done(libc.accept(one.fileno(), ctypes.c_void_p(at), ctypes.byref(length)), "accept")
    return 2, struct.pack("H", socket.AF_INET)


@call
def pipe2(at):
    done(libc.pipe2(ctypes.c_void_p(at), 0), "pipe2")
    first, second = struct.unpack("ii", ctypes.string_at(at, 8))
    os.write(second, b"word")
    assert os.read(first, 9) == b"word"
    return None


@call
def socketpair(at):
    done(libc.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0, ctypes.c_void_p(at)), "socketpair")
    first, second = struct.unpack("ii", ctypes.string_at(at, 8))
    os.write(second, b"word")
    assert os.read(first, 9) == b"word"
    return None


@call
def stat(at):
    done(libc.stat(b"/", ctypes.c_void_p(at)), "stat")
    return 16, struct.pack("QQ", os.stat("/").st_dev, os.stat("/").st_ino)


@call
def fstatfs(at):
    done(libc.fstatfs(os.open("/", os.O_RDONLY), ctypes.c_void_p(at)), "fstatfs")
    assert ctypes.string_at(at, 8) != bytes(8)
    return None


@call
def getcwd(at):
    libc.getcwd.restype = ctypes.c_void_p
    assert libc.getcwd(ctypes.c_void_p(at), 512) == at
    here = os.getcwd().encode()
    return len(here), here


@call
def readlink(at):
    got = done(libc.readlink(b"/proc/self/exe", ctypes.c_void_p(at), 512), "readlink")
    return got, os.readlink("/proc/self/exe").encode()


@call
def uname(at):
    done(libc.uname(ctypes.c_void_p(at)), "uname")
    return 5, b"Linux"


@call
def clock_gettime(at):
    done(libc.syscall(228, 1, ctypes.c_void_p(at)), "clock_gettime")
    assert abs(struct.unpack("q", ctypes.string_at(at, 8))[0] - time.monotonic()) < 60
    return None


@call
def getrusage(at):
    done(libc.getrusage(0, ctypes.c_void_p(at)), "getrusage")
    assert ctypes.string_at(at, 144) != bytes(144)
    return None


@call
def getrandom(at):
    assert done(libc.getrandom(ctypes.c_void_p(at), 64, 0), "getrandom") == 64
    assert ctypes.string_at(at, 64) != bytes(64)
    return None


@call
def sigprocmask(at):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    done(libc.sigprocmask(0, None, ctypes.c_void_p(at)), "sigprocmask")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    return 8, struct.pack("Q", 1 << signal.SIGUSR1 - 1)


@call
def waitpid(at):
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert done(libc.waitpid(child, ctypes.c_void_p(at), 0), "waitpid") == child
    return 4, struct.pack("i", 7 << 8)


@call
def poll(at):
    ctypes.memmove(at, struct.pack("ihh", pipe(b"word"), select.POLLIN, 0), 8)
    assert done(libc.poll(ctypes.c_void_p(at), 1, 1000), "poll") == 1
    assert struct.unpack("ihh", ctypes.string_at(at, 8))[2] & select.POLLIN
    return None


@call
def epoll_wait(at):
    many, fd = select.epoll(), pipe(b"word")
    many.register(fd, select.EPOLLIN)
    assert done(libc.epoll_wait(many.fileno(), ctypes.c_void_p(at), 1, 1000), "epoll_wait") == 1
    assert struct.unpack("I", ctypes.string_at(at, 4))[0] & select.EPOLLIN
    return None


@call
def ioctl_fionread(at):
    done(libc.ioctl(pipe(b"word"), 0x541B, ctypes.c_void_p(at)), "ioctl")
    return 4, struct.pack("i", 4)


@call
def eventfd(at):
    fd = libc.eventfd(9, 0)
    assert done(libc.read(fd, ctypes.c_void_p(at), 8), "read of an eventfd") == 8
    return 8, struct.pack("Q", 9)


@call
def getdents64(at):
    fd = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    assert done(libc.syscall(217, fd, ctypes.c_void_p(at), 2048), "getdents64") > 0
    return None


@call
def getaffinity(at):
    assert done(libc.syscall(204, 0, 128, ctypes.c_void_p(at)), "sched_getaffinity") > 0
    assert ctypes.string_at(at, 128) != bytes(128)
    return None


@call
def prlimit(at):
    done(libc.prlimit(0, 7, None, ctypes.c_void_p(at)), "prlimit")
    assert ctypes.string_at(at, 16) != bytes(16)
    return None


def main(path, megabytes):
    with open(path, "w+b") as file:
        for number in range(megabytes * 256):
            file.write(struct.pack("I", number) * 1024)
        file.flush()
        memory = mmap.mmap(file.fileno(), 0)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, (name, act) in enumerate(CALLS):
        # What was written first is away; not in order, so that no neighbour comes.
        page = number * 7 + 3
        assert memory[page * PAGE] == page & 255, name
        # Behind what `read` and others may be told to store.
        at = start + page * PAGE + 8
        found = act(at)
        if found is not None:
            length, data = found
            assert ctypes.string_at(at, len(data)) == data, (name, ctypes.string_at(at, 16), data)
        assert struct.unpack_from("I", memory, page * PAGE + 3000)[0] == page, name
    print(f"{len(CALLS)} calls have stored")


main(sys.argv[1], int(sys.argv[2]))
