"""What one process does to the database of sqlite_concurrency.rs, and what must be true of it afterwards.

usage: sqlite_concurrency.py make JOURNAL LIBRARY VFS NAME
       sqlite_concurrency.py work JOURNAL SEED COUNT TOLD LIBRARY (WHO VFS NAME)...
       sqlite_concurrency.py check TOLD LIBRARY VFS NAME

NAME is opened, by the VFS that SQLite must then say it goes by. LIBRARY is the directory of solera_vfs.so.
`work` has a thread for each WHO, which goes on for COUNT rounds (0: without end), or until there is a file
TOLD/stop, or TOLD/stop-WHO with the first WHO. TOLD/WHO gets a line for each step: `begun` has the right to write, `commit SEQUENCE VALUE` is about
to commit this row of the log, `done SEQUENCE VALUE` has, `undone` has rolled back, `again SEQUENCE VALUE` has
found the row of a `commit` behind which its process was killed, and words for what else was done.

In each state that anybody sees:
- `account`: balances come to TOTAL;
- `tally`: the number of items, and the bytes of their bodies, which follow from mark and size;
- `log`: each WHO's sequence numbers are 1, 2, 3, ...; the last one is that of its last commit.
"""

import ctypes
import os
import random
import sqlite3
import sys
import threading
import time
import traceback

ACCOUNTS, EACH = 100, 1000
TOTAL = ACCOUNTS * EACH
ITEMS = 250
BODY = "substr(replace(hex(zeroblob({size} / 8 + 1)), '00', printf('%08d', {mark})), 1, {size})"
WRONG_BODIES = "SELECT id FROM items WHERE body IS NOT " + BODY.format(mark="mark", size="size")
FCNTL_VFSNAME = 12
# Older ones lose transactions of a log by themselves, on any file system. A rollback to a savepoint, in a
# transaction that has written a page to the log twice, leaves frames without checksums, and the recovery behind
# a killed process ends there (seen on tmpfs with the VFS unix, too): so a connection does either, not both. A
# passive checkpoint that meets a writer who begins the log anew takes frames for copied that are not (SQLite's
# "WAL-reset bug"): so there are only checkpoints that have the right to write.
HAS_FAULTS = sqlite3.sqlite_version_info < (3, 51, 3)
# A connection of the VFS `unix` sees that the process has no locks on the file, lets go of its mutex, and closes
# its descriptor, which drops all locks that another thread has taken in between: without `solera`, on tmpfs, 37
# of 2000 transactions lost theirs beside a thread that opens and closes. So where several threads have such
# connections, they are closed when all threads have ended.
LEFT_OPEN = []
# What a line of TOLD says of a transaction.
STEPS = ("begun", "commit", "done", "undone", "again")


class Busy(Exception):
    """Others have locked the database; the transaction is to be rolled back."""


class Differs(Exception):
    """The database is not what it must be."""


def same(found, wanted, what):
    if found != wanted:
        raise Differs(f"{what}: {found!r}, not {wanted!r}")


def vfs_of(db):
    """The VFS that an open database goes by, in SQLite's words."""
    handle = ctypes.c_void_p.from_address(id(db) + object.__basicsize__)
    name = ctypes.c_char_p()
    control = ctypes.CDLL("libsqlite3.so.0").sqlite3_file_control
    same(control(handle, b"main", FCNTL_VFSNAME, ctypes.byref(name)), 0, "SQLITE_FCNTL_VFSNAME")
    return name.value.decode()


def load(library):
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(library + "/solera_vfs")
    db.close()


def opened(name, vfs, timeout=60):
    db = sqlite3.connect(name, uri=True, isolation_level=None, timeout=timeout, check_same_thread=False)
    same(vfs_of(db), vfs, f"the VFS of {name}")
    return db


def rows(db, line, *values):
    """Runs a statement to its end."""
    try:
        return db.execute(line, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Busy from error
        raise


def told_before(path):
    """The last row of the log that was acknowledged, and the last step of a transaction."""
    acknowledged, step = 0, ["undone"]
    with open(path, "a+") as lines:
        lines.seek(0)
        for words in map(str.split, lines):
            if words[0] in STEPS:
                step = words
            if words[0] in ("done", "again"):
                acknowledged = int(words[1])
    return acknowledged, step


class Worker:
    """One connection after another of a WHO."""

    def __init__(self, journal, seed, told, whom, place):
        first, (who, vfs, name) = whom[0][0], whom[place]
        self.journal, self.who, self.vfs, self.name = journal, int(who), vfs, name
        self.closes = len(whom) == 1 or "unix" not in vfs
        self.random = random.Random(f"{seed} {who}")
        path = f"{told}/{who}"
        self.mine, step = told_before(path)
        self.told = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.stops = [f"{told}/stop", f"{told}/stop-{first}"]
        self.tell("start")
        self.db = None
        self.patiently(self.open)
        self.patiently(lambda: self.find(step))

    def tell(self, line):
        os.write(self.told, (line + "\n").encode())

    def is_over(self):
        return any(map(os.path.exists, self.stops))

    def rows(self, line, *values):
        return rows(self.db, line, *values)

    def patiently(self, what):
        """Does something that others may keep from being done, until it is; or only tries to."""
        while True:
            try:
                return what()
            except Busy:
                self.tell("busy")
                if self.db and self.db.in_transaction:
                    self.rows("ROLLBACK")
                    self.tell("undone")

    def open(self):
        if self.db:
            self.close()
        self.db = opened(self.name, self.vfs, self.random.choice([0.05, 1, 10]))
        # Not through the mount, where a mapping is the kernel's page cache.
        mapped = self.random.choice([0, 1 << 26]) if "LD_PRELOAD" in os.environ else 0
        self.rows(f"PRAGMA mmap_size = {mapped}")
        self.rows(f"PRAGMA cache_size = {self.random.choice([5, 50, 2000])}")
        self.spills = self.random.random() < 0.5
        self.rows(f"PRAGMA cache_spill = {int(self.spills)}")
        self.rows(f"PRAGMA synchronous = {self.random.choice(['normal', 'full', 'extra'])}")
        journal = self.journal
        if journal == "rollback":
            journal = self.random.choice(["delete", "truncate", "persist"])
            self.rows(f"PRAGMA journal_mode = {journal}")
        elif HAS_FAULTS:
            self.rows("PRAGMA wal_autocheckpoint = 0")
        same(self.rows("PRAGMA journal_mode"), [(journal,)], "the journal")

    def close(self):
        if self.closes:
            self.db.close()
        else:
            LEFT_OPEN.append(self.db)

    def last(self):
        return self.rows("SELECT coalesce(max(seq), 0) FROM log WHERE who = ?", self.who)[0][0]

    def find(self, step):
        """What was acknowledged is there; the commit in which the process before was killed may be."""
        found = self.last()
        if step[0] == "commit" and found == self.mine + 1:
            ask = "SELECT value FROM log WHERE who = ? AND seq = ?"
            same(self.rows(ask, self.who, found), [(int(step[2]),)], f"the row of {step}")
            self.mine = found
            self.tell(f"again {found} {step[2]}")
        same(found, self.mine, f"the last row of {self.who} at its start, behind {step}")

    # What a transaction does.

    def transfer(self):
        value = self.random.randrange(1, 500)
        for change in (-value, value):
            account = self.random.randrange(ACCOUNTS)
            self.rows("UPDATE accounts SET balance = balance + ? WHERE id = ?", change, account)

    def some(self, most):
        """Items, by number and bytes of their bodies."""
        skip = self.random.randrange(ITEMS)
        return self.rows("SELECT id, size FROM items ORDER BY id LIMIT ? OFFSET ?", most, skip)

    def new_body(self):
        largest = self.random.choice([100, 1000, 1000, 12000])
        return {"mark": self.random.randrange(10**8), "size": self.random.randrange(largest)}

    def count(self, items, size):
        self.rows("UPDATE tally SET items = items + ?, size = size + ?", items, size)

    def insert(self):
        line = f"INSERT INTO items(mark, size, body) VALUES (?1, ?2, {BODY})"
        line = line.format(mark="?1", size="?2")
        for _ in range(self.random.randrange(1, 6)):
            body = self.new_body()
            self.rows(line, body["mark"], body["size"])
            self.count(1, body["size"])

    def update(self):
        line = f"UPDATE items SET mark = ?1, size = ?2, body = {BODY} WHERE id = ?3"
        line = line.format(mark="?1", size="?2")
        for item, size in self.some(self.random.choice([1, 5, 50])):
            body = self.new_body()
            self.rows(line, body["mark"], body["size"], item)
            self.count(0, body["size"] - size)

    def delete(self):
        most = self.random.randrange(5)
        if self.rows("SELECT items FROM tally")[0][0] > ITEMS:
            most += 20
        for item, size in self.some(most):
            self.rows("DELETE FROM items WHERE id = ?", item)
            self.count(-1, -size)

    def ruin(self):
        """What must never be seen."""
        self.rows("UPDATE accounts SET balance = balance + 1 WHERE id % 7 = 3")
        self.rows("DELETE FROM items WHERE id % 3 = 0")
        self.rows("INSERT INTO log VALUES (?, ?, -1)", self.who, self.mine + 2)

    def savepoint(self):
        if HAS_FAULTS and self.spills and self.journal == "wal":
            return
        self.rows("SAVEPOINT s")
        self.ruin()
        self.rows("ROLLBACK TO s")
        self.rows("RELEASE s")
        self.tell("savepoint")

    # What a round is.

    def transaction(self):
        how = self.random.choice(["DEFERRED"] * 4 + ["IMMEDIATE"] * 5 + ["EXCLUSIVE"])
        self.rows(f"BEGIN {how}")
        if how == "DEFERRED":
            same(self.last(), self.mine, f"the last row of {self.who}, read")
            self.transfer()
        self.tell("begun")
        same(self.last(), self.mine, f"the last row of {self.who}")
        steps = [self.transfer, self.insert, self.update, self.delete, self.savepoint]
        for step in self.random.choices(steps, k=self.random.randrange(1, 5)):
            step()
        if self.random.random() < 0.1:
            self.ruin()
            self.rows("ROLLBACK")
            self.tell("undone")
            return
        row = f"{self.mine + 1} {self.random.randrange(10**6)}"
        self.rows("INSERT INTO log VALUES (?, ?, ?)", self.who, *map(int, row.split()))
        self.tell(f"commit {row}")
        self.commit()
        self.mine += 1
        self.tell(f"done {row}")

    def commit(self):
        """Readers may keep it waiting; it may be tried again."""
        for left in range(4, -1, -1):
            try:
                return self.rows("COMMIT")
            except Busy:
                if not left:
                    raise

    def look(self):
        """One state, however long one looks at it."""
        self.rows("BEGIN")
        before = state(self.db)
        logged = {who: last for who, last, _, _ in before["log"]}
        same(logged.get(self.who, 0), self.mine, f"the last row of {self.who}, looked at")
        time.sleep(self.random.random() / 100)
        first = self.random.randrange(ITEMS)
        wrong = self.rows(f"{WRONG_BODIES} AND id BETWEEN ? AND ?", first, first + 20)
        same(wrong, [], "bodies that are wrong")
        same(state(self.db), before, "the state, seen again")
        self.rows("COMMIT")
        self.tell("look")

    def checkpoint(self):
        how = self.random.choice(["passive", "full", "restart", "truncate"])
        patience = self.rows("PRAGMA busy_timeout")[0][0]
        if HAS_FAULTS:
            # One that waits in vain would be a passive one.
            how = how.replace("passive", "full")
            self.rows("PRAGMA busy_timeout = 600000")
        self.rows(f"PRAGMA wal_checkpoint({how})")
        self.rows(f"PRAGMA busy_timeout = {patience}")
        self.tell("checkpoint")

    def upkeep(self):
        what = self.random.random()
        if what < 0.5:
            self.checkpoint()
        elif what < 0.6:
            self.rows("VACUUM")
            self.tell("vacuum")
        elif what < 0.7:
            self.rows("PRAGMA incremental_vacuum")
        elif what < 0.8:
            same(self.rows("PRAGMA integrity_check"), [("ok",)], "PRAGMA integrity_check")
        else:
            self.open()
            self.tell("reopen")

    def round(self):
        self.random.choices([self.transaction, self.look, self.upkeep], [80, 15, 5])[0]()

    def work(self, count):
        done = 0
        while not self.is_over() and (not count or done < count):
            # One that was kept from its work goes on to the next.
            self.patiently(lambda: None if self.is_over() else self.round())
            done += 1
        self.close()


def state(db):
    """What a reader sees, and that it is right."""
    same(rows(db, "SELECT sum(balance) FROM accounts"), [(TOTAL,)], "the balances' sum")
    items = rows(db, "SELECT count(*), coalesce(sum(length(body)), 0) FROM items")
    same(items, rows(db, "SELECT items, size FROM tally"), "items and their bytes, and the tally")
    ask = "SELECT who, max(seq), count(*), sum(value) FROM log GROUP BY who ORDER BY who"
    log = rows(db, ask)
    for who, last, count, _ in log:
        same(count, last, f"rows of {who} up to its last")
    return {"items": items, "log": log}


def make(journal, library, vfs, name):
    load(library)
    db = opened(name, vfs)
    db.execute("PRAGMA auto_vacuum = incremental")
    wanted = "delete" if journal == "rollback" else journal
    same(db.execute(f"PRAGMA journal_mode = {wanted}").fetchall(), [(wanted,)], "the journal")
    db.executescript(f"""BEGIN;
        CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance);
        WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {ACCOUNTS - 1})
          INSERT INTO accounts SELECT x, {EACH} FROM n;
        CREATE TABLE items(id INTEGER PRIMARY KEY, mark, size, body);
        CREATE INDEX marks ON items(mark);
        CREATE TABLE tally(items, size);
        INSERT INTO tally VALUES (0, 0);
        CREATE TABLE log(who, seq, value, PRIMARY KEY (who, seq)) WITHOUT ROWID;
        COMMIT;""")
    state(db)


def work(journal, seed, count, told, library, *whom):
    whom = list(zip(*[iter(whom)] * 3))
    if any("solera" in vfs for _, vfs, _ in whom):
        load(library)

    def begin(place):
        try:
            Worker(journal, seed, told, whom, place).work(int(count))
        except BaseException:
            print(f"{whom[place]}, seed {seed}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(1)

    threads = [threading.Thread(target=begin, args=(place,)) for place in range(len(whom))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for db in LEFT_OPEN:
        db.close()


def check(told, library, vfs, name):
    """The database is whole, and the log has what was acknowledged and nothing else, but for a commit in
    which a process was killed."""
    if "solera" in vfs:
        load(library)
    db = opened(name, vfs)
    same(rows(db, "PRAGMA integrity_check"), [("ok",)], "PRAGMA integrity_check")
    state(db)
    same(rows(db, WRONG_BODIES), [], "bodies that are wrong")
    rest = {(who, seq): value for who, seq, value in rows(db, "SELECT * FROM log")}
    for file in sorted(os.listdir(told)):
        if not file.isdigit():
            continue
        who, step, lost = int(file), [None], []
        with open(f"{told}/{file}") as lines:
            for words in map(str.split, lines):
                if words[0] in STEPS:
                    step = words
                if words[0] in ("done", "again"):
                    row = (who, int(words[1]))
                    if rest.pop(row, None) != int(words[2]):
                        lost.append(words)
        same(lost, [], f"acknowledged by {who}, and not there")
        if step[0] == "commit":
            rest.pop((who, int(step[1])), None)
    same(rest, {}, "not acknowledged, and there")
    db.close()


if __name__ == "__main__":
    {"make": make, "work": work, "check": check}[sys.argv[1]](*sys.argv[2:])
