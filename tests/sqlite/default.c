/*
 * Makes the VFS that the environment's SUITE_VFS names the default one, if it is registered. SQLite
 * calls this at the end of each sqlite3_initialize (it is testfixture's SQLITE_EXTRA_INIT): also of
 * those within an open after a sqlite3_shutdown, and in the processes that a test starts. Nothing
 * else would do, for each of them makes `unix` the default one again.
 */
#include <stdlib.h>
#include "sqlite3.h"

int suite_default_vfs(const char *unused) {
    const char *name = getenv("SUITE_VFS");
    sqlite3_vfs *vfs = name ? sqlite3_vfs_find(name) : 0;
    (void)unused;
    return vfs ? sqlite3_vfs_register(vfs, 1) : SQLITE_OK;
}
