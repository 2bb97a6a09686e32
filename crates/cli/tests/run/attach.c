/* Reads of a program that knows nothing of the cache: usage attach CASE DIRECTORY. The cache has pages of
   2 MiB. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <malloc.h>

#define PAGE ((size_t)2 << 20)
#define SIZE (32 * PAGE)

static int failures;
#define CHECK(what) \
    do { \
        if (!(what)) { \
            failures++; \
            printf("%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
        } \
    } while (0)

static const char *directory;
static int data;

static char byte_at(size_t at, int age) {
    return (char)(at / 4093 % 251 + (size_t)age);
}

/* How many bytes from there on, and of so many, are the same. */
static size_t run_at(size_t at, size_t count) {
    size_t run = 4093 - at % 4093;
    return run < count ? run : count;
}

/* The first byte is right, and each is as the next one. */
static int is_all(const char *bytes, size_t count, char byte) {
    return count == 0 || (bytes[0] == byte && memcmp(bytes, bytes + 1, count - 1) == 0);
}

static int is_right(const char *bytes, size_t offset, size_t count, int age) {
    for (size_t at = 0, run; at < count; at += run) {
        run = run_at(offset + at, count - at);
        if (!is_all(bytes + at, run, byte_at(offset + at, age)))
            return 0;
    }
    return 1;
}

static int file(const char *name, size_t size, int age) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    char *bytes = malloc(1 << 20);
    for (size_t from = 0; from < size; from += 1 << 20) {
        for (size_t at = 0, run; at < 1 << 20; at += run) {
            run = run_at(from + at, (1 << 20) - at);
            memset(bytes + at, byte_at(from + at, age), run);
        }
        CHECK(pwrite(fd, bytes, 1 << 20, (off_t)from) == 1 << 20);
    }
    free(bytes);
    return fd;
}

/* How many files are mapped into a range. */
static size_t attached(const void *start, size_t length) {
    char line[4096];
    size_t found = 0, base = (size_t)start;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        char *behind;
        size_t from = strtoul(line, &behind, 16), to = strtoul(behind + 1, NULL, 16);
        found += from < base + length && base < to && strchr(line, '/') != NULL;
    }
    fclose(maps);
    return found;
}

static char *memory(size_t length) {
    char *all = mmap(NULL, length + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    return (char *)(((size_t)all + PAGE - 1) / PAGE * PAGE);
}

static int reads(char *to, size_t offset, size_t length) {
    return pread(data, to, length, (off_t)offset) == (ssize_t)length && is_right(to, offset, length, 0);
}

/* The same of so many pages, and a bit: a length that was not read before, so that nothing is remembered of it.
   All pages are mapped. */
static size_t bit;
static int maps(char *to, size_t offset, size_t pages) {
    bit += 16;
    return reads(to, offset, pages * PAGE + bit) && attached(to, pages * PAGE) == pages;
}

static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long answer;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* Of the status of this thread's process, KiB. */
static long status_of(const char *name) {
    char line[256];
    long found = -1;
    FILE *status = fopen("/proc/thread-self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(status);
    return found;
}

static long locked(void) {
    return status_of("VmLck");
}

/* From here on a system call, of ioctl one request, is answered so. */
static int filters(int call, unsigned request, unsigned answer, int by_prctl) {
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, request, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    if (request == 0)
        /* Whatever its arguments are. */
        lines[1].jt = 2;
    struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    if (by_prctl)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* One mapping for each whole page; the rest is copied. */
static void counts(void) {
    static const size_t offsets[] = {0, 1, 511, 4095, 4096}, lengths[] = {PAGE, 2 * PAGE, 31 * PAGE};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            size_t offset = offsets[i], length = lengths[k], whole = length / PAGE - (offset != 0);
            char *buffer = memory(length + PAGE);
            /* The first one may have to fill the cache. */
            for (int round = 0; round < 2; round++)
                CHECK(reads(buffer + offset, offset, length));
            CHECK(attached(buffer, length + PAGE) == whole);
            munmap(buffer, length + PAGE);
        }
    /* By all other calls that read. */
    char *buffer = memory(8 * PAGE);
    struct iovec two[2] = {{buffer, 2 * PAGE}, {buffer + 4 * PAGE, 2 * PAGE}};
    CHECK(preadv(data, two, 2, 0) == 4 * (ssize_t)PAGE && is_right(buffer, 0, 2 * PAGE, 0));
    CHECK(is_right(buffer + 4 * PAGE, 2 * PAGE, 2 * PAGE, 0) && attached(buffer, 8 * PAGE) == 4);
    CHECK(lseek(data, 0, SEEK_SET) == 0);
    CHECK(read(data, buffer + 2 * PAGE, 2 * PAGE) == 2 * (ssize_t)PAGE);
    CHECK(is_right(buffer + 2 * PAGE, 0, 2 * PAGE, 0) && attached(buffer, 8 * PAGE) == 6);
}

/* What a buffer has got it keeps; what is stored to it is the program's own. */
static void keeps(void) {
    int changing = file("changing", 8 * PAGE, 1);
    char *touched = memory(8 * PAGE), *left = memory(8 * PAGE), byte;
    CHECK(pread(changing, touched, 8 * PAGE, 0) == 8 * (ssize_t)PAGE);
    CHECK(pread(changing, left, 8 * PAGE, 0) == 8 * (ssize_t)PAGE);
    CHECK(attached(touched, 8 * PAGE) == 8 && attached(left, 8 * PAGE) == 8);
    CHECK(is_right(touched, 0, 8 * PAGE, 1));
    touched[PAGE + 5] = 'x';
    CHECK(pwrite(changing, "y", 1, (off_t)(2 * PAGE)) == 1);
    CHECK(pread(changing, &byte, 1, (off_t)(2 * PAGE)) == 1 && byte == 'y');
    CHECK(pread(changing, &byte, 1, (off_t)(PAGE + 5)) == 1 && byte == byte_at(PAGE + 5, 1));
    CHECK(ftruncate(changing, 3) == 0);
    /* More than the cache holds. */
    char *other = memory(SIZE);
    for (int round = 0; round < 3; round++)
        CHECK(reads(other, 0, SIZE));
    char path[4096];
    snprintf(path, sizeof path, "%s/changing", directory);
    CHECK(unlink(path) == 0 && close(changing) == 0);
    CHECK(is_right(left, 0, 8 * PAGE, 1) && touched[PAGE + 5] == 'x');
    touched[PAGE + 5] = byte_at(PAGE + 5, 1);
    CHECK(is_right(touched, 0, 8 * PAGE, 1));
    pid_t child = fork();
    if (child == 0) {
        CHECK(is_right(left, 0, 8 * PAGE, 1));
        memset(left, 'c', PAGE);
        CHECK(is_all(left, PAGE, 'c') && is_right(left + PAGE, PAGE, 7 * PAGE, 1));
        CHECK(reads(other, 0, SIZE) && reads(left, 0, 2 * PAGE) && reads(touched + 7, 7, 2 * PAGE));
        _exit(failures);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_right(left, 0, 8 * PAGE, 1) && is_right(touched, 0, 8 * PAGE, 1));
}

/* Memory that is given back is zeros, whoever has it. */
static void is_given_up(char *buffer) {
    static const int advices[] = {MADV_DONTNEED, MADV_FREE};
    for (int i = 0; i < 2; i++) {
        CHECK(maps(buffer, 0, 4));
        CHECK(madvise(buffer + PAGE + 4096, PAGE, advices[i]) == 0);
        CHECK(is_right(buffer, 0, PAGE + 4096, 0));
        CHECK(advices[i] == MADV_FREE || is_all(buffer + PAGE + 4096, PAGE, 0));
        CHECK(is_right(buffer + 2 * PAGE + 4096, 2 * PAGE + 4096, PAGE, 0));
        CHECK(madvise(buffer, 4 * PAGE, advices[i]) == 0);
        CHECK(advices[i] == MADV_FREE || is_all(buffer, 4 * PAGE, 0));
        memset(buffer, 1, 4 * PAGE);
        CHECK(is_all(buffer, 4 * PAGE, 1));
        CHECK(munmap(buffer, 4 * PAGE) == 0);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        CHECK(mmap(buffer, 4 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == buffer);
    }
    CHECK(maps(buffer, 0, 4));
    /* In the middle of a page, and what is left of it. */
    CHECK(madvise(buffer + 8192, 4096, MADV_DONTNEED) == 0 && is_all(buffer + 8192, 4096, 0));
    CHECK(is_right(buffer, 0, 8192, 0) && is_right(buffer + 12288, 12288, PAGE - 12288, 0));
    CHECK(madvise(buffer, PAGE, MADV_DONTNEED) == 0 && is_all(buffer, PAGE, 0));
}

static void comes_and_goes(void) {
    char *buffer = memory(8 * PAGE);
    is_given_up(buffer);
    for (int touch = 0; touch < 2; touch++) {
        /* Unseen, and given again at the same place. */
        CHECK(maps(buffer, 0, 4));
        CHECK(raw(SYS_munmap, (long)buffer, 4 * PAGE, 0, 0, 0, 0) == 0);
        long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        CHECK(raw(SYS_mmap, (long)buffer, 4 * PAGE, 3, flags, -1, 0) == (long)buffer);
        if (touch)
            memset(buffer, 7, 4 * PAGE);
        CHECK(is_all(buffer, 4 * PAGE, touch ? 7 : 0));
        CHECK(madvise(buffer, PAGE, MADV_DONTNEED) == 0 && is_all(buffer, PAGE, 0));
        CHECK(is_all(buffer + PAGE, 3 * PAGE, touch ? 7 : 0));
        CHECK(reads(buffer + PAGE + 9, 5, 2 * PAGE));
        CHECK(is_all(buffer + PAGE, 9, touch ? 7 : 0) && is_all(buffer + 3 * PAGE + 9, PAGE - 9, touch ? 7 : 0));
        /* A file of the program's where a segment was. */
        CHECK(maps(buffer, 0, 4));
        char path[4096];
        snprintf(path, sizeof path, "/dev/shm/attached-%d", getpid());
        int own = open(path, O_RDWR | O_CREAT, 0600);
        CHECK(unlink(path) == 0 && ftruncate(own, 4 * PAGE) == 0 && pwrite(own, "own", 3, PAGE) == 3);
        CHECK(raw(SYS_mmap, (long)buffer, 4 * PAGE, 3, MAP_SHARED | MAP_FIXED, own, 0) == (long)buffer);
        CHECK(memcmp(buffer + PAGE, "own", 3) == 0);
        CHECK(madvise(buffer, 4 * PAGE, MADV_DONTNEED) == 0 && memcmp(buffer + PAGE, "own", 3) == 0);
        CHECK(reads(buffer + 3 * PAGE + 1, 1, PAGE / 2));
        char back[3];
        CHECK(pread(own, back, 3, 3 * PAGE + 1) == 3 && is_right(back, 1, 3, 0));
        CHECK(reads(buffer, 0, 4 * PAGE) && pread(own, back, 3, PAGE) == 3 && is_right(back, PAGE, 3, 0));
        close(own);
        CHECK(raw(SYS_munmap, (long)buffer, 4 * PAGE, 0, 0, 0, 0) == 0);
        CHECK(raw(SYS_mmap, (long)buffer, 4 * PAGE, 3, flags, -1, 0) == (long)buffer);
        /* Moved unseen: what is given up there is zeros, too. */
        CHECK(maps(buffer, 0, 4));
        long moved = raw(SYS_mremap, (long)buffer, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (long)(buffer + 6 * PAGE), 0);
        CHECK(moved == (long)(buffer + 6 * PAGE) && is_right(buffer + 6 * PAGE, 0, PAGE, 0));
        CHECK(madvise(buffer + 6 * PAGE, PAGE, MADV_DONTNEED) == 0 && is_all(buffer + 6 * PAGE, PAGE, 0));
        CHECK(raw(SYS_mmap, (long)buffer, 4 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)buffer);
    }
    /* The C library's own. */
    for (int round = 0; round < 20; round++) {
        size_t length = (4 + (size_t)round % 3) * PAGE + 12345;
        char *block = malloc(length), *start = (char *)(((size_t)block + PAGE - 1) / PAGE * PAGE);
        CHECK(reads(start, (size_t)(round % 5) * PAGE, 3 * PAGE));
        if (round % 2) {
            block = realloc(block, length + 3 * PAGE);
            CHECK(block && is_right(block + (start - block) % (long)PAGE, 0, 0, 0));
        }
        free(block);
        block = calloc(length, 1);
        CHECK(is_all(block, length, 0));
        memset(block, 3, length);
        free(block);
    }
    char *block = malloc(4 * PAGE), *start = (char *)(((size_t)block + PAGE - 1) / PAGE * PAGE);
    long shift = start - block;
    CHECK(maps(start, 0, 2));
    block = realloc(block, 9 * PAGE);
    CHECK(is_right(block + shift, 0, 2 * PAGE, 0));
    free(block);
    /* The heap itself. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    for (int round = 0; round < 5; round++) {
        block = malloc(6 * PAGE);
        start = (char *)(((size_t)block + PAGE - 1) / PAGE * PAGE);
        CHECK(maps(start, 0, 4));
        free(block);
        malloc_trim(0);
        block = calloc(6 * PAGE, 1);
        CHECK(is_all(block, 6 * PAGE, 0));
        free(block);
    }
}

/* Calls on attached memory that a file's mapping would not allow. */
static void calls(void) {
    char *buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4));
    CHECK(mprotect(buffer + PAGE, PAGE + 4096, PROT_READ | PROT_EXEC) == 0);
    CHECK(is_right(buffer, 0, 4 * PAGE, 0));
    CHECK(mprotect(buffer + PAGE, PAGE + 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(maps(buffer, 0, 4));
    CHECK(mprotect(buffer, 4096, PROT_READ) == 0 && madvise(buffer, 4096, MADV_DONTNEED) == 0);
    CHECK(is_all(buffer, 4096, 0) && is_right(buffer + 4096, 4096, PAGE, 0));
    CHECK(pread(data, buffer, PAGE, 0) == -1 && errno == EFAULT);
    CHECK(mprotect(buffer, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(maps(buffer, 0, 4));
    CHECK(madvise(buffer, PAGE, MADV_WIPEONFORK) == 0 && is_right(buffer, 0, 4 * PAGE, 0));
    CHECK(madvise(buffer, PAGE, MADV_KEEPONFORK) == 0);
    /* Moved, longer and shorter, as one mapping is. */
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4));
    munmap(buffer + 4 * PAGE, 4 * PAGE);
    CHECK(mremap(buffer, 4 * PAGE, 6 * PAGE, 0) == buffer);
    CHECK(is_right(buffer, 0, 4 * PAGE, 0) && is_all(buffer + 4 * PAGE, 2 * PAGE, 0));
    CHECK(reads(buffer, 0, 6 * PAGE));
    mmap(buffer + 6 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(mremap(buffer, 6 * PAGE, 9 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
    char *moved = mremap(buffer, 6 * PAGE, 9 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && is_right(moved, 0, 6 * PAGE, 0) && is_all(moved + 6 * PAGE, 3 * PAGE, 0));
    char *place = memory(4 * PAGE);
    CHECK(pread(data, moved, 4096, 0) == 4096);
    CHECK(mremap(moved, 9 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(is_right(place, 0, 4 * PAGE, 0));
    unsigned char in;
    CHECK(mincore(moved, 4096, &in) == -1 && errno == ENOMEM);
    CHECK(mremap(place, 4 * PAGE, PAGE, 0) == place && is_right(place, 0, PAGE, 0));
    CHECK(mlock(place, 4096) == 0 && munlock(place, 4096) == 0 && is_right(place, 0, PAGE, 0));
}

/* Behind strict seccomp only reads and writes are allowed: what is cached is read. */
static void strict(void) {
    char *buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && reads(buffer, PAGE + 7, 2 * PAGE));
    pid_t child = fork();
    if (child == 0) {
        /* By copies: so the segments are mapped in this process. */
        CHECK(reads(buffer + 4 * PAGE + 9, 0, 3 * PAGE) && maps(buffer, 0, 4));
        prctl(PR_SET_SECCOMP, 1, 0, 0, 0);
        int is = reads(buffer, 0, PAGE) && reads(buffer + 3 * PAGE, PAGE, PAGE) && reads(buffer + 9, PAGE, PAGE);
        raw(SYS_exit, is ? failures : 99, 0, 0, 0, 0, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Behind any seccomp what is not cached is read, and given up memory is zeros, by calls that a filter allows. */
static void sandboxed(void) {
    static const unsigned kill = SECCOMP_RET_KILL_PROCESS, refuse = SECCOMP_RET_ERRNO | EPERM;
    static const struct { int call; unsigned answer; int by_prctl; } all[] = {
        {SYS_ioctl, refuse, 0}, {SYS_ioctl, kill, 0}, {SYS_ioctl, kill, 1}, {SYS_openat, kill, 0}, {SYS_openat, kill, 1}, {-1, 0, 0},
    };
    char *buffer = memory(8 * PAGE), name[32];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(name, sizeof name, "uncached-%zu", i);
        int uncached = file(name, 8 * PAGE, 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(maps(buffer, 0, 4));
            if (all[i].call < 0)
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
            else
                CHECK(filters(all[i].call, 0, all[i].answer, all[i].by_prctl) == 0);
            int is = pread(data, buffer + PAGE + 7, 2 * PAGE, 0) == 2 * (ssize_t)PAGE && is_right(buffer + PAGE + 7, 0, 2 * PAGE, 0);
            for (size_t at = 0; at < 8; at++) {
                is &= pread(uncached, buffer + 4 * PAGE, PAGE, at * PAGE) == (ssize_t)PAGE && is_right(buffer + 4 * PAGE, at * PAGE, PAGE, 0);
                is &= pread(uncached, buffer + 4 * PAGE, 4096, at * PAGE) == 4096 && is_right(buffer + 4 * PAGE, at * PAGE, 4096, 0);
            }
            if (all[i].call >= 0) {
                char *moved = mremap(buffer + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
                is &= moved != MAP_FAILED && is_right(moved + PAGE - 8192, PAGE - 8192 - 7, 8192, 0) && is_all(moved + PAGE, PAGE, 0);
                mmap(buffer + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                is &= madvise(buffer, 4 * PAGE, MADV_DONTNEED) == 0 && is_all(buffer, 4 * PAGE, 0);
            }
            raw(SYS_exit, is ? failures : 99, 0, 0, 0, 0, 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (status != 0)
            printf("case %zu: status %x\n", i, status);
        close(uncached);
    }
}

/* Reads that pay for looks at all marks, which are limited otherwise. */
static void pay(void) {
    char *buffer = memory(4 * PAGE);
    for (int round = 0; round < 160; round++)
        CHECK(pread(data, buffer, 4 * PAGE, 0) == 4 * (ssize_t)PAGE);
    munmap(buffer, 4 * PAGE);
}

/* What was attached keeps its bytes where a read fails, or is short, or a call is refused. */
static void failures_of(void) {
    char *buffer = memory(8 * PAGE), path[4096];
    snprintf(path, sizeof path, "%s/data", directory);
    int writer = open(path, O_WRONLY);
    CHECK(maps(buffer, 0, 4) && pread(writer, buffer, 4 * PAGE, 0) == -1 && errno == EBADF);
    CHECK(pread(writer, buffer + 5, 4 * PAGE - 5, 0) == -1 && is_right(buffer, 0, 4 * PAGE, 0));
    /* A hole in the middle: what lies behind it is not read. */
    mmap(buffer + PAGE + PAGE / 2, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int shift = 0; shift < 2; shift++) {
        CHECK(pread(data, buffer, 4 * PAGE, 2 * PAGE + shift * 7) == PAGE + PAGE / 2);
        CHECK(is_right(buffer, 2 * PAGE + shift * 7, PAGE + PAGE / 2, 0) && is_right(buffer + 2 * PAGE, 2 * PAGE, 2 * PAGE, 0));
    }
    /* A file of the kernel's, from which another process takes. */
    snprintf(path, sizeof path, "/dev/shm/short-%d", getpid());
    int own = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(unlink(path) == 0 && ftruncate(own, 4 * PAGE) == 0);
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && pread(own, buffer, 4 * PAGE, (off_t)(4 * PAGE)) == 0 && is_right(buffer, 0, 4 * PAGE, 0));
    /* Refused advice changes nothing. */
    CHECK(madvise(buffer + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL && is_right(buffer, 0, 4 * PAGE, 0));
    CHECK(madvise(buffer + 1, PAGE, 102) == -1 && is_right(buffer, 0, 4 * PAGE, 0));
    CHECK(mlock(buffer, PAGE) == 0 && madvise(buffer, PAGE, MADV_DONTNEED) == -1 && is_right(buffer, 0, 4 * PAGE, 0));
    CHECK(munlock(buffer, PAGE) == 0);
    pay();
    /* What is not mapped is reported when all else is given up. */
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && munmap(buffer + 2 * PAGE, 4096) == 0);
    CHECK(madvise(buffer, 4 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
    CHECK(is_all(buffer, 2 * PAGE, 0) && is_all(buffer + 2 * PAGE + 4096, 2 * PAGE - 4096, 0));
    /* Guard pages stay, where the kernel knows them. */
    buffer = memory(8 * PAGE);
    if (madvise(buffer + PAGE + 4096, 4096, 102) == 0) {
        CHECK(pread(data, buffer, 4 * PAGE, 0) == PAGE + 4096 && is_right(buffer, 0, PAGE + 4096, 0));
        CHECK(attached(buffer, PAGE) == 1 && pread(data, buffer + PAGE + 4096, PAGE, 0) == -1 && errno == EFAULT);
        CHECK(reads(buffer + 2 * PAGE, 0, 2 * PAGE));
    }
    pay();
    /* A child that cannot open anything knows what its parent had attached. */
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4));
    pid_t child = fork();
    if (child == 0) {
        struct rlimit few = {20, 20};
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        pid_t second = fork();
        if (second == 0) {
            CHECK(pread(data, buffer + PAGE + 7, 2 * PAGE, 0) == 2 * (ssize_t)PAGE && is_right(buffer + PAGE + 7, 0, 2 * PAGE, 0));
            CHECK(madvise(buffer, 4 * PAGE, MADV_DONTNEED) == 0 && is_all(buffer, 4 * PAGE, 0));
            _exit(failures);
        }
        int status;
        CHECK(waitpid(second, &status, 0) == second && status == 0);
        _exit(failures);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What the program does with memory that is attached already. */
static void marked(void) {
    char *buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && mlock(buffer, 4 * PAGE) == 0 && locked() == 8192);
    for (int round = 0; round < 3; round++)
        CHECK(reads(buffer, round * 512, 4 * PAGE) && locked() == 8192);
    CHECK(munlock(buffer, 4 * PAGE) == 0);
    pay();
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && madvise(buffer, 4 * PAGE, MADV_DONTFORK) == 0);
    CHECK(reads(buffer, 0, 4 * PAGE) && reads(buffer, 512, 4 * PAGE));
    CHECK(madvise(buffer, PAGE, MADV_DONTNEED) == 0 && is_all(buffer, PAGE, 0));
    pid_t child = fork();
    if (child == 0) {
        unsigned char in;
        CHECK(mincore(buffer, 4096, &in) == -1 && mincore(buffer + 3 * PAGE, 4096, &in) == -1);
        _exit(failures);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    pay();
    /* The first page alone is something else. */
    for (int shared = 0; shared < 2; shared++) {
        buffer = memory(8 * PAGE);
        CHECK(maps(buffer, 0, 4));
        int own = memfd_create("own", 0), flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
        CHECK(ftruncate(own, PAGE) == 0 && mmap(buffer, PAGE, PROT_READ | PROT_WRITE, flags, own, 0) == buffer);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, PAGE) == 1);
        char *back = memory(PAGE);
        CHECK(pread(own, back, PAGE, 0) == (ssize_t)PAGE && (shared ? is_right(back, 0, PAGE, 0) : is_all(back, PAGE, 0)));
        close(own);
    }
    /* Read-only memory stays so when it moves. */
    buffer = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4) && mprotect(buffer, 4 * PAGE, PROT_READ) == 0);
    char *moved = mremap(buffer, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && is_right(moved, 0, 4 * PAGE, 0) && is_all(moved + 4 * PAGE, PAGE, 0));
    CHECK(pread(data, moved, PAGE, 0) == -1 && errno == EFAULT);
    /* Two mappings of the program's own do not move at once. */
    char *two = memory(2 * PAGE);
    mprotect(two + PAGE, PAGE, PROT_READ);
    CHECK(mremap(two, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
}

/* The same of memory that was not attached, at the same place. */
static void marked_elsewhere(void) {
    char *buffer;
    /* Given up in the middle, it is a mapping of its own, and moves with the others all the same. */
    for (int way = 0; way < 3; way++) {
        buffer = memory(8 * PAGE);
        munmap(buffer + 4 * PAGE, 4 * PAGE);
        if (way == 1)
            CHECK(madvise(buffer, 4 * PAGE, MADV_HUGEPAGE) == 0);
        memset(buffer, 1, 4 * PAGE);
        if (way == 2)
            buffer = mremap(buffer, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, memory(8 * PAGE));
        CHECK(maps(buffer + PAGE, 0, 2) && madvise(buffer + PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
        char *moved = mremap(buffer, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED && is_all(moved, PAGE, 1) && is_all(moved + PAGE, 2 * PAGE, 0) && is_all(moved + 4 * PAGE, PAGE, 0));
        munmap(moved, 5 * PAGE);
    }
    pay();
    /* Given up behind a change of marks it takes no memory. */
    buffer = memory(SIZE);
    CHECK(maps(buffer, 0, 31) && mlock(directory, 1) == 0 && munlock(directory, 1) == 0);
    long before = status_of("RssAnon");
    CHECK(madvise(buffer, 31 * PAGE, MADV_DONTNEED) == 0 && status_of("RssAnon") < before + 8192);
    CHECK(is_all(buffer, 31 * PAGE, 0));
    munmap(buffer, SIZE);
    pay();
    /* Other memory where it was, that is locked from its beginning, and beside a file of the volume. */
    char *own = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, data, 0);
    buffer = memory(8 * PAGE);
    CHECK(own != MAP_FAILED && maps(buffer, 0, 4));
    int locks = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_LOCKED;
    CHECK(mmap(buffer, 4 * PAGE, PROT_READ | PROT_WRITE, locks, -1, 0) == buffer);
    CHECK(locked() == 8192 && reads(buffer, 0, 4 * PAGE) && locked() == 8192);
    munmap(own, PAGE);
    munmap(buffer, 4 * PAGE);
    pay();
    /* The same by a move. */
    char *target = memory(8 * PAGE);
    buffer = memory(8 * PAGE);
    CHECK(mlock(buffer, 4 * PAGE) == 0 && maps(target, 0, 4));
    CHECK(mremap(buffer, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK(locked() == 8192 && reads(target, 0, 4 * PAGE) && locked() == 8192);
    munmap(target, 4 * PAGE);
}

/* A thread stores while another one moves, forks, and gives numbers. */
static volatile int over;
static char *stored_to;
static void *storing(void *unused) {
    while (!over)
        __atomic_add_fetch((long *)stored_to, 1, __ATOMIC_RELAXED);
    return unused;
}
static void *reading_on(void *unused) {
    char *buffer = memory(4 * PAGE);
    for (unsigned round = 0; !over; round++)
        CHECK(pread(data, buffer, 2 * PAGE + round % 512, (off_t)(round % 8 * PAGE)) > 0);
    return unused;
}
static void beside(void) {
    pthread_t all[3];
    stored_to = memory(8 * PAGE);
    CHECK(maps(stored_to, 0, 4));
    munmap(stored_to + 4 * PAGE, 4 * PAGE);
    *(long *)stored_to = 0;
    pthread_create(&all[0], NULL, storing, NULL);
    pthread_create(&all[1], NULL, reading_on, NULL);
    pthread_create(&all[2], NULL, reading_on, NULL);
    int own = memfd_create("own", 0);
    CHECK(pwrite(own, "own", 3, 0) == 3);
    for (int round = 0; round < 200; round++) {
        mremap(stored_to, 4 * PAGE + (size_t)(round % 2) * PAGE, 4 * PAGE + (size_t)((round + 1) % 2) * PAGE, 0);
        pid_t child = fork();
        if (child == 0) {
            /* Numbers that the program may have: none of the cache's. */
            char path[64], name[4096];
            int seen = 0;
            for (int fd = 0; fd < 60; fd++) {
                snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
                ssize_t length = readlink(path, name, sizeof name - 1);
                name[length < 0 ? 0 : length] = 0;
                seen += strstr(name, "cache/") != NULL;
            }
            _exit(seen);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (int fd = 20; fd < 26; fd++) {
            char back[4] = "";
            CHECK(dup2(own, fd) == fd && pread(fd, back, 3, 0) == 3 && strcmp(back, "own") == 0 && close(fd) == 0);
        }
    }
    over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(all[i], NULL);
    struct stat is;
    CHECK(fstat(own, &is) == 0 && is.st_size == 3);
    CHECK(*(long *)stored_to > 0 && is_right(stored_to + 8, 8, 4 * PAGE - 8, 0));
}

/* The first thread ends; the other one reads in order, and leaves locked memory alone. */
static void *without_first(void *unused) {
    usleep(200000);
    char *buffer = memory(8 * PAGE);
    for (size_t at = 0; at < 32; at++)
        CHECK(reads(buffer + 4 * PAGE, at * PAGE, PAGE));
    CHECK(mlock(buffer, 4 * PAGE) == 0 && locked() == 8192 && reads(buffer, 0, 4 * PAGE) && locked() == 8192);
    printf("%s", failures ? "" : "right\n");
    fflush(stdout);
    return unused;
}

/* A thread that serves the page faults of a read's buffer reads the same file. */
static int faults_come, fault_file;
static char *served;
static void *serving(void *unused) {
    static char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg fault;
    while (read(faults_come, &fault, sizeof fault) == sizeof fault) {
        size_t at = fault.arg.pagefault.address / 4096 * 4096;
        if (pread(fault_file, page, 4096, (off_t)(at - (size_t)served)) != 4096)
            _exit(9);
        struct uffdio_copy copy = {.dst = at, .src = (size_t)page, .len = 4096};
        ioctl(faults_come, UFFDIO_COPY, &copy);
    }
    return unused;
}
static void faults_served(void) {
    pthread_t thread;
    fault_file = file("faults", PAGE / 2, 0);
    faults_come = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    served = memory(4 * PAGE);
    struct uffdio_register area = {.range = {(size_t)served, 4 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(faults_come, UFFDIO_API, &api) == 0 && ioctl(faults_come, UFFDIO_REGISTER, &area) == 0);
    pthread_create(&thread, NULL, serving, NULL);
    alarm(60);
    CHECK(pread(fault_file, served, 65536, 0) == 65536 && is_right(served, 0, 65536, 0));
}

/* What has moved, and is of a cache that is unmounted meanwhile. */
static void unmounted(const char *command) {
    char *buffer = memory(8 * PAGE), *target = memory(8 * PAGE);
    CHECK(maps(buffer, 0, 4));
    CHECK(mremap(buffer, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK(system(command) == 0 && is_right(target, 0, 4 * PAGE, 0));
    CHECK(madvise(target, 4 * PAGE, MADV_DONTNEED) == 0 && is_all(target, 4 * PAGE, 0));
    CHECK(pread(data, target, 4 * PAGE, 0) == 4 * (ssize_t)PAGE && is_right(target, 0, 4 * PAGE, 0));
}

/* In another root there is no /proc, nor for children. */
static void chrooted(void) {
    char *buffer = memory(8 * PAGE), *other = memory(8 * PAGE), path[4096];
    CHECK(maps(buffer, 0, 4));
    snprintf(path, sizeof path, "/dev/shm/attached-root-%d", getpid());
    CHECK(mkdir(path, 0700) == 0 && chroot(path) == 0 && chdir("/") == 0 && access("/proc", F_OK) == -1);
    for (int generation = 0; generation < 2; generation++) {
        CHECK(reads(other, 0, 4 * PAGE));
        CHECK(madvise(buffer + generation * PAGE, PAGE, MADV_DONTNEED) == 0 && is_all(buffer + generation * PAGE, PAGE, 0));
        CHECK(is_right(buffer + 2 * PAGE, 2 * PAGE, 2 * PAGE, 0));
        pid_t child = fork();
        if (child != 0) {
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            break;
        }
    }
}

/* Each reason for a copy, before the first read and between two. */
static void reason(const char *name) {
    char *buffer = memory(8 * PAGE);
    if (strcmp(name, "short") == 0) {
        CHECK(reads(buffer, 0, 4096) && reads(buffer + 4096, 4096, PAGE + 4096));
    } else if (strcmp(name, "incongruent") == 0) {
        CHECK(reads(buffer + 1, 0, 3 * PAGE));
    } else if (strcmp(name, "shared-mapping") == 0) {
        int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
        mmap(buffer, 4 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(reads(buffer, 0, 4 * PAGE));
        pid_t child = fork();
        if (child == 0) {
            CHECK(reads(buffer, 0, 4 * PAGE));
            memset(buffer, 5, 4 * PAGE);
            _exit(failures);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0 && is_all(buffer, 4 * PAGE, 5));
        CHECK(reads(buffer, 0, 4 * PAGE));
    } else if (strcmp(name, "file-mapping") == 0) {
        int own = memfd_create("own", 0);
        CHECK(ftruncate(own, 4 * PAGE) == 0);
        mmap(buffer, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, own, 0);
        CHECK(reads(buffer, 0, 4 * PAGE));
        CHECK(madvise(buffer, 4 * PAGE, MADV_DONTNEED) == 0 && is_all(buffer, 4 * PAGE, 0));
    } else if (strcmp(name, "executable") == 0) {
        CHECK(mprotect(buffer, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE));
    } else if (strcmp(name, "stack") == 0) {
        char *top = alloca(3 * PAGE), *page = (char *)(((size_t)top + PAGE - 1) / PAGE * PAGE);
        CHECK(reads(page, 0, PAGE) && attached(page, PAGE) == 0);
    } else if (strcmp(name, "locked") == 0) {
        CHECK(mlock(buffer, 4 * PAGE) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
        char *other = memory(4 * PAGE);
        CHECK(reads(other, 0, 4 * PAGE) && attached(other, 4 * PAGE) == 4);
        CHECK(mlock(other, 4 * PAGE) == 0 && reads(other, 0, 4 * PAGE) && reads(other, PAGE, 3 * PAGE));
        CHECK(munlock(other, 4 * PAGE) == 0 && munlock(buffer, 4 * PAGE) == 0);
        char *third = memory(8 * PAGE);
        CHECK(maps(third, 0, 4));
        CHECK(mlockall(MCL_FUTURE) == 0);
        CHECK(reads(third, 0, 4 * PAGE));
        char *fourth = memory(4 * PAGE);
        CHECK(reads(fourth, 0, 4 * PAGE) && attached(fourth, 4 * PAGE) == 0);
        CHECK(munlockall() == 0);
    } else if (strcmp(name, "not-inherited") == 0 || strcmp(name, "not-dumped") == 0) {
        int is_dumped = strcmp(name, "not-inherited") == 0;
        CHECK(madvise(buffer, 4 * PAGE, is_dumped ? MADV_DONTFORK : MADV_DONTDUMP) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
        char *other = memory(4 * PAGE);
        CHECK(reads(other, 0, 4 * PAGE) && attached(other, 4 * PAGE) == 4);
        CHECK(madvise(other, 4 * PAGE, is_dumped ? MADV_WIPEONFORK : MADV_DONTDUMP) == 0);
        CHECK(reads(other, 0, 4 * PAGE) && reads(other + 1, 1, 3 * PAGE));
        if (is_dumped) {
            pid_t child = fork();
            if (child == 0) {
                unsigned char in;
                CHECK(mincore(buffer, 4096, &in) == -1 && errno == ENOMEM && is_all(other, 4 * PAGE, 0));
                _exit(failures);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0 && is_right(other + 1, 1, 3 * PAGE, 0));
        }
    } else if (strcmp(name, "memory-policy") == 0) {
        unsigned long nodes = 1;
        CHECK(syscall(SYS_mbind, buffer, 4 * PAGE, 2, &nodes, 64UL, 0) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "protection-key") == 0) {
        int key = pkey_alloc(0, 0);
        if (key < 0) {
            printf("no protection keys\n");
            return;
        }
        CHECK(pkey_mprotect(buffer, 4 * PAGE, PROT_READ | PROT_WRITE, key) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "userfaultfd") == 0) {
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
        CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
        memset(buffer, 1, 4 * PAGE);
        struct uffdio_register area = {.range = {(size_t)buffer, 4 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        char *other = memory(4 * PAGE);
        CHECK(reads(other, 0, 4 * PAGE) && attached(other, 4 * PAGE) == 4);
        CHECK(ioctl(fd, UFFDIO_REGISTER, &area) == 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "huge-mapping") == 0) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT);
        char *huge = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (huge == MAP_FAILED) {
            printf("no huge pages of hugetlb\n");
            return;
        }
        CHECK(reads(huge, 0, 4 * PAGE) && attached(huge, 4 * PAGE) <= 1);
    } else if (strcmp(name, "device") == 0) {
        CHECK(open("/dev/fuse", O_RDWR) >= 0);
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "small-pages") == 0) {
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "unchecked") == 0) {
        /* Many mappings take long to look at. */
        char *many = memory(4096 * 4096), *other = memory(PAGE);
        for (size_t at = 0; at < 4096; at += 2)
            mprotect(many + at * 4096, 4096, PROT_READ);
        for (int round = 0; round < 64; round++)
            CHECK(mlock(other, 4096) == 0 && munlock(other, 4096) == 0 && reads(buffer, 0, 4 * PAGE + (size_t)round * 16));
    } else if (strcmp(name, "kernel") == 0) {
        /* Sealed memory. */
        long sealed = raw(462, (long)buffer, 4 * PAGE, 0, 0, 0, 0);
        CHECK(sealed == 0 && reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 0);
    } else if (strcmp(name, "rewritten") == 0) {
        CHECK(reads(buffer, 0, 4 * PAGE) && attached(buffer, 4 * PAGE) == 4);
        memset(buffer, 1, 4 * PAGE);
        CHECK(reads(buffer, 0, 4 * PAGE));
    } else {
        CHECK(!"a reason that is known");
    }
}

/* What the kernel takes to be in a registered buffer: it writes that to a file. */
static int is_in_ring(int ring, const struct io_uring_params *is, const char *buffer, size_t length) {
    int own = memfd_create("own", 0);
    size_t size = is->sq_off.array + is->sq_entries * sizeof(unsigned);
    char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(queue != MAP_FAILED && entry != MAP_FAILED);
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_WRITE_FIXED, .fd = own, .addr = (size_t)buffer, .len = (unsigned)length};
    ((unsigned *)(queue + is->sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(queue + is->sq_off.tail), 1, __ATOMIC_RELEASE);
    CHECK(raw(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    char *back = malloc(length);
    CHECK(pread(own, back, length, 0) == (ssize_t)length);
    int same = memcmp(back, buffer, length) == 0;
    free(back);
    close(own);
    return same;
}

/* Buffers that were registered before are left alone: the kernel sees in them what was read. */
static void ring(int later, int is_seen) {
    struct io_uring_params parameters = {0};
    int ring = (int)raw(SYS_io_uring_setup, 4, (long)&parameters, 0, 0, 0, 0);
    if (ring < 0) {
        printf("no io_uring\n");
        return;
    }
    char *buffer = memory(8 * PAGE), *other = memory(8 * PAGE);
    struct iovec one = {buffer, 4 * PAGE};
    memset(buffer, 1, 5 * PAGE);
    if (later)
        CHECK(reads(other, 0, 4 * PAGE));
    CHECK(raw(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, (long)&one, 1, 0, 0) == 0);
    CHECK(reads(buffer, PAGE, 4 * PAGE + 16) && reads(other, 0, 4 * PAGE + 32));
    CHECK(is_seen ? attached(buffer, 4 * PAGE) == 0 : attached(buffer, 4 * PAGE) == 4);
    CHECK(is_in_ring(ring, &parameters, buffer, 4096) == is_seen);
}

/* A copy over attached pages makes no page twice. */
static void copies(void) {
    char *buffer = memory(8 * PAGE), path[4096];
    snprintf(path, sizeof path, "/dev/shm/copied-%d", getpid());
    int own = open(path, O_RDWR | O_CREAT, 0600);
    char *bytes = memory(4 * PAGE);
    memset(bytes, 9, 4 * PAGE);
    CHECK(unlink(path) == 0 && pwrite(own, bytes, 4 * PAGE, 0) == 4 * (ssize_t)PAGE);
    for (int way = 0; way < 4; way++) {
        CHECK(maps(buffer, 0, 4));
        long before = faults();
        if (way == 0)
            CHECK(pread(data, buffer + 7, 4 * PAGE, 0) == 4 * (ssize_t)PAGE);
        else if (way == 1)
            CHECK(pread(own, buffer, 4 * PAGE, 0) == 4 * (ssize_t)PAGE);
        else if (way == 2)
            CHECK(read(own, buffer, 4 * PAGE) == 4 * (ssize_t)PAGE);
        else
            CHECK(pread(own, buffer, 8 * PAGE, (off_t)(2 * PAGE)) == 2 * (ssize_t)PAGE);
        long made = faults() - before;
        size_t pages = (way == 3 ? 2 : 4) * PAGE / 4096;
        CHECK(made < (long)pages + 32);
        if (made >= (long)pages + 32)
            printf("way %d: %ld faults\n", way, made);
        if (way == 0)
            CHECK(is_right(buffer + 7, 0, 4 * PAGE, 0));
        else if (way < 3)
            CHECK(is_all(buffer, 4 * PAGE, 9));
        else
            CHECK(is_all(buffer, 2 * PAGE, 9) && is_right(buffer + 2 * PAGE, 2 * PAGE, 2 * PAGE, 0));
        munmap(buffer, 8 * PAGE);
        buffer = memory(8 * PAGE);
    }
}

/* Who stores to all that it reads is copied to, soon. */
static void rewrites(int anew) {
    int mapped = 0, early = 0;
    char *buffer = memory(4 * PAGE);
    for (int round = 0; round < 400; round++) {
        if (anew) {
            munmap(buffer, 4 * PAGE);
            buffer = memory(4 * PAGE);
        }
        CHECK(pread(data, buffer, 2 * PAGE, 0) == 2 * (ssize_t)PAGE);
        size_t now = attached(buffer, 2 * PAGE);
        mapped += now != 0;
        early += now != 0 && round < 64;
        CHECK(is_right(buffer, 0, 4096, 0));
        memset(buffer, round, 2 * PAGE);
    }
    /* In the same buffer the mapping stays, with pages of the program's own. */
    CHECK(!anew || early == 1 && mapped <= 3);
    if (anew && mapped > 3)
        printf("%d of 400, %d early\n", mapped, early);
    /* Another length, and one that keeps what it reads. */
    char *kept = memory(4 * PAGE);
    for (int round = 0; round < 20; round++)
        CHECK(reads(kept, 0, 3 * PAGE) && attached(kept, 3 * PAGE) == 3);
}

static void many(size_t count) {
    char *all = mmap(NULL, (count + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(all != MAP_FAILED);
    char *start = (char *)(((size_t)all + PAGE - 1) / PAGE * PAGE);
    for (size_t at = 0; at < count; at++) {
        if (pread(data, start + at * PAGE, PAGE, (off_t)(at % 8 * PAGE)) != (ssize_t)PAGE) {
            CHECK(!"read");
            break;
        }
        if (at % 1000 == 0) {
            void *more = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(more != MAP_FAILED && mprotect(start + at * PAGE, 4096, PROT_READ) == 0);
        }
        if (at >= 17000)
            /* The memory of copies. */
            madvise(start + at * PAGE, PAGE, MADV_DONTNEED);
    }
    size_t mapped = attached(start, count * PAGE);
    CHECK(mapped > 16000 && mapped < 17000);
    /* What is freed makes room, though nobody tells. */
    CHECK(raw(SYS_munmap, (long)start, 8192 * PAGE, 0, 0, 0, 0) == 0);
    char *buffer = memory(8 * PAGE);
    int found = 0;
    for (int round = 0; round < 2000 && !found; round++) {
        CHECK(pread(data, buffer, 4 * PAGE, 0) == 4 * (ssize_t)PAGE);
        found = attached(buffer, 4 * PAGE) == 4;
        if (!found)
            round += 99;
    }
    CHECK(found && is_right(buffer, 0, 4 * PAGE, 0));
}

static void *thread(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    for (int round = 0; round < 300; round++) {
        size_t pages = 1 + rand_r(&state) % 4, offset = rand_r(&state) % 8 * PAGE;
        char *block = malloc((pages + 1) * PAGE), *start = (char *)(((size_t)block + PAGE - 1) / PAGE * PAGE);
        size_t shift = rand_r(&state) % 4 ? 0 : 1 + rand_r(&state) % 4096;
        CHECK(pread(data, start + shift, (pages - 1) * PAGE + 4096, (off_t)(offset + shift)) == (ssize_t)((pages - 1) * PAGE + 4096));
        CHECK(is_right(start + shift, offset + shift, (pages - 1) * PAGE + 4096, 0));
        if (rand_r(&state) % 3 == 0)
            memset(start, 1, PAGE);
        if (rand_r(&state) % 3 == 0)
            block = realloc(block, (pages + 3) * PAGE);
        free(block);
        block = calloc(1, (1 + rand_r(&state) % 3) * PAGE);
        CHECK(is_all(block, PAGE, 0));
        free(block);
    }
    return NULL;
}

/* Blocks of an allocator that live for a while: read into, attached, stored to, resized, freed. */
static int rounds;
static void *blocks(void *seed) {
    enum { BLOCKS = 12 };
    unsigned state = (unsigned)(size_t)seed;
    struct { char *block; size_t size, shift, offset, length; } all[BLOCKS] = {{0}};
    for (int round = 0; round < rounds; round++) {
        int i = rand_r(&state) % BLOCKS;
        if (all[i].block == NULL) {
            size_t size = (2 + rand_r(&state) % 5) * PAGE + rand_r(&state) % PAGE;
            int is_zero = rand_r(&state) % 3 == 0;
            char *block = is_zero ? calloc(1, size) : malloc(size);
            CHECK(block && (!is_zero || is_all(block, size, 0)));
            size_t shift = (PAGE - (size_t)block % PAGE) % PAGE;
            /* A length of its own: so nothing is remembered of it. */
            size_t length = (size - shift) / PAGE * PAGE - (size_t)round * 8 - (size_t)seed, offset = rand_r(&state) % 8 * PAGE;
            CHECK(reads(block + shift, offset, length));
            all[i].block = block, all[i].size = size, all[i].shift = shift;
            all[i].offset = offset, all[i].length = length;
            continue;
        }
        char *block = all[i].block;
        CHECK(is_right(block + all[i].shift, all[i].offset, all[i].length, 0));
        switch (rand_r(&state) % 4) {
        case 0:
            memset(block, 1, all[i].size);
            CHECK(is_all(block, all[i].size, 1));
            break;
        case 1:
        case 2: {
            size_t size = (1 + rand_r(&state) % 8) * PAGE + rand_r(&state) % PAGE;
            block = realloc(block, size);
            size_t kept = size < all[i].size ? size : all[i].size;
            kept = kept < all[i].shift ? 0 : kept - all[i].shift;
            kept = kept < all[i].length ? kept : all[i].length;
            CHECK(block && is_right(block + all[i].shift, all[i].offset, kept, 0));
            memset(block, 2, size);
            break;
        }
        default:
            break;
        }
        free(block);
        all[i].block = NULL;
    }
    for (int i = 0; i < BLOCKS; i++)
        free(all[i].block);
    return NULL;
}

static void in_threads(void *(*body)(void *)) {
    pthread_t all[4];
    for (size_t i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, body, (void *)(i + 1));
    for (size_t i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
}

int main(int count, char **arguments) {
    const char *name = arguments[1];
    if (strcmp(name, "older") == 0) {
        /* As on a kernel that does not know the request: the rest is a command. */
        unsigned request = (unsigned)strtoul(arguments[2], NULL, 16);
        CHECK(filters(request ? SYS_ioctl : SYS_uname, request, SECCOMP_RET_ERRNO | ENOTTY, 1) == 0);
        execvp(arguments[3], arguments + 3);
        return 1;
    }
    directory = arguments[2];
    data = file("data", SIZE, 0);
    if (strcmp(name, "counts") == 0)
        counts();
    else if (strcmp(name, "keeps") == 0)
        keeps();
    else if (strcmp(name, "comes-and-goes") == 0)
        comes_and_goes();
    else if (strcmp(name, "calls") == 0)
        calls();
    else if (strcmp(name, "ring") == 0)
        ring(0, 1);
    else if (strcmp(name, "ring-later") == 0)
        ring(1, 0);
    else if (strcmp(name, "ring-seen") == 0)
        ring(1, 1);
    else if (strcmp(name, "failures") == 0)
        failures_of();
    else if (strcmp(name, "strict") == 0)
        strict();
    else if (strcmp(name, "sandboxed") == 0)
        sandboxed();
    else if (strcmp(name, "faults-served") == 0)
        faults_served();
    else if (strcmp(name, "unmounted") == 0)
        unmounted(arguments[3]);
    else if (strcmp(name, "without-first") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, without_first, NULL);
        pthread_exit(NULL);
    } else if (strcmp(name, "marked") == 0)
        marked();
    else if (strcmp(name, "marked-elsewhere") == 0)
        marked_elsewhere();
    else if (strcmp(name, "beside") == 0)
        beside();
    else if (strcmp(name, "chrooted") == 0)
        chrooted();
    else if (strcmp(name, "copies") == 0)
        copies();
    else if (strcmp(name, "rewrites") == 0)
        rewrites(0);
    else if (strcmp(name, "rewrites-anew") == 0)
        rewrites(1);
    else if (strcmp(name, "many") == 0)
        many((size_t)atol(arguments[3]));
    else if (strcmp(name, "threads") == 0)
        in_threads(thread);
    else if (strcmp(name, "blocks") == 0) {
        rounds = atoi(arguments[3]);
        in_threads(blocks);
    }
    else
        reason(name);
    printf("%s", failures ? "" : "right\n");
    return failures != 0;
}
