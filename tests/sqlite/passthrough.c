/*
 * A VFS named `solera` that passes every call on to `unix`: what the harness is tried with. Built
 * with -DBROKEN=1 it does not shorten files, with 2 it reads the last byte of a page as zero, with
 * 3 it takes no locks: the harness must see each.
 */
#include <string.h>
#include "sqlite3ext.h"
SQLITE_EXTENSION_INIT1

#ifndef BROKEN
#define BROKEN 0
#endif

static sqlite3_vfs *parent;

struct file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this structure */
};

#define REAL(f) (((struct file *)(f))->real)
#define PASS(f, call, ...) REAL(f)->pMethods->call(REAL(f), ##__VA_ARGS__)

static int close_(sqlite3_file *f) { return PASS(f, xClose); }

static int read_(sqlite3_file *f, void *to, int length, sqlite3_int64 at) {
    int code = PASS(f, xRead, to, length, at);
    if (BROKEN == 2 && code == SQLITE_OK && length >= 512) ((char *)to)[length - 1] = 0;
    return code;
}

static int write_(sqlite3_file *f, const void *from, int length, sqlite3_int64 at) {
    return PASS(f, xWrite, from, length, at);
}

static int truncate_(sqlite3_file *f, sqlite3_int64 size) {
    return BROKEN == 1 ? SQLITE_OK : PASS(f, xTruncate, size);
}

static int sync_(sqlite3_file *f, int flags) { return PASS(f, xSync, flags); }
static int size_(sqlite3_file *f, sqlite3_int64 *size) { return PASS(f, xFileSize, size); }

static int lock_(sqlite3_file *f, int level) {
    return BROKEN == 3 ? SQLITE_OK : PASS(f, xLock, level);
}


static int unlock_(sqlite3_file *f, int level) { return PASS(f, xUnlock, level); }
static int reserved_(sqlite3_file *f, int *is) { return PASS(f, xCheckReservedLock, is); }

static int control(sqlite3_file *f, int what, void *argument) {
    int code = PASS(f, xFileControl, what, argument);
    if (what == SQLITE_FCNTL_VFSNAME && code == SQLITE_OK)
        *(char **)argument = sqlite3_mprintf("solera/%z", *(char **)argument);
    return code;
}

static int sector(sqlite3_file *f) { return PASS(f, xSectorSize); }
static int device(sqlite3_file *f) { return PASS(f, xDeviceCharacteristics); }

static int shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **to) {
    return PASS(f, xShmMap, region, size, extend, to);
}

static int shm_lock(sqlite3_file *f, int at, int count, int flags) {
    return PASS(f, xShmLock, at, count, flags);
}

static void shm_barrier(sqlite3_file *f) { PASS(f, xShmBarrier); }
static int shm_unmap(sqlite3_file *f, int remove) { return PASS(f, xShmUnmap, remove); }

static int fetch(sqlite3_file *f, sqlite3_int64 at, int length, void **to) {
    return PASS(f, xFetch, at, length, to);
}

static int unfetch(sqlite3_file *f, sqlite3_int64 at, void *from) {
    return PASS(f, xUnfetch, at, from);
}

static const sqlite3_io_methods methods = {
    3, close_, read_, write_, truncate_, sync_, size_, lock_, unlock_, reserved_, control, sector,
    device, shm_map, shm_lock, shm_barrier, shm_unmap, fetch, unfetch,
};

static int open_(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *got) {
    struct file *file = (struct file *)f;
    int code;
    (void)v;
    file->real = (sqlite3_file *)(file + 1);
    code = parent->xOpen(parent, name, file->real, flags, got);
    file->base.pMethods = file->real->pMethods ? &methods : 0;
    return code;
}

/* A method of the VFS that is one call of the parent's. */
#define ON(result, name, parameters, call) \
    static result name parameters { return ((void)v), parent->call; }
#define AT sqlite3_vfs *v

ON(int, delete_, (AT, const char *n, int sync), xDelete(parent, n, sync))
ON(int, access_, (AT, const char *n, int how, int *is), xAccess(parent, n, how, is))
ON(int, full, (AT, const char *n, int size, char *to), xFullPathname(parent, n, size, to))
ON(void *, dl_open, (AT, const char *n), xDlOpen(parent, n))
ON(void, dl_error, (AT, int size, char *to), xDlError(parent, size, to))
typedef void (*symbol)(void);
ON(symbol, dl_sym, (AT, void *handle, const char *n), xDlSym(parent, handle, n))
ON(void, dl_close, (AT, void *handle), xDlClose(parent, handle))
ON(int, randomness, (AT, int size, char *to), xRandomness(parent, size, to))
ON(int, sleep_, (AT, int us), xSleep(parent, us))
ON(int, time_, (AT, double *to), xCurrentTime(parent, to))
ON(int, last, (AT, int size, char *to), xGetLastError(parent, size, to))
ON(int, time64, (AT, sqlite3_int64 *to), xCurrentTimeInt64(parent, to))
ON(int, set, (AT, const char *n, sqlite3_syscall_ptr p), xSetSystemCall(parent, n, p))
ON(sqlite3_syscall_ptr, get, (AT, const char *n), xGetSystemCall(parent, n))
ON(const char *, next, (AT, const char *n), xNextSystemCall(parent, n))

static sqlite3_vfs vfs = {
    3, 0, 0, 0, "solera", 0, open_, delete_, access_, full, dl_open, dl_error, dl_sym, dl_close,
    randomness, sleep_, time_, last, time64, set, get, next,
};

int sqlite3_soleravfs_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    int code;
    (void)db, (void)error;
    SQLITE_EXTENSION_INIT2(api);
    parent = sqlite3_vfs_find("unix");
    if (!parent) return SQLITE_ERROR;
    vfs.szOsFile = (int)sizeof(struct file) + parent->szOsFile;
    vfs.mxPathname = parent->mxPathname;
    code = sqlite3_vfs_register(&vfs, 0);
    return code == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : code;
}
