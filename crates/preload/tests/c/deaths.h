// What those share who work on one directory while one of them dies: the memory through which they
// are told what to do and tell what has returned to them, and the bytes they write.
#ifndef DEATHS_H
#define DEATHS_H
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define WORKERS 3
// The one that dies, where those who write are told apart.
#define VICTIM WORKERS

// As in tests/support/survivors.rs.
struct shared {
    _Atomic uint64_t want[WORKERS];  // what the worker is to do: number << 24 | case << 8 | command
    _Atomic uint64_t acted[WORKERS]; // the last that it has done (WORK: begun)
    _Atomic uint64_t begun[WORKERS]; // steps that it has begun
    _Atomic uint64_t done[WORKERS];  // steps that have returned to it
    char told[WORKERS][4096];        // what it has to say: failures, what it found
};
enum { PAUSE, WORK, BUILD, LOOK, CLOSE, CLEAN, END };

static struct shared *shared;

static void share(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || shared == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    close(fd);
}

// Bytes that tell who wrote them, which time, and at which place.
static void fill(char *to, size_t length, unsigned who, unsigned version, size_t at) {
    for (size_t index = 0; index < length; index++) {
        uint32_t mix = (who + 1) * 2654435761u ^ version * 40503u ^ (uint32_t)(at + index) * 97u;
        to[index] = version ? (char)(1 + (mix >> 7 ^ mix >> 15) % 255) : 0;
    }
}

// Whether the bytes are of one version (0: zeros).
static int is_version(const char *bytes, size_t length, unsigned who, unsigned version) {
    char expected[length];
    fill(expected, length, who, version, 0);
    return memcmp(bytes, expected, length) == 0;
}

// Whether each byte is of one of the two versions.
static int is_mixed(const char *bytes, size_t length, unsigned who, unsigned one, unsigned other) {
    char a[length], b[length];
    fill(a, length, who, one, 0);
    fill(b, length, who, other, 0);
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != a[at] && bytes[at] != b[at])
            return 0;
    return 1;
}

// A record of the log that all append to.
struct record {
    uint32_t who, number;
    char bytes[88];
};

static void make_record(struct record *record, unsigned who, unsigned number) {
    record->who = who;
    record->number = number;
    fill(record->bytes, sizeof record->bytes, who, number, 0);
}

// In the modes `sync` and `posix` the data of the call in flight may be torn.
static int may_tear(void) {
    const char *mode = getenv("SOLERA_MODE");
    return mode && strcmp(mode, "strict") != 0;
}

static int lock_bytes(int fd, int kind, off_t from, off_t length, int command) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = from, .l_len = length};
    return fcntl(fd, command, &lock);
}
#endif
