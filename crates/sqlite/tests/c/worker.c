/* Transactions on a database that others work on too: worker VFS PATH ID THREADS COUNT. Each adds a row
   and counts it in another table; a line on standard output says which one was committed. VFS "both": the
   threads go by solera and by unix in turn. */
#include "check.h"

#include <pthread.h>

static const char *vfs, *path;
static int id, each;

static void *work(void *thread) {
    int number_of_thread = (int)(long)thread;
    int is_both = strcmp(vfs, "both") == 0;
    sqlite3 *db = opened(path, !is_both ? vfs : number_of_thread % 2 == 0 ? "solera" : "unix");
    run(db, "PRAGMA synchronous = full");
    sqlite3_stmt *add, *count;
    sqlite3_prepare_v2(db, "INSERT INTO t(id, n, b) VALUES (?, ?, zeroblob(abs(random()) % 5000))", -1, &add, NULL);
    sqlite3_prepare_v2(db, "UPDATE c SET n = n + 1", -1, &count, NULL);
    for (int done = 0; done < each; done++) {
        run(db, "BEGIN IMMEDIATE");
        sqlite3_bind_int(add, 1, id * 100 + number_of_thread);
        sqlite3_bind_int(add, 2, done);
        CHECK(sqlite3_step(add) == SQLITE_DONE && sqlite3_step(count) == SQLITE_DONE);
        sqlite3_reset(add);
        sqlite3_reset(count);
        run(db, "COMMIT");
        char line[32];
        int bytes = snprintf(line, sizeof line, "%d\n", done);
        CHECK(write(1, line, (size_t)bytes) == bytes);
        if (done % 50 == 49)
            run(db, "BEGIN IMMEDIATE; DELETE FROM t WHERE n % 7 = 3;"
                    "UPDATE c SET n = (SELECT count(*) FROM t); COMMIT");
        if (done % 200 == 199)
            run(db, "PRAGMA wal_checkpoint(truncate); PRAGMA incremental_vacuum");
    }
    sqlite3_finalize(add);
    sqlite3_finalize(count);
    sqlite3_close(db);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 6 || solera_sqlite_register(0) != 0)
        return 2;
    vfs = arguments[1];
    path = arguments[2];
    id = atoi(arguments[3]);
    each = atoi(arguments[5]);
    int threads = atoi(arguments[4]);
    pthread_t started[16];
    for (long at = 0; at < threads; at++)
        CHECK(pthread_create(&started[at], NULL, work, (void *)at) == 0);
    for (int at = 0; at < threads; at++)
        pthread_join(started[at], NULL);
    return failures > 0;
}
