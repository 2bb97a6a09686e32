"""What a program with threads, children, a database and mapped files sees in the directory of its
argument. Everything it makes there is in one new directory, which goes at the end."""

import mmap
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

at = os.path.join(sys.argv[1], "checks")
os.mkdir(at)
os.chdir(at)


def numbers(which):
    with open(f"thread-{which}", "w+") as file:
        for number in range(2000):
            file.write(f"{number}\n")
        file.seek(0)
        sums[which] = sum(int(line) for line in file)


sums = {}
threads = [threading.Thread(target=numbers, args=(which,)) for which in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(sums.items()))
base = sqlite3.connect("base")
base.execute("create table t (k integer primary key, v)")
with base:
    base.executemany("insert into t (v) values (?)", [("x" * 100,) for _ in range(500)])
print(base.execute("select count(*), sum(length(v)) from t").fetchone())
base.close()
with open("mapped", "wb+") as file:
    file.truncate(1 << 20)
    with mmap.mmap(file.fileno(), 1 << 20) as memory:
        memory[4096:4100] = b"here"
    file.seek(4096)
    print(file.read(4))
with open("out", "w") as out:
    print("before", file=out, flush=True)
    subprocess.run(["sh", "-c", "echo child; ls"], stdout=out, check=True)
    print("after", file=out)
print(open("out").read())
child = os.fork()
if child == 0:
    with open("by-child", "w") as file:
        file.write("child")
    os._exit(0)
os.waitpid(child, 0)
print(open("by-child").read(), os.getcwd(), os.path.realpath("."))
os.chdir("/")
shutil.rmtree(at)
