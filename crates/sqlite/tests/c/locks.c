/* Both VFSs in one process on one database. A lock of the process is the process's, whoever took it:
   nothing that a window does may end one. Without arguments; with a path it asks for a write lock, and
   tells what it was given. */
#include "check.h"

static int asks(const char *path) {
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, OPENS, "unix") != SQLITE_OK)
        return 99;
    return sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
}

/* What another process is given. */
static int other_process(const char *path) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "locks", path, (char *)NULL);
        _exit(98);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}

static void excludes(const char *path, const char *holder, const char *visitor, const char *journal) {
    unlink(path);
    sqlite3 *first = opened(path, holder);
    char sql[128];
    snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s; CREATE TABLE t(a);", journal);
    run(first, sql);
    for (int row = 0; row < 30; row++)
        run(first, "INSERT INTO t VALUES (zeroblob(3000))");
    run(first, "BEGIN IMMEDIATE; INSERT INTO t VALUES (1)");
    CHECK(other_process(path) == SQLITE_BUSY);
    sqlite3 *second = opened(path, visitor);
    /* Often enough for a window. */
    run(second, "PRAGMA cache_size = 1");
    for (int query = 0; query < 20; query++)
        CHECK(number(second, "SELECT sum(length(a)) FROM t") == 90000);
    CHECK(other_process(path) == SQLITE_BUSY);
    sqlite3_close(second);
    CHECK(other_process(path) == SQLITE_BUSY);
    run(first, "COMMIT");
    CHECK(other_process(path) == SQLITE_OK);
    second = opened(path, visitor);
    for (int row = 0; row < 50; row++)
        run(row % 2 ? first : second, "INSERT INTO t VALUES (zeroblob(2000))");
    run(second, "PRAGMA wal_checkpoint(truncate)");
    for (int row = 0; row < 50; row++)
        run(row % 2 ? first : second, "INSERT INTO t VALUES (zeroblob(2000))");
    CHECK(number(first, "SELECT count(*) FROM t") == 131);
    CHECK(is_whole(first) && is_whole(second));
    sqlite3_close(first);
    CHECK(is_whole(second));
    sqlite3_close(second);
}

int main(int count, char **arguments) {
    if (count > 1)
        return asks(arguments[1]);
    CHECK(solera_sqlite_register(0) == 0);
    const char *journals[] = {"delete", "persist", "wal"};
    for (int at = 0; at < 3; at++) {
        excludes("both.db", "unix", "solera", journals[at]);
        excludes("both.db", "solera", "unix", journals[at]);
        excludes("both.db", "solera", "solera", journals[at]);
    }
    return failures > 0;
}
