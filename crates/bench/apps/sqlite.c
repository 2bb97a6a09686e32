// SQLite: one insert of 100 bytes a transaction; WAL, synchronous=FULL, or as it is told.
// sqlite DIRECTORY COUNT [JOURNAL SYNCHRONOUS]
#include <err.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void run(sqlite3 *db, const char *text) {
    char *error = 0;
    if (sqlite3_exec(db, text, 0, 0, &error)) errx(1, "%s: %s", text, error);
}

int main(int argc, char **argv) {
    if ((argc != 3 && argc != 5) || chdir(argv[1])) return 2;
    int count = atoi(argv[2]);
    const char *journal = argc == 5 ? argv[3] : "WAL", *synchronous = argc == 5 ? argv[4] : "FULL";
    sqlite3 *db;
    if (sqlite3_open("test.db", &db)) return 1;
    char text[100];
    snprintf(text, sizeof text, "PRAGMA journal_mode=%s; PRAGMA synchronous=%s", journal, synchronous);
    run(db, text);
    run(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, value BLOB)");
    sqlite3_stmt *insert;
    if (sqlite3_prepare_v2(db, "INSERT INTO t(value) VALUES(?)", -1, &insert, 0)) return 1;
    char value[100];
    memset(value, 'v', sizeof value);
    double begun = 0;
    // A tenth warms up.
    for (int i = -count / 10; i < count; i++) {
        if (i == 0) begun = now();
        sqlite3_bind_blob(insert, 1, value, sizeof value, SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE) return 1;
        sqlite3_reset(insert);
    }
    printf("sqlite %s %s insert\t%.1f\n", journal, synchronous, (now() - begun) / count);
    sqlite3_finalize(insert);
    return sqlite3_close(db);
}
