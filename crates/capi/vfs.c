/* solera_vfs.so: the entry of the loadable extension. All that it does is in libsolera.so.0, so that
   there is one engine in a process. */
int solera_sqlite_load(char **message, const void *routines);

int sqlite3_soleravfs_init(void *database, char **message, const void *routines);

int sqlite3_soleravfs_init(void *database, char **message, const void *routines) {
    (void)database;
    return solera_sqlite_load(message, routines);
}
