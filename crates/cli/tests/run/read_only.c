// Reads files that it may not change, by mappings and by the calls around them. `f` is "abc" 3,000
// times over, `sparse` 1 MiB with an "x" in its last byte and an unwritten part at the beginning.
//
//   still DIR     says "mapped", waits for a line, by when another process has put "y" at 512 KiB
//                 into `sparse` and "tail" behind the end of `f`, and says "seen"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE 9000
#define SPARSE (1 << 20)
#define HALF (SPARSE / 2)

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));            \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)
#define FAILS(call, with) CHECK((errno = 0, (call) == -1 && errno == (with)))

static char *map(int fd, size_t size, int prot, int flags) {
    char *at = mmap(NULL, size, prot, flags, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int is_text(const char *at) {
    for (int i = 0; i < SIZE; i++) {
        if (at[i] != "abc"[i % 3]) {
            return 0;
        }
    }
    return 1;
}

static int is_zero(const char *from, const char *to) {
    while (from < to && *from == 0) {
        from++;
    }
    return from == to;
}

static void text(int fd, int flags) {
    char *at = map(fd, SIZE, PROT_READ, flags);
    CHECK(at && is_text(at) && is_zero(at + SIZE, at + 12288));
    CHECK(madvise(at, SIZE, MADV_WILLNEED) == 0 && madvise(at, SIZE, MADV_DONTNEED) == 0);
    CHECK(msync(at, SIZE, MS_SYNC) == 0 && is_text(at));
    CHECK((at = mremap(at, SIZE, 5 * SIZE, MREMAP_MAYMOVE)) != MAP_FAILED && is_text(at));
    CHECK(munmap(at, 5 * SIZE) == 0);
}

static void own_stores(int fd) {
    char byte, *at = map(fd, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    CHECK(at);
    at[4] = 'z';
    CHECK(pread(fd, &byte, 1, 4) == 1 && byte == 'b' && at[4] == 'z');
    CHECK(munmap(at, SIZE) == 0);
    FAILS((long)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
    CHECK((at = map(fd, SIZE, PROT_READ, MAP_SHARED)));
    FAILS(mprotect(at, SIZE, PROT_READ | PROT_WRITE), EACCES);
    CHECK(munmap(at, SIZE) == 0);
}

static void holes(int fd) {
    struct stat before, after;
    char *at = map(fd, SPARSE, PROT_READ, MAP_PRIVATE);
    CHECK(at && fstat(fd, &before) == 0);
    CHECK(is_zero(at, at + SPARSE - 1) && at[SPARSE - 1] == 'x');
    CHECK((at = map(fd, SPARSE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE)));
    CHECK(is_zero(at, at + SPARSE - 1) && at[SPARSE - 1] == 'x');
    at[0] = at[HALF] = 1;
    CHECK(fstat(fd, &after) == 0 && before.st_blocks == after.st_blocks);
}

static void other_calls(int fd, const char *path) {
    struct flock all = {.l_type = F_RDLCK};
    int null = open("/dev/null", O_WRONLY);
    CHECK(flock(fd, LOCK_SH) == 0 && flock(fd, LOCK_UN) == 0 && fcntl(fd, F_SETLK, &all) == 0);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && lseek(fd, 0, SEEK_HOLE) == SIZE);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(sendfile(null, fd, NULL, SIZE) == SIZE);
    FAILS(open(path, O_RDWR), EROFS);
    FAILS(open(path, O_RDONLY | O_TRUNC), EROFS);
    FAILS(access(path, W_OK), EROFS);
    FAILS(chmod(path, 0600), EROFS);
}

int main(int count, char **words) {
    char path[4096], line[16];
    snprintf(path, sizeof path, "%s/sparse", words[1]);
    int sparse = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s/f", words[1]);
    int fd = open(path, O_RDONLY);
    CHECK(sparse >= 0 && fd >= 0);
    text(fd, MAP_PRIVATE);
    text(fd, MAP_SHARED);
    text(fd, MAP_PRIVATE | MAP_POPULATE);
    text(fd, MAP_SHARED | MAP_POPULATE);
    own_stores(fd);
    holes(sparse);
    other_calls(fd, path);
    char *own = map(fd, 5 * SIZE, PROT_READ, MAP_SHARED);
    char *holes = map(sparse, SPARSE, PROT_READ, MAP_SHARED);
    CHECK(own && holes && is_text(own) && holes[HALF] == 0 && holes[HALF + 4096] == 0);
    puts("mapped");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
    CHECK(holes[HALF] == 'y' && holes[HALF + 4096] == 0 && holes[SPARSE - 1] == 'x');
    CHECK(is_text(own) && !memcmp(own + SIZE, "tail", 5) && own[3 * 4096] == 't');
    puts("seen");
    return 0;
}
