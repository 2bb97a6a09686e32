/* Programs on bad days of a domain. Each page of the file holds its number, plus 1, in all words.
 *
 * days forbid ERRNO PROGRAM...   runs a program whose userfaultfd(2) fails with that error
 * days make FILE MIB             makes the file
 * days look FILE MIB             each page, by read(2) and mapped in four ways: right, or not to be
 *                                had (EIO, SIGBUS); prints how many of each. Never anything else.
 * days hang FILE MIB             touches pages at random until it is ended
 * days calls FILE MIB            the same by pread(2)
 * days dump FILE MIB             aborts with the file mapped
 * days clone FILE MIB            a child by a system call instruction of its own touches all pages
 * days wait FILE MIB             maps it, says where, waits for a line, then checks all pages
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static size_t pages;
static sigjmp_buf gone;
static uint64_t buffer[WORDS];

static void fail(const char *what, size_t page) {
    fprintf(stderr, "%s, page %zu: %s\n", what, page, strerror(errno));
    _exit(1);
}

static void forbid(int number, char **program) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all))
        fail("the filter", 0);
    execvp(program[0], program);
    fail(program[0], 0);
}

static int opened(const char *path, size_t mib, int flags) {
    int file = open(path, flags, 0600);
    pages = mib << 8;
    if (file < 0) fail("opening it", 0);
    return file;
}

static char *mapped(int file, int access, int flags) {
    char *at = mmap(NULL, pages * PAGE, access, flags, file, 0);
    if (at == MAP_FAILED) fail("mapping it", 0);
    return at;
}

static void make(const char *path, size_t mib) {
    int file = opened(path, mib, O_RDWR | O_CREAT);
    for (size_t page = 0; page < pages; page++) {
        for (size_t at = 0; at < WORDS; at++) buffer[at] = page + 1;
        if (write(file, buffer, PAGE) != PAGE) fail("writing", page);
    }
}

static void check(const char *what, const char *at, size_t page) {
    for (size_t word = 0; word < WORDS; word++) {
        uint64_t found;
        memcpy(&found, at + word * 8, 8);
        if (found == page + 1) continue;
        fprintf(stderr, "%s, page %zu: %lu, not %zu\n", what, page, found, page + 1);
        _exit(1);
    }
}

static void on_gone(int signal) {
    (void)signal;
    siglongjmp(gone, 1);
}

static void look(const char *path, size_t mib) {
    int file = opened(path, mib, O_RDONLY), writable = opened(path, mib, O_RDWR);
    const char *kinds[] = {"read only", "shared", "private", "private and written"};
    char *maps[] = {
        mapped(file, PROT_READ, MAP_SHARED),
        mapped(writable, PROT_READ | PROT_WRITE, MAP_SHARED),
        mapped(file, PROT_READ, MAP_PRIVATE),
        mapped(file, PROT_READ | PROT_WRITE, MAP_PRIVATE),
    };
    struct sigaction action = {.sa_handler = on_gone, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    size_t right = 0;
    static size_t lost;
    for (size_t page = 0; page < pages; page++) {
        ssize_t got = pread(file, buffer, PAGE, (off_t)(page * PAGE));
        if (got == PAGE) {
            check("by a call", (char *)buffer, page);
            right++;
        } else if (got >= 0 || errno != EIO) {
            fail("reading", page);
        } else {
            lost++;
        }
        for (volatile size_t kind = 0; kind < 4; kind++) {
            if (sigsetjmp(gone, 0)) {
                if (got == PAGE) fail("a page that was just read", page);
                continue;
            }
            check(kinds[kind], maps[kind] + page * PAGE, page);
            if (kind == 3) maps[kind][page * PAGE] = (char)(page + 1);
        }
    }
    printf("%zu right, %zu not to be had\n", right, lost);
}

static void hang(const char *path, size_t mib, int by_calls) {
    int file = opened(path, mib, O_RDWR);
    char *map = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED);
    printf("begins\n");
    fflush(stdout);
    for (uint64_t seed = 1;;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t page = (seed >> 33) % pages;
        if (!by_calls) {
            check("mapped", map + page * PAGE, page);
        } else if (pread(file, buffer, PAGE, (off_t)(page * PAGE)) == PAGE) {
            check("by a call", (char *)buffer, page);
        }
    }
}

static void wait_and_check(const char *path, size_t mib, int aborts) {
    int file = opened(path, mib, O_RDWR);
    char *map = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED);
    printf("%p\n", (void *)map);
    fflush(stdout);
    if (aborts) abort();
    if (read(0, buffer, 1) != 1) fail("waiting", 0);
    for (size_t page = 0; page < pages; page++) check("mapped", map + page * PAGE, page);
    printf("all is right\n");
}

/* Past the library, which hears nothing of it. */
static long raw_clone(void) {
#ifdef __x86_64__
    long made;
    __asm__ volatile("xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; syscall"
                     : "=a"(made)
                     : "a"(SYS_clone), "D"((long)SIGCHLD), "S"(0L)
                     : "rcx", "r11", "rdx", "r10", "r8", "memory");
    return made;
#else
    return fork();
#endif
}

static void cloned(const char *path, size_t mib) {
    char *map = mapped(opened(path, mib, O_RDWR), PROT_READ | PROT_WRITE, MAP_SHARED);
    for (size_t page = 0; page < 100; page++) check("ahead", map + page * PAGE, page);
    long child = raw_clone();
    if (child < 0) fail("the child", 0);
    for (size_t page = 0; page < pages; page++) check("mapped", map + page * PAGE, page);
    if (child == 0) _exit(0);
    int status;
    if (waitpid((pid_t)child, &status, 0) != child) fail("waiting", 0);
    int ended = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    printf("the child ended by %d\n", ended);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    size_t mib = strtoul(argv[3], NULL, 10);
    if (!strcmp(argv[1], "forbid")) forbid(atoi(argv[2]), argv + 3);
    if (!strcmp(argv[1], "make")) make(argv[2], mib);
    if (!strcmp(argv[1], "look")) look(argv[2], mib);
    if (!strcmp(argv[1], "hang")) hang(argv[2], mib, 0);
    if (!strcmp(argv[1], "calls")) hang(argv[2], mib, 1);
    if (!strcmp(argv[1], "dump")) wait_and_check(argv[2], mib, 1);
    if (!strcmp(argv[1], "clone")) cloned(argv[2], mib);
    if (!strcmp(argv[1], "wait")) wait_and_check(argv[2], mib, 0);
    return 0;
}
