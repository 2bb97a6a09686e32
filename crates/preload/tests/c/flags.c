// Each bit of the flags of each call that takes some, by its function and by its number: a bit that the
// kernel does not know is refused, with the kernel's error, and before anything is looked at. Left out:
// bits that some kernels know and others do not, and NOWAIT, which tmpfs has not.
#include "release.h"
#include "say.h"
#include <sys/syscall.h>

#define FCHMODAT2 452
#define FACCESSAT2 439

static int file, directory;
static char place[4096];

// One call with one bit: what it gives, and whether what it was for has happened.
#define BITS(name, skip, call) \
    do { \
        for (int bit = 0; bit < 32; bit++) { \
            unsigned flags = 1u << bit; \
            if (!(flags & (skip))) { \
                errno = 0; \
                long given = (long)(call); \
                fprintf(results, "%s, %x: %s\n", name, flags, given < 0 ? strerrorname_np(errno) : "works"); \
            } \
            clean(); \
        } \
    } while (0)

static void clean(void) {
    unlink("made");
    rename("moved", "file");
    unlink("other");
    put("other", "other");
    chmod("file", 0644);
    if (access("file", F_OK))
        put("file", "content");
}

static void attributes(void) {
    struct stat st;
    BITS("fstatat", 0, fstatat(AT_FDCWD, "file", &st, flags));
    BITS("fstatat, missing", 0, fstatat(AT_FDCWD, "missing", &st, flags));
    BITS("newfstatat", 0, syscall(SYS_newfstatat, AT_FDCWD, "file", &st, flags));
    BITS("newfstatat of a descriptor", 0, syscall(SYS_newfstatat, file, "", &st, flags));
    BITS("statx", 0, statx(AT_FDCWD, "file", flags, STATX_ALL, (struct statx *)place));
    BITS("statx by number", 0, syscall(SYS_statx, AT_FDCWD, "file", flags, STATX_ALL, place));
    BITS("statx, both ways to synchronise", 0,
         statx(AT_FDCWD, "file", flags | AT_STATX_SYNC_TYPE, STATX_ALL, (struct statx *)place));
    BITS("statx, the mask", 0, statx(AT_FDCWD, "file", 0, flags, (struct statx *)place));
    BITS("faccessat", 0, faccessat(AT_FDCWD, "file", R_OK, flags));
    BITS("faccessat2", 0, syscall(FACCESSAT2, AT_FDCWD, "file", R_OK, flags));
    BITS("access, the mode", 0, access("file", flags));
    BITS("access, the mode, missing", 0, access("missing", flags));
    // A later glibc has the kernel's rule for an empty path.
    BITS("fchmodat", AT_EMPTY_PATH, fchmodat(AT_FDCWD, "file", 0600, flags));
    if (newer_than(6, 6))
        BITS("fchmodat2", 0, syscall(FCHMODAT2, AT_FDCWD, "file", 0600, flags));
    BITS("fchownat", 0, fchownat(AT_FDCWD, "file", -1, -1, flags));
    BITS("fchownat by number", 0, syscall(SYS_fchownat, AT_FDCWD, "file", -1, -1, flags));
    BITS("fchownat, missing", 0, fchownat(AT_FDCWD, "missing", -1, -1, flags));
    BITS("utimensat", 0, utimensat(AT_FDCWD, "file", NULL, flags));
    BITS("utimensat by number", 0, syscall(SYS_utimensat, AT_FDCWD, "file", NULL, flags));
    BITS("utimensat of a descriptor", 0, syscall(SYS_utimensat, file, NULL, NULL, flags));
    BITS("setxattr", 0, setxattr("file", "user.new", "value", 5, flags));
    removexattr("file", "user.new");
    BITS("setxattr, missing", 0, setxattr("missing", "user.new", "value", 5, flags));
}

static void names(void) {
    BITS("linkat", 0, linkat(AT_FDCWD, "file", AT_FDCWD, "made", flags));
    BITS("linkat by number", 0, syscall(SYS_linkat, AT_FDCWD, "file", AT_FDCWD, "made", flags));
    BITS("linkat, missing", 0, linkat(AT_FDCWD, "missing", AT_FDCWD, "made", flags));
    BITS("unlinkat", 0, unlinkat(AT_FDCWD, "other", flags));
    BITS("unlinkat, missing", 0, unlinkat(AT_FDCWD, "missing", flags));
    // RENAME_WHITEOUT wants what not every file system has.
    BITS("renameat2", RENAME_WHITEOUT, renameat2(AT_FDCWD, "file", AT_FDCWD, "moved", flags));
    BITS("renameat2, exchange", RENAME_WHITEOUT,
         renameat2(AT_FDCWD, "file", AT_FDCWD, "other", flags | RENAME_EXCHANGE));
    clean();
    // A later kernel only looks whether it could be executed.
    char *arguments[] = {"file", NULL};
    BITS("execveat", 0x10000, execveat(AT_FDCWD, "file", arguments, environ, flags));
}

static void bytes(void) {
    char byte[8] = "bytes";
    struct iovec all = {byte, 5};
    int ends[2], later = 0x8 | 0x20 | 0x40 | 0x80 | 0x100;
    pipe(ends);
    BITS("sync_file_range", 0, sync_file_range(file, 0, 1, flags));
    BITS("fallocate", FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE | 0x40 | 0x80,
         fallocate(file, flags, 0, 1));
    BITS("preadv2", later, preadv2(file, &all, 1, 0, flags));
    BITS("preadv2 by number", later, syscall(SYS_preadv2, file, &all, 1, 0, 0, flags));
    BITS("pwritev2", later, pwritev2(file, &all, 1, 0, flags));
    BITS("pwritev2 by number", later, syscall(SYS_pwritev2, file, &all, 1, 0, 0, flags));
    BITS("copy_file_range", 0, copy_file_range(file, &(off_t){0}, file, &(off_t){100}, 1, flags));
    BITS("splice", 0, splice(file, &(off_t){0}, ends[1], NULL, 1, flags));
    BITS("splice of nothing", 0, splice(file, &(off_t){0}, ends[1], NULL, 0, flags));
    BITS("tee", 0, tee(file, ends[1], 1, flags));
    BITS("tee of nothing", 0, tee(file, ends[1], 0, flags));
    BITS("close_range", 0, close_range(1000, 1001, flags));
    BITS("dup3", 0, dup3(file, 50, flags));
    close(50);
    BITS("flock", 0, flock(file, flags | LOCK_UN));
    BITS("lseek", 0, lseek(file, 0, flags));
    BITS("posix_fadvise", 0, -posix_fadvise(file, 0, 1, flags));
    BITS("fadvise64", 0, syscall(SYS_fadvise64, file, 0, 1, flags));
}

static void mappings(void) {
    // What decides where it lies, huge pages, and what a later kernel or another file system knows.
    int skip = MAP_FIXED | MAP_32BIT | 0x80 | MAP_HUGETLB | MAP_SYNC | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS | 0xf;
    ftruncate(file, 8192);
    BITS("mmap", skip, mmap(NULL, 4096, PROT_READ, MAP_SHARED | flags, file, 0));
    BITS("mmap, private", skip, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | flags, file, 0));
    BITS("mmap, validated", skip, mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | flags, file, 0));
    BITS("mmap by number, validated", skip,
         syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | flags, file, 0));
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    BITS("msync", 0, msync(at, 4096, flags));
    BITS("mremap", MREMAP_FIXED | 4, mremap(at, 4096, 4096, flags));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "content");
    put("other", "other");
    file = open("file", O_RDWR);
    directory = open(".", O_RDONLY | O_DIRECTORY);
    attributes();
    names();
    bytes();
    mappings();
    return 0;
}
