/* The VFS in a program that has SQLite linked: registered, again, after a shutdown; refused where it
   cannot be; and that a window is what bytes go by. */
#include "check.h"

#include <dlfcn.h>
#include <sys/stat.h>
/* Its macros would lead every call by a table. */
typedef int entry(sqlite3 *, char **, const void *);

static int too_old(void) {
    return 3039004;
}

static void refuses(void) {
    struct solera_sqlite_calls calls = {
        sizeof calls, too_old, sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_mprintf, sqlite3_log};
    CHECK(solera_sqlite_attach(&calls, 1) == -1 && errno == ENOTSUP);
    CHECK(strstr(solera_error(), "needs SQLite 3.40") != NULL && strstr(solera_error(), "3.39") != NULL);
    CHECK(sqlite3_vfs_find("solera") == NULL);
    calls.mprintf = NULL;
    CHECK(solera_sqlite_attach(&calls, 1) == -1);
    calls.size = 3;
    CHECK(solera_sqlite_attach(&calls, 1) == -1 && errno == EINVAL);
    CHECK(solera_sqlite_attach(NULL, 1) == -1 && errno == EINVAL);
}

static void registers(void) {
    const char *unix_name = sqlite3_vfs_find(NULL)->zName;
    CHECK(solera_sqlite_register(0) == 0);
    sqlite3_vfs *vfs = sqlite3_vfs_find("solera");
    CHECK(vfs != NULL && sqlite3_vfs_find(NULL)->zName == unix_name);
    CHECK(solera_sqlite_register(1) == 0 && sqlite3_vfs_find(NULL) == vfs);
    /* A later library that asks for no default leaves the program's. */
    CHECK(solera_sqlite_register(0) == 0 && sqlite3_vfs_find(NULL) == vfs);
    for (int round = 0; round < 3; round++) {
        CHECK(sqlite3_shutdown() == SQLITE_OK);
        CHECK(solera_sqlite_register(1) == 0 && sqlite3_vfs_find(NULL) == vfs);
        sqlite3 *db = opened("again.db", NULL);
        run(db, "CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES (1)");
        CHECK(number(db, "SELECT count(*) FROM t") == round + 1);
        sqlite3_close(db);
    }
}

static const void *table;

static int takes_table(sqlite3 *db, char **message, const void *routines) {
    (void)db;
    (void)message;
    table = routines;
    return SQLITE_OK;
}

/* The place of sqlite3_libversion_number in the table: fields of SQLite 3.0, which no version moves. */
static size_t place_of(const void *function) {
    size_t at = 0;
    while (((const void *const *)table)[at] != function)
        at++;
    return at;
}

static void loads(void) {
    union {
        int (*takes)(sqlite3 *, char **, const void *);
        void (*extension)(void);
        void *symbol;
        entry *enters;
        int (*version)(void);
        const void *pointer;
    } is = {takes_table};
    sqlite3_auto_extension(is.extension);
    sqlite3_close(opened(":memory:", NULL));
    sqlite3_reset_auto_extension();
    void *library = dlopen("./solera_vfs.so", RTLD_NOW);
    CHECK(library != NULL && table != NULL);
    is.symbol = dlsym(library, "sqlite3_soleravfs_init");
    entry *enters = is.enters;
    char *message = NULL;
    for (int round = 0; round < 2; round++)
        CHECK(enters(NULL, &message, table) == SQLITE_OK_LOAD_PERMANENTLY && message == NULL);
    const void *old[256];
    is.version = sqlite3_libversion_number;
    size_t at = place_of(is.pointer);
    memcpy(old, table, sizeof old);
    is.version = too_old;
    old[at] = is.pointer;
    CHECK(enters(NULL, &message, old) == SQLITE_ERROR);
    CHECK(message != NULL && strstr(message, "needs SQLite 3.40") != NULL);
    sqlite3_free(message);
}

/* Rows into a log that begins anew, and all of them read from the database. */
static void counts(const char *path, const char *vfs, long long *reads, long long *writes) {
    sqlite3 *db = opened(path, vfs);
    run(db, "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA wal_autocheckpoint = 0;"
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b)");
    for (int row = 0; row < 300; row++)
        run(db, "INSERT INTO t(b) VALUES (randomblob(1000))");
    run(db, "PRAGMA wal_checkpoint(restart)");
    run(db, "INSERT INTO t(b) VALUES (1)");
    long long before[2], after[2];
    calls(&before[0], &before[1]);
    for (int row = 0; row < 100; row++)
        run(db, "INSERT INTO t(b) VALUES (randomblob(100))");
    calls(&after[0], &after[1]);
    *writes = after[1] - before[1];
    run(db, "PRAGMA wal_checkpoint(truncate); PRAGMA cache_size = 2");
    calls(&before[0], &before[1]);
    CHECK(number(db, "SELECT sum(length(b)) FROM t") == 310001);
    calls(&after[0], &after[1]);
    *reads = after[0] - before[0];
    CHECK(is_whole(db));
    sqlite3_close(db);
}

static void window_is_used(void) {
    long long reads, writes;
    counts("counted.unix.db", "unix", &reads, &writes);
    CHECK(reads > 70 && writes >= 200);
    counts("counted.solera.db", "solera", &reads, &writes);
    printf("solera: %lld reads, %lld writes\n", reads, writes);
    CHECK(reads < 10 && writes < 10);
}

/* When a file was changed, as others are told. */
static long long changed(const char *path) {
    struct stat stat;
    CHECK(lstat(path, &stat) == 0);
    return stat.st_mtim.tv_sec * 1000000000ll + stat.st_mtim.tv_nsec;
}

/* Programs that copy what was changed look at its time. */
static void time_of_change(void) {
    sqlite3 *db = opened("times.db", "solera");
    /* What is changed does not lie at the end, which goes by the parent anyway. */
    run(db, "CREATE TABLE t(b); INSERT INTO t VALUES (zeroblob(100000));"
            "CREATE TABLE u(b); INSERT INTO u VALUES (zeroblob(100000))");
    for (int row = 0; row < 3; row++) {
        long long before = changed("times.db");
        usleep(20000);
        run(db, "UPDATE t SET b = randomblob(100000)");
        CHECK(changed("times.db") > before);
    }
    run(db, "PRAGMA journal_mode = wal; UPDATE t SET b = zeroblob(100000); PRAGMA wal_checkpoint");
    for (int row = 0; row < 3; row++) {
        long long before = changed("times.db"), log = changed("times.db-wal");
        usleep(20000);
        run(db, "UPDATE t SET b = randomblob(100000)");
        CHECK(changed("times.db-wal") > log);
        run(db, "PRAGMA wal_checkpoint");
        CHECK(changed("times.db") > before);
    }
    sqlite3_close(db);
}

static void shared_cache_and_blobs(void) {
    sqlite3 *first = opened("file:shared.db?cache=shared&vfs=solera", NULL);
    sqlite3 *second = opened("file:shared.db?cache=shared&vfs=solera", NULL);
    run(first, "PRAGMA journal_mode = wal; CREATE TABLE t(a INTEGER PRIMARY KEY, b);"
               "INSERT INTO t VALUES (1, zeroblob(100000))");
    run(first, "BEGIN; INSERT INTO t VALUES (2, 2)");
    CHECK(sqlite3_exec(second, "SELECT * FROM t", NULL, NULL, NULL) == SQLITE_LOCKED);
    run(first, "COMMIT");
    CHECK(number(second, "SELECT count(*) FROM t") == 2);
    sqlite3_blob *blob;
    CHECK(sqlite3_blob_open(first, "main", "t", "b", 1, 1, &blob) == SQLITE_OK);
    for (int at = 0; at < 100000; at += 1000)
        CHECK(sqlite3_blob_write(blob, "some bytes", 10, at) == SQLITE_OK);
    char bytes[10];
    CHECK(sqlite3_blob_read(blob, bytes, 10, 57000) == SQLITE_OK && memcmp(bytes, "some bytes", 10) == 0);
    CHECK(sqlite3_blob_write(blob, "x", 1, 100000) == SQLITE_ERROR);
    sqlite3_blob_close(blob);
    sqlite3_close(first);
    sqlite3_close(second);

    sqlite3 *from = opened("shared.db", "solera"), *to = opened("backup.db", "solera");
    run(to, "CREATE TABLE old(a)");
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    int done = SQLITE_OK;
    while (done == SQLITE_OK)
        done = sqlite3_backup_step(backup, 3);
    CHECK(done == SQLITE_DONE && sqlite3_backup_finish(backup) == SQLITE_OK);
    CHECK(number(to, "SELECT count(*) FROM t WHERE instr(b, 'some bytes')") == 1 && is_whole(to));
    sqlite3_close(from);
    sqlite3_close(to);
}

int main(void) {
    refuses();
    registers();
    loads();
    window_is_used();
    time_of_change();
    shared_cache_and_blobs();
    return failures > 0;
}
