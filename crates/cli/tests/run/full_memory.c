// Works in a directory of a volume until the memory beneath is used up, and then goes on: each call does
// all that it is asked for, or says ENOSPC and has done nothing. Removing works, and makes room.
// starved DIRECTORY MODE: says "fine", and how many calls found no memory.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PAGE = 4096, KIB = 1 << 10, MIB = 1 << 20 };

static long refused;
static int strict;

static void fail(const char *what, int line) {
    printf("line %d: %s: %s\n", line, what, strerror(errno));
    exit(1);
}
#define MUST(expression) \
    do { \
        errno = 0; \
        if (!(expression)) fail(#expression, __LINE__); \
    } while (0)

// Whether a call has worked; if not, for lack of memory.
static int worked(long result, const char *what, int line) {
    if (result >= 0) return 1;
    if (errno != ENOSPC) fail(what, line);
    refused++;
    return 0;
}
#define WORKED(expression) worked((long)(expression), #expression, __LINE__)

static char *pattern(int seed, long length) {
    static char bytes[MIB];
    for (long i = 0; i < length; i++) bytes[i] = 'a' + (i * 7 + seed) % 26;
    return bytes;
}

// Whether `length` bytes at `at` are those of a pattern (-1: zeros).
static int holds(int fd, long at, long length, int seed) {
    static char found[MIB];
    if (pread(fd, found, length, at) != length) return 0;
    if (seed >= 0) return memcmp(found, pattern(seed, length), length) == 0;
    for (long i = 0; i < length; i++)
        if (found[i]) return 0;
    return 1;
}

static long size_of(int fd) {
    struct stat stat;
    MUST(fstat(fd, &stat) == 0);
    return stat.st_size;
}

static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

static int filled;

// Appends until nothing more goes.
static void fill(void) {
    long pieces[] = {256 * KIB, 60 * KIB, PAGE, 100};
    char name[32];
    sprintf(name, "fill%d", filled++);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0644);
    if (!WORKED(fd)) return;
    for (int which = 0; which < 4; which++) {
        // The last, small ones fit into what is there already: not for ever.
        for (int count = 0; count < 2000; count++) {
            long length = pieces[which], before = size_of(fd);
            if (WORKED(write(fd, pattern(which, length), length))) {
                MUST(size_of(fd) == before + length);
                MUST(holds(fd, before, length, which));
            } else {
                MUST(size_of(fd) == before);
                break;
            }
        }
    }
    close(fd);
}

static void overwrite(int fd, int round) {
    static int seeds[16];
    long at = round % 16 * 64 * KIB, length = round % 3 ? PAGE : 40 * KIB + 100;
    length = round % 2 ? length : 300;
    at += round % 5 * 100;
    static char before[64 * KIB];
    MUST(pread(fd, before, length, at) == length);
    if (WORKED(pwrite(fd, pattern(round, length), length, at))) {
        MUST(holds(fd, at, length, round));
    } else if (strict) {
        static char after[64 * KIB];
        MUST(pread(fd, after, length, at) == length && memcmp(before, after, length) == 0);
    }
}

static void into_hole(int fd, int round) {
    long at = (long)(round * 37 % 512) * 64 * KIB + round % 3 * 1000, length = round % 2 ? PAGE : 200;
    if (!holds(fd, at, length, -1)) return;
    if (WORKED(pwrite(fd, pattern(round, length), length, at))) MUST(holds(fd, at, length, round));
    else MUST(holds(fd, at, length, -1));
}

// Stores into a hole of a mapped file: SIGBUS if there is no memory, or, where the kernel keeps the page for
// a while, an error when it is written back.
static void touch(int fd, char *map, int round) {
    long at = (long)(round * 53 % 512) * 16 * KIB + round;
    if (sigsetjmp(back, 1)) {
        refused++;
        return;
    }
    *(volatile char *)(map + at) = 'm';
    if (!WORKED(msync(map + at / PAGE * PAGE, PAGE, MS_SYNC))) return;
    char found = 0;
    MUST(pread(fd, &found, 1, at) == 1 && found == 'm');
}

static void names(int round) {
    char name[64], other[64];
    struct stat stat;
    sprintf(name, "n%d", round);
    sprintf(other, "a name that is much longer than the other one was %d", round);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (WORKED(fd)) {
        if (WORKED(write(fd, pattern(round, 100), 100))) MUST(holds(fd, 0, 100, round));
        else MUST(size_of(fd) == 0);
        WORKED(fsetxattr(fd, "user.name", name, 5, 0));
        close(fd);
        if (WORKED(rename(name, other))) {
            MUST(lstat(name, &stat) == -1 && errno == ENOENT && lstat(other, &stat) == 0);
        } else {
            MUST(lstat(name, &stat) == 0 && lstat(other, &stat) == -1);
            MUST(unlink(name) == 0);
        }
    } else {
        MUST(lstat(name, &stat) == -1 && errno == ENOENT);
    }
    sprintf(name, "d%d", round);
    if (WORKED(mkdir(name, 0700))) {
        strcat(name, "/inside");
        fd = open(name, O_RDWR | O_CREAT, 0600);
        if (WORKED(fd)) {
            close(fd);
            MUST(unlink(name) == 0);
        }
    }
    sprintf(name, "s%d", round);
    WORKED(symlink("/somewhere/else/that/is/so/long/that/it/takes/a/block/of/its/own/perhaps/"
                   "for/it/has/more/than/ninety/six/bytes", name));
    sprintf(name, "l%d", round);
    WORKED(link("old", name));
}

static void forget(int round) {
    char name[64];
    sprintf(name, "a name that is much longer than the other one was %d", round);
    if (access(name, F_OK) == 0) MUST(unlink(name) == 0);
    sprintf(name, "d%d", round);
    if (access(name, F_OK) == 0) MUST(rmdir(name) == 0);
    sprintf(name, "s%d", round);
    struct stat stat;
    if (lstat(name, &stat) == 0) MUST(unlink(name) == 0);
    sprintf(name, "l%d", round);
    if (lstat(name, &stat) == 0) MUST(unlink(name) == 0);
}

int main(int argc, char **argv) {
    MUST(argc == 3 && chdir(argv[1]) == 0);
    strict = strcmp(argv[2], "strict") == 0;
    signal(SIGBUS, on_fault);
    int old = open("old", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(old >= 0 && write(old, pattern(1, MIB), MIB) == MIB);
    MUST(ftruncate(old, MIB + 64 * KIB) == 0);
    int sparse = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(sparse >= 0 && ftruncate(sparse, 33 * MIB) == 0);
    int mapped = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(mapped >= 0 && ftruncate(mapped, 8 * MIB + 16 * KIB) == 0);
    char *map = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
    MUST(map != MAP_FAILED);
    fill();
    MUST(refused > 0);
    for (int round = 0; round < 60; round++) {
        overwrite(old, round);
        into_hole(sparse, round);
        touch(mapped, map, round);
        names(round);
        if (round % 16 == 0) fill();
        if (round % 20 == 0) WORKED(posix_fallocate(sparse, 0, 4 * MIB) ? (errno = ENOSPC, -1) : 0);
    }
    printf("refused %ld\n", refused);
    for (int round = 0; round < 60; round += 2) forget(round);
    char name[32];
    for (int which = 0; which < filled; which++) {
        sprintf(name, "fill%d", which);
        if (access(name, F_OK) == 0) MUST(unlink(name) == 0);
    }
    // What was freed can be used again, without any more memory.
    int again = open("again", O_RDWR | O_CREAT, 0644);
    MUST(again >= 0);
    for (int round = 0; round < 4; round++) {
        MUST(write(again, pattern(round, MIB), MIB) == MIB);
        MUST(holds(again, (long)round * MIB, MIB, round));
    }
    MUST(fsync(again) == 0);
    puts("fine");
    return 0;
}
