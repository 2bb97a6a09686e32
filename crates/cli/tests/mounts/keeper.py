# Ways to start a program that no library can enter ($F) on a volume ($AT), and an exec that fails.
import errno
import os
import subprocess
import threading
import time

AT, F = os.environ["AT"], os.environ["F"]
FILE = AT + "/f"


def space():
    return os.readlink("/proc/thread-self/ns/mnt")


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def child_of(run):
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(99)
    return ended(child)


def begin_thread():
    threading.Thread(target=lambda: time.sleep(60), daemon=True).start()


before = space()
done = subprocess.run([F, "cat", FILE], capture_output=True, text=True)
assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", ""), done
assert ended(os.posix_spawn(F, [F, "append", FILE, "two"], os.environ)) == 0
assert os.popen(F + " cat " + FILE).read() == "one\ntwo\n"
assert os.system(F + " exit 7") == 7 << 8
assert subprocess.run([F, "kill", "9"]).returncode == -9


# From a process with several threads, by one of them, with a descriptor of the volume.
def by_thread():
    begin_thread()
    os.chdir(AT)
    os.dup2(os.open("out", os.O_RDWR | os.O_CREAT), 1)
    thread = threading.Thread(target=lambda: os.execv(F, [F, "cat", "f"]))
    thread.start()
    thread.join()


assert child_of(by_thread) == 0
assert open(AT + "/out").read() == "one\ntwo\n"


# An exec that fails leaves everything as it was.
def failing(with_threads):
    if with_threads:
        begin_thread()
    fd = os.open(FILE, os.O_RDONLY)
    os.set_inheritable(fd, True)
    os.chdir(AT)
    try:
        os.execv(F, [F, "x" * 200000])
    except OSError as error:
        assert error.errno == errno.E2BIG, error
    assert space() == before
    assert os.getcwd() == AT
    assert os.read(fd, 4) == b"one\n"
    assert os.readlink("/proc/self/fd/%d" % fd) == FILE
    assert os.path.exists("f") and not os.path.exists("/proc/self/cwd/f/x")
    os.chdir("/")
    assert os.readlink("/proc/thread-self/cwd") == "/"
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        os._exit(0)


assert child_of(lambda: failing(False)) == 0
assert child_of(lambda: failing(True)) == 0
assert space() == before
print("right")
