/* What the C programs of the tests share: a check that fails is a line, and an exit code of 1. */
#define _GNU_SOURCE
#include <sqlite3.h>

#include <errno.h>
#include <solera.h>
#include <solera_sqlite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            failures++; \
            printf("%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, solera_error()); \
        } \
    } while (0)

#define OPENS (SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI)

static inline sqlite3 *opened(const char *path, const char *vfs) {
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, OPENS, vfs) != SQLITE_OK) {
        printf("%s: %s\n", path, sqlite3_errmsg(db));
        exit(1);
    }
    sqlite3_busy_timeout(db, 30000);
    return db;
}

/* Runs statements that must end well. */
static inline void run(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
}

/* The number that a query gives; -1: none. */
static inline long long number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *query;
    long long found = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK && sqlite3_step(query) == SQLITE_ROW)
        found = sqlite3_column_int64(query, 0);
    sqlite3_finalize(query);
    return found;
}

static inline int is_whole(sqlite3 *db) {
    return number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1;
}

/* Calls that this process has made to read or to write. */
static inline void calls(long long *reads, long long *writes) {
    char line[64];
    FILE *counts = fopen("/proc/self/io", "r");
    while (counts != NULL && fgets(line, sizeof line, counts) != NULL) {
        sscanf(line, "syscr: %lld", reads);
        sscanf(line, "syscw: %lld", writes);
    }
    if (counts != NULL)
        fclose(counts);
}
