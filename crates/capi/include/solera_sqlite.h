/*
 * solera_sqlite.h: the VFS `solera`, for a program that has SQLite linked itself.
 *
 * Include <sqlite3.h> first for solera_sqlite_register(). Where SQLite loads extensions, nothing of this
 * is needed: `.load solera_vfs` in its shell.
 *
 * Then `file:my.db?vfs=solera` is a database of SQLite's own VFS `unix` of which the bytes that are there
 * already are read and written as memory, where the file system is one of memory: tmpfs, or one that
 * maps with MAP_SYNC. Others may have the same database open by `unix`.
 *
 * A database on a volume is file:/my.db?vfs=solera&volume=VOLUME, or VOLUME:/my.db, or lies where the
 * volume is mounted. Programs under `solera run` may have it open by `unix` at once, and with a rollback
 * journal programs that go by the mount. A program names a database in one way: SQLite writes the names
 * of the databases of one transaction into their journals.
 */
#ifndef SOLERA_SQLITE_H
#define SOLERA_SQLITE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3_vfs;

/* Functions of one copy of SQLite, which is never unloaded. */
struct solera_sqlite_calls {
    size_t size; /* of this structure */
    int (*libversion_number)(void);
    struct sqlite3_vfs *(*vfs_find)(const char *);
    int (*vfs_register)(struct sqlite3_vfs *, int);
    char *(*mprintf)(const char *, ...);
    void (*log)(int, const char *, ...); /* NULL: nothing is logged */
};

/* Makes the VFS known to that SQLite, as default for whoever names none if `make_default` is not 0. It
   may be called again, by any thread. -1 with errno ENOTSUP and solera_error(): an SQLite older than
   3.40, or one without a VFS `unix`. */
int solera_sqlite_attach(const struct solera_sqlite_calls *calls, int make_default);

/* What the entry of a loadable extension does: its message and SQLite's table of functions. Gives what
   the entry returns. */
int solera_sqlite_load(char **message, const void *routines);

#ifdef SQLITE_VERSION_NUMBER
/* For the SQLite that this program is linked with. Before or after sqlite3_initialize(), and again after
   each sqlite3_shutdown(): it can be called by what -DSQLITE_EXTRA_INIT names. */
static inline int solera_sqlite_register(int make_default) {
    struct solera_sqlite_calls calls;
    calls.size = sizeof calls;
    calls.libversion_number = sqlite3_libversion_number;
    calls.vfs_find = sqlite3_vfs_find;
    calls.vfs_register = sqlite3_vfs_register;
    calls.mprintf = sqlite3_mprintf;
    calls.log = sqlite3_log;
    return solera_sqlite_attach(&calls, make_default);
}
#endif

#ifdef __cplusplus
}
#endif
#endif
