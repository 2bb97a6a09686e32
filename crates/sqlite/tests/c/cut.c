/* Another process cuts a database, or its log, that is mapped: errors of SQLite's, no signal. */
#include "check.h"

static sqlite3 *made(const char *vfs, const char *journal) {
    unlink("cut.db");
    sqlite3 *db = opened("cut.db", vfs);
    char sql[200];
    snprintf(sql, sizeof sql, "PRAGMA cache_size = 3; PRAGMA journal_mode = %s; PRAGMA wal_autocheckpoint = 0;"
                              "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", journal);
    run(db, sql);
    for (int row = 0; row < 200; row++)
        run(db, "INSERT INTO t(b) VALUES (randomblob(3000))");
    CHECK(number(db, "SELECT sum(length(b)) FROM t") == 600000);
    return db;
}

static int query(sqlite3 *db, const char *sql) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* What a reader, a writer and a check are told once the file has so many bytes. */
static void cuts(const char *vfs, const char *journal, const char *file, const char *bytes, int codes[3]) {
    sqlite3 *db = made(vfs, journal);
    char command[100];
    snprintf(command, sizeof command, "truncate -s %s %s", bytes, file);
    CHECK(system(command) == 0);
    codes[0] = query(db, "SELECT sum(length(b)) FROM t");
    codes[1] = query(db, "UPDATE t SET b = 'x'");
    codes[2] = is_whole(db);
    sqlite3_close(db);
}

int main(void) {
    CHECK(solera_sqlite_register(0) == 0);
    const char *kinds[][2] = {{"delete", "cut.db"}, {"wal", "cut.db"}, {"wal", "cut.db-wal"}};
    const char *sizes[] = {"12288", "10000", "100", "0"};
    for (int kind = 0; kind < 3; kind++) {
        for (int size = 0; size < 4; size++) {
            int solera[3], other[3];
            cuts("unix", kinds[kind][0], kinds[kind][1], sizes[size], other);
            cuts("solera", kinds[kind][0], kinds[kind][1], sizes[size], solera);
            printf("%s cut to %s: %d %d %d, by unix %d %d %d\n", kinds[kind][1], sizes[size], solera[0],
                   solera[1], solera[2], other[0], other[1], other[2]);
            CHECK(memcmp(solera, other, sizeof solera) == 0);
            CHECK(solera[0] != SQLITE_OK || kind == 1);
        }
    }
    return failures > 0;
}
