// Key operations, each between two marks (see support/step.rs): costs DIRECTORY GROUP...
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 30, RUNS = 3, BLOCK = 4096, LARGE = 4 << 20 };

#define MARK(name) __asm__ volatile("int3" : : "a"(name) : "memory")
#define MUST(call) \
    do { \
        if ((long)(call) < 0) err(1, "%s", #call); \
    } while (0)
// `i` counts the calls, those before the first that is followed too.
#define OPERATION(name, ...) \
    for (int i = 0; i < WARM + RUNS; i++) { \
        if (i >= WARM) MARK(name); \
        __VA_ARGS__; \
        if (i >= WARM) MARK(0); \
    }

static char buffer[2 << 20] __attribute__((aligned(4096)));

static int file(const char *name, size_t size, size_t piece) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd);
    for (size_t at = 0; at < size; at += piece) MUST(write(fd, buffer, piece));
    return fd;
}

static struct flock lock(short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 100, .l_len = 10};
    return lock;
}

static void scattered(void) {
    // Two files that grow in turns have no long extents.
    int a = file("hole", 0, 1), b = file("other", 0, 1);
    for (int i = 0; i < 256; i++) {
        MUST(write(a, buffer, BLOCK));
        MUST(write(b, buffer, BLOCK));
    }
    close(b);
    OPERATION("overwrite 4K in a hole", MUST(pwrite(a, buffer, BLOCK, i * BLOCK)));
    struct iovec two[2] = {{buffer, BLOCK / 2}, {buffer + BLOCK, BLOCK / 2}};
    OPERATION("overwrite 4K, two buffers", MUST(pwritev(a, two, 2, i * BLOCK)));
    OPERATION("overwrite 64 B", MUST(pwrite(a, buffer, 64, i * BLOCK + 128)));
    two[0].iov_len = two[1].iov_len = 300;
    OPERATION("overwrite 600 B, two buffers", MUST(pwritev(a, two, 2, i * BLOCK + 100)));
    if (mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0) == MAP_FAILED) abort();
    OPERATION("overwrite 4K, mapped", MUST(pwrite(a, buffer, BLOCK, i * BLOCK)));
    close(a);
}

static void large(void) {
    // Whole chunks.
    int fd = file("large", LARGE, sizeof buffer);
    MUST(lseek(fd, 0, SEEK_SET));
    OPERATION("read 4K", MUST(read(fd, buffer, BLOCK)));
    OPERATION("pread 4K", MUST(pread(fd, buffer, BLOCK, i * 37 % 1024 * BLOCK)));
    OPERATION("pread 64 B", MUST(pread(fd, buffer, 64, i * 37 % 1024 * BLOCK + 256)));
    OPERATION("pread 64K", MUST(pread(fd, buffer, 1 << 16, i % 64 << 16)));
    OPERATION("overwrite 4K in an extent", MUST(pwrite(fd, buffer, BLOCK, i * BLOCK)));
    OPERATION("lseek", MUST(lseek(fd, i, SEEK_SET)));
    struct flock set = lock(F_WRLCK), free = lock(F_UNLCK);
    OPERATION("lock, unlock", MUST(fcntl(fd, F_SETLK, &set)); MUST(fcntl(fd, F_SETLK, &free)));
    struct stat is;
    OPERATION("fstat", MUST(fstat(fd, &is)));
    OPERATION("fsync of nothing", MUST(fsync(fd)));
    close(fd);
}

static void appends(void) {
    int fd = file("appended", BLOCK, BLOCK);
    OPERATION("append 4K", MUST(write(fd, buffer, BLOCK)));
    close(fd);
    // One that has grown past 2 MiB gets whole chunks.
    fd = file("grown", (2 << 20) + BLOCK, BLOCK);
    OPERATION("append 4K, grown", MUST(write(fd, buffer, BLOCK)));
    close(fd);
    fd = file("short", 64, 64);
    OPERATION("append 64 B", MUST(write(fd, buffer, 64)));
    close(fd);
    fd = file("short", 128, 128);
    OPERATION("append 128 B", MUST(write(fd, buffer, 128)));
    close(fd);
}

static void durable(void) {
    int fd = file("synced", BLOCK, BLOCK);
    OPERATION("append 4K, fsync", MUST(write(fd, buffer, BLOCK)); MUST(fsync(fd)));
    close(fd);
    fd = file("log", 64, 64);
    OPERATION("append 64 B, fsync", MUST(write(fd, buffer, 64)); MUST(fsync(fd)));
    close(fd);
}

static void names(void) {
    struct stat is;
    close(file("small", BLOCK, BLOCK));
    char deep[] = "a/b/c/d/e/f/g/h/small";
    for (char *slash = deep; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        MUST(mkdir(deep, 0755));
    }
    close(file(deep, BLOCK, BLOCK));
    char path[4096];
    MUST(realpath("small", path) ? 0 : -1);
    OPERATION("stat", MUST(stat(path, &is)));
    OPERATION("stat, 8 deep", MUST(stat(deep, &is)));
    OPERATION("open, close", MUST(close(open(path, O_RDWR))));
    OPERATION("access", MUST(access(path, R_OK)));
    // Those that the kernel serves.
    const char *outside = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    OPERATION("stat, outside", MUST(stat(outside, &is)));
    OPERATION("access, outside", MUST(access(outside, R_OK)));
    OPERATION("open, close, outside", MUST(close(open(outside, O_RDONLY))));
    OPERATION("access, nothing outside", access("/usr/lib/x86_64-linux-gnu/none", R_OK));
    OPERATION("rename", MUST(rename(i % 2 ? "two" : "small", i % 2 ? "small" : "two")));
}

static void trees(void) {
    OPERATION("create, close, unlink", MUST(close(open("new", O_RDWR | O_CREAT | O_EXCL, 0644)));
              MUST(unlink("new")));
    OPERATION("create, write 4K, close, unlink", int fd = open("new", O_WRONLY | O_CREAT, 0644);
              MUST(write(fd, buffer, BLOCK)); MUST(close(fd)); MUST(unlink("new")));
    OPERATION("mkdir, rmdir", MUST(mkdir("dir", 0755)); MUST(rmdir("dir")));
    OPERATION("symlink, readlink, unlink", MUST(symlink("to", "link"));
              MUST(readlink("link", buffer, 99)); MUST(unlink("link")));
    // Its only bucket comes and goes with the name.
    MUST(mkdir("void", 0755));
    OPERATION("create, unlink, empty directory",
              MUST(close(open("void/new", O_RDWR | O_CREAT | O_EXCL, 0644)));
              MUST(unlink("void/new")));
    struct stat is;
    MUST(mkdir("many", 0755));
    for (int i = 0; i < 10; i++) {
        char name[20];
        sprintf(name, "many/name%d", i);
        close(file(name, 0, 1));
    }
    DIR *dir = opendir("many");
    OPERATION("10 names, each with fstatat", rewinddir(dir); struct dirent *entry;
              while ((entry = readdir(dir))) MUST(fstatat(dirfd(dir), entry->d_name, &is, 0)));
    closedir(dir);
}

// What a call costs in a process that is not alone.
static void in_company(const char *of) {
    char what[3][60];
    sprintf(what[0], "overwrite 4K, %s", of);
    sprintf(what[1], "open, close, %s", of);
    sprintf(what[2], "create, unlink, %s", of);
    int fd = file("large", LARGE, sizeof buffer);
    OPERATION(what[0], MUST(pwrite(fd, buffer, BLOCK, i * BLOCK)));
    close(fd);
    OPERATION(what[1], MUST(close(open("large", O_RDWR))));
    OPERATION(what[2], MUST(close(open("new", O_RDWR | O_CREAT | O_EXCL, 0644)));
              MUST(unlink("new")));
}

static int wake[2];

static void *sleeps(void *none) {
    char byte;
    MUST(read(wake[0], &byte, 1));
    return none;
}

static void threads(void) {
    pthread_t other;
    MUST(pipe(wake));
    MUST(-pthread_create(&other, NULL, sleeps, NULL));
    in_company("two threads");
    MUST(write(wake[1], "", 1));
    MUST(-pthread_join(other, NULL));
}

static void beside(void) {
    int ready[2];
    char byte;
    MUST(pipe(wake));
    MUST(pipe(ready));
    pid_t other = fork();
    MUST(other);
    if (!other) {
        close(wake[1]);
        close(file("others", BLOCK, BLOCK));
        MUST(write(ready[1], "", 1));
        exit(read(wake[0], &byte, 1) != 0);
    }
    MUST(read(ready[0], &byte, 1));
    in_company("two processes");
    close(wake[1]);
    MUST(waitpid(other, NULL, 0));
}

int main(int count, char **words) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    memset(buffer, 7, sizeof buffer);
    MUST(chdir(words[1]));
    for (char **group = words + 2; group < words + count; group++) {
        if (!strcmp(*group, "large")) large();
        if (!strcmp(*group, "scattered")) scattered();
        if (!strcmp(*group, "appends")) appends();
        if (!strcmp(*group, "durable")) durable();
        if (!strcmp(*group, "names")) names();
        if (!strcmp(*group, "trees")) trees();
        if (!strcmp(*group, "threads")) threads();
        if (!strcmp(*group, "beside")) beside();
    }
    return 0;
}
