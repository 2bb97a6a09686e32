// What the coordinator of `random.c` asks of an actor, and what it answers.
#ifndef RANDOM_H
#define RANDOM_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 5
#define MAPS 2
// Numbers that the sockets stand at: to the coordinator, and between the actors.
#define ORDERS 200
#define BETWEEN 201
#define BYTES_MAX (3 << 20)

#define KINDS(kind) \
    kind(OPEN) kind(NAMELESS) kind(MEMORY) kind(CLOSE) kind(DUP) kind(DUP2) kind(READ) kind(PREAD) \
    kind(READV) kind(PREADV) kind(WRITE) kind(PWRITE) kind(WRITEV) kind(PWRITEV) kind(PWRITEV2) \
    kind(SEEK) kind(DATA) kind(FTRUNCATE) kind(TRUNCATE) kind(FALLOCATE) kind(STAT) kind(FSTAT) \
    kind(STATX) kind(FSYNC) kind(FDATASYNC) kind(RENAME) kind(LINK) kind(UNLINK) kind(GIVE_NAME) \
    kind(MAP) kind(UNMAP) kind(LOAD) kind(STORE) kind(MSYNC) kind(COPY) kind(SENDFILE) kind(SPLICE) \
    kind(FLAGS) kind(LOCK) kind(TEST_LOCK) kind(FLOCK) kind(STREAM) kind(SHELL) kind(CAT) kind(TIMES) \
    kind(SEND) kind(RECEIVE) kind(FORK) kind(EXEC) kind(LEAVE) kind(SETTLE) kind(CLONE_RANGE)
#define AS_ENUM(name) name,
#define AS_TEXT(name) #name,
enum kind { KINDS(AS_ENUM) KIND_COUNT };
static const char *const kind_names[] = {KINDS(AS_TEXT)};

struct order {
    enum kind kind;
    int slot, slot2, name, name2, flags;
    long at, at2, length;
    uint64_t fill;
    // By its number, past the C library's function.
    int raw;
};

struct answer {
    long value;
    int error;
    uint64_t sum;
    long size;
};

static const char *const names[] = {"a", "b", "c", "d", "s/e", "s/f"};
#define NAMES 6

static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

static uint64_t sum_of(const unsigned char *bytes, long count) {
    uint64_t sum = 0xcbf29ce484222325;
    for (long at = 0; at < count; at++)
        sum = (sum ^ bytes[at]) * 0x100000001b3;
    return sum;
}
#endif
