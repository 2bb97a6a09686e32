// Mapped files with holes, and what lies beyond their ends: pages come when they are touched, by whom and
// where ever; beyond the end it is SIGBUS.
#include "say.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static sigjmp_buf back;
static volatile int code;
static char *volatile place;

static void on_fault(int signal, siginfo_t *info, void *context) {
    code = signal * 100 + info->si_code;
    siglongjmp(back, info->si_addr == place ? 1 : 2);
}

// How a touch ends: 0, or the signal and its code.
static int touch(char *at, int writes) {
    place = at;
    switch (sigsetjmp(back, 1)) {
    case 0:
        if (writes) *(volatile char *)at = 'w';
        else (void)*(volatile char *)at;
        return 0;
    case 1: return code;
    default: return -code;
    }
}

static void catch(int flags) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | flags};
    SAY(sigaction(SIGBUS, &action, NULL));
    SAY(sigaction(SIGSEGV, &action, NULL));
}

static int sparse(const char *name, off_t size) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (ftruncate(fd, size) != 0) printf("ftruncate failed\n");
    return fd;
}

static char *map_all(int fd, size_t size, int prot, int flags) {
    char *map = mmap(NULL, size, prot, flags, fd, 0);
    if (map == MAP_FAILED) printf("mmap: %s\n", strerror(errno));
    return map;
}

static long blocks(int fd) {
    struct stat stat;
    return fstat(fd, &stat) == 0 ? stat.st_blocks : -1;
}

static int child(void (*run)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        run();
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static char *shared;

static void stores(void) {
    strcpy(shared + 9 * MIB, "by the child");
    strcpy(shared + 20 * MIB + 5000, "and there");
}

static void grows(void) {
    int fd = open("grown", O_RDWR);
    if (ftruncate(fd, 5 * MIB) != 0 || pwrite(fd, "grown by another", 16, 4 * MIB) != 16) _exit(1);
}

static void dies(void) {
    signal(SIGBUS, SIG_DFL);
    shared[3 * MIB] = 1;
}

static void sees_holes(void) {
    int fd = sparse("holes", 64 * MIB);
    char *map = shared = map_all(fd, 64 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    SAY(blocks(fd));
    SAY(map[0] + map[30 * MIB + 77]);
    map[5] = 'a';
    map[63 * MIB + 5] = 'z';
    strcpy(map + 17 * MIB - 4, "over an edge");
    char text[32] = {0};
    SAY(pread(fd, text, 13, 17 * MIB - 4));
    SAY_TEXT(text);
    SAY(pread(fd, text, 1, 5) + pread(fd, text + 1, 1, 63 * MIB + 5));
    SAY(text[0] * 1000 + text[1]);
    SAY(child(stores));
    SAY_TEXT(map + 9 * MIB);
    SAY_TEXT(map + 20 * MIB + 5000);
    // Written by a call where a mapping has a hole, and seen through it.
    SAY(pwrite(fd, "by a call", 10, 40 * MIB + 100));
    SAY_TEXT(map + 40 * MIB + 100);
    char *second = map_all(fd, 64 * MIB, PROT_READ, MAP_SHARED);
    SAY_TEXT(second + 17 * MIB - 4);
    strcpy(map + 50 * MIB, "both");
    SAY_TEXT(second + 50 * MIB);
    SAY(touch(second + 51 * MIB, 0));
    SAY(touch(second + 51 * MIB, 1));
    long sum = 0;
    for (long at = 0; at < 64 * MIB; at += PAGE) sum += map[at];
    SAY(sum);
    SAY(munmap(second, 64 * MIB));
    SAY(msync(map, 64 * MIB, MS_SYNC));
    SAY(munmap(map, 64 * MIB));
    close(fd);
}

static void ends(void) {
    int fd = sparse("grown", PAGE + 100);
    char *map = shared = map_all(fd, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    SAY(touch(map + PAGE + 200, 1));
    SAY(touch(map + 2 * PAGE, 0));
    SAY(touch(map + 3 * MIB, 1));
    SAY(WTERMSIG(child(dies)));
    SAY(child(grows));
    SAY_TEXT(map + 4 * MIB);
    SAY(touch(map + 5 * MIB - 1, 1));
    SAY(touch(map + 5 * MIB, 1));
    SAY(ftruncate(fd, 6 * MIB));
    SAY(touch(map + 5 * MIB, 1));
    SAY(pwrite(fd, "written", 8, 7 * MIB));
    SAY_TEXT(map + 7 * MIB);
    SAY(ftruncate(fd, 2 * MIB));
    SAY(touch(map + 2 * MIB - 1, 1));
    SAY(touch(map + 2 * MIB, 0));
    SAY(touch(map + 5 * MIB, 1));
    SAY(ftruncate(fd, 8 * MIB));
    SAY(map[5 * MIB] + map[4 * MIB] + map[7 * MIB]);
    SAY(map[2 * MIB - 1]);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
    SAY(map[2 * MIB - 1]);
    map[2 * MIB - 1] = 'p';
    SAY(pread(fd, map + 6 * MIB, 1, 2 * MIB - 1));
    SAY(map[6 * MIB]);
    SAY(munmap(map, 8 * MIB));
    close(fd);
}

static void calls(void) {
    int fd = sparse("calls", 32 * MIB), ends[2], pair[2];
    char *map = map_all(fd, 32 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    SAY(pipe(ends));
    SAY(write(ends[1], "through a pipe", 15));
    SAY(read(ends[0], map + 3 * MIB - 3, 15));
    SAY_TEXT(map + 3 * MIB - 3);
    SAY(write(ends[1], map + 6 * MIB, 100));
    SAY(read(ends[0], map + 7 * MIB, 1000));
    struct iovec parts[2] = {{map + 9 * MIB, 3}, {map + 12 * MIB, 10}};
    SAY(write(ends[1], "vectors", 8));
    SAY(readv(ends[0], parts, 2));
    SAY_TEXT(map + 12 * MIB);
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(send(pair[0], map + 14 * MIB, 5, 0) + send(pair[0], "sent", 5, 0));
    SAY(recv(pair[1], map + 16 * MIB, 10, MSG_WAITALL));
    SAY_TEXT(map + 16 * MIB + 5);
    // A file of the volume read into a hole of another one, across pages that are not there.
    int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 300; i++) SAY(i % 100 || write(other, map + 9 * MIB, PAGE) == PAGE);
    SAY(pwrite(other, "read here", 10, 1000000));
    SAY(pread(other, map + 20 * MIB + 100, 300 * PAGE, 0));
    SAY_TEXT(map + 20 * MIB + 100 + 1000000);
    SAY(pwrite(other, map + 26 * MIB, 3 * MIB, 0));
    SAY(fstat(other, (struct stat *)(map + 30 * MIB)));
    SAY(((struct stat *)(map + 30 * MIB))->st_size);
    SAY(access(map + 31 * MIB, F_OK));
    SAY(getcwd(map + 31 * MIB + PAGE, PAGE) == map + 31 * MIB + PAGE);
    // The last page of the file, and behind it.
    SAY(ftruncate(fd, 31 * MIB));
    SAY(write(ends[1], "nowhere", 8));
    SAY(read(ends[0], map + 31 * MIB, 8));
    SAY(pread(other, map + 31 * MIB, 8, 0));
    SAY(pread(other, map + 31 * MIB - 4, 8, 0));
    SAY(munmap(map, 32 * MIB));
    close(fd);
    close(other);
}

static void changes(void) {
    int fd = sparse("changes", 16 * MIB);
    char *map = map_all(fd, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    map[MIB] = 'm';
    map = mremap(map, 4 * MIB, 16 * MIB, MREMAP_MAYMOVE);
    WORKS(map);
    map[15 * MIB] = 'n';
    SAY(map[MIB] + map[9 * MIB]);
    char *twin = mremap(map, 0, 16 * MIB, MREMAP_MAYMOVE);
    WORKS(twin);
    SAY(twin[15 * MIB]);
    SAY(munmap(twin, 16 * MIB));
    map = mremap(map, 16 * MIB, 8 * MIB, 0);
    SAY((long)mremap(map + 100, 8 * MIB, 8 * MIB, 0));
    SAY((long)mremap(map, 8 * MIB, 0, 0));
    char *room = mmap(NULL, 32 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(mremap(map, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, room + MIB) == room + MIB);
    map = room + MIB;
    SAY(map[15 * MIB]);
    SAY(touch(map + 11 * MIB, 1));
    // A part that is only read, inside of one that is written.
    SAY(mprotect(map + 4 * MIB, 2 * MIB, PROT_READ));
    SAY(touch(map + 4 * MIB, 0));
    SAY(touch(map + 4 * MIB, 1));
    SAY(touch(map + 5 * MIB, 1));
    SAY(touch(map + 6 * MIB, 1));
    SAY(mprotect(map, 16 * MIB, PROT_NONE));
    SAY(touch(map + MIB, 0));
    SAY(touch(map + 8 * MIB, 0));
    SAY(mprotect(map, 16 * MIB, PROT_READ | PROT_WRITE));
    SAY(touch(map + 4 * MIB, 1));
    SAY(touch(map + 8 * MIB, 1));
    SAY(map[MIB]);
    SAY(munmap(map + 7 * MIB, 2 * MIB));
    SAY(touch(map + 7 * MIB, 1));
    SAY(touch(map + 9 * MIB, 1));
    SAY(mmap(map, MIB, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 15 * MIB) == map);
    SAY(map[0]);
    SAY(touch(map, 1));
    SAY(touch(map + MIB, 1));
    SAY(msync(map + 100, MIB, MS_SYNC));
    SAY(msync(map, MIB, MS_SYNC | MS_ASYNC));
    SAY(msync(map, 8 * MIB, MS_SYNC));
    SAY(msync(map, 6 * MIB, MS_ASYNC));
    SAY(munmap(map, 16 * MIB));
    close(fd);
}

static void advice(void) {
    int fd = sparse("advice", 8 * MIB);
    char *map = map_all(fd, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    SAY(madvise(map, 8 * MIB, MADV_WILLNEED));
    SAY(blocks(fd));
    SAY(madvise(map, 2 * MIB, MADV_POPULATE_WRITE));
    SAY(blocks(fd) >= 2 * MIB / 512);
    strcpy(map + 5 * MIB, "kept");
    SAY(madvise(map, 8 * MIB, MADV_DONTNEED));
    SAY_TEXT(map + 5 * MIB);
    SAY(madvise(map + 8 * MIB, MIB, MADV_POPULATE_READ));
    SAY(madvise(map + 5 * MIB, PAGE, MADV_REMOVE));
    SAY(map[5 * MIB]);
    SAY(madvise(map + 5 * MIB + 1, PAGE, MADV_REMOVE));
    SAY(munmap(map, 16 * MIB));
    map = map_all(fd, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
    SAY(blocks(fd) >= 8 * MIB / 512);
    SAY(munmap(map, 8 * MIB));
    // Real DAX grants it.
    void *sync = mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    SAY(sync == MAP_FAILED ? errno == EOPNOTSUPP : munmap(sync, PAGE) == 0);
    int reader = open("advice", O_RDONLY);
    map = map_all(reader, 8 * MIB, PROT_READ, MAP_SHARED);
    SAY(madvise(map, PAGE, MADV_REMOVE));
    SAY(munmap(map, 8 * MIB));
    close(reader);
    close(fd);
}

static void privately(void) {
    int fd = sparse("private", 2 * MIB);
    char *map = map_all(fd, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    SAY(map[MIB]);
    strcpy(map + MIB, "only here");
    SAY(touch(map + 2 * MIB, 0));
    SAY(ftruncate(fd, 4 * MIB));
    SAY(pwrite(fd, "grown", 6, 3 * MIB));
    SAY_TEXT(map + 3 * MIB);
    strcpy(map + 3 * MIB + PAGE, "mine");
    SAY(touch(map + 4 * MIB, 1));
    char *moved = mremap(map, 8 * MIB, 12 * MIB, MREMAP_MAYMOVE);
    WORKS(moved);
    SAY_TEXT(moved + MIB);
    SAY_TEXT(moved + 3 * MIB);
    SAY_TEXT(moved + 3 * MIB + PAGE);
    SAY(touch(moved + 4 * MIB, 1));
    SAY(ftruncate(fd, 9 * MIB));
    SAY(touch(moved + 8 * MIB, 1));
    SAY(pread(fd, moved, 1, MIB));
    SAY(moved[0]);
    SAY(munmap(moved, 12 * MIB));
    close(fd);
}

enum { THREADS = 4, STORES = 400 };

static void *worker(void *number) {
    long own = (long)number, seed = own * 7919 + 1;
    for (int i = 0; i < STORES; i++) {
        seed = (seed * 1103515245 + 12345) & 0x7fffffff;
        long at = seed % (48 * MIB / PAGE) * PAGE + own * 8;
        *(volatile long *)(shared + at) = at + 1;
        free(malloc(100 + i));
    }
    return NULL;
}

enum { FILLS = 40 };

static void *filler(void *number) {
    for (long at = 0; at < 8 * MIB; at += 64 * PAGE) *(volatile long *)(shared + at + (long)number * 8) = 1;
    return NULL;
}

// Several threads fill the same holes, the last one too: who comes late finds that it is filled.
static void fills(void) {
    for (int round = 0; round < FILLS; round++) {
        int fd = sparse("fills", 8 * MIB);
        shared = map_all(fd, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
        pthread_t ids[THREADS];
        for (long i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, filler, (void *)i);
        for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
        munmap(shared, 8 * MIB);
        close(fd);
    }
}

static void threads(void) {
    int fd = sparse("threads", 48 * MIB);
    shared = map_all(fd, 48 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    pthread_t ids[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, worker, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    long wrong = 0, found = 0;
    for (long at = 0; at < 48 * MIB; at += 8) {
        long value = *(long *)(shared + at);
        found += value != 0;
        wrong += value != 0 && value != at + 1;
    }
    SAY(found);
    SAY(wrong);
    SAY(munmap(shared, 48 * MIB));
    close(fd);
}

static volatile int handled;

static void in_handler(int signal) {
    shared[handled * 4 * MIB + 17] = 'h';
    handled++;
}

// On the smallest signal stack, with everything blocked, and from inside of malloc's own memory.
static void handlers(void) {
    int fd = sparse("handlers", 32 * MIB);
    shared = map_all(fd, 40 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    static char small[8192];
    stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
    SAY(sigaltstack(&stack, NULL));
    catch(SA_ONSTACK);
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    sigfillset(&action.sa_mask);
    SAY(sigaction(SIGUSR1, &action, NULL));
    struct sigaction now;
    SAY(sigaction(SIGUSR1, NULL, &now));
    SAY(sigismember(&now.sa_mask, SIGBUS));
    for (int i = 0; i < 4; i++) raise(SIGUSR1);
    SAY(handled);
    SAY(shared[12 * MIB + 17]);
    SAY(touch(shared + 33 * MIB, 1));
    SAY(touch(shared + 29 * MIB, 1));
    stack_t after;
    SAY(sigaltstack(NULL, &after));
    SAY(after.ss_sp == small && after.ss_size == sizeof small && after.ss_flags == 0);
    sigset_t mask;
    SAY(sigprocmask(SIG_SETMASK, NULL, &mask));
    SAY(sigismember(&mask, SIGUSR1) + sigismember(&mask, SIGBUS));
    // Blocked, it is as blocked as it was; but pages come.
    sigset_t all, old;
    sigfillset(&all);
    SAY(pthread_sigmask(SIG_SETMASK, &all, &old));
    SAY(sigismember(&old, SIGBUS));
    SAY(sigprocmask(SIG_BLOCK, NULL, &mask));
    SAY(sigismember(&mask, SIGBUS) + sigismember(&mask, SIGUSR1));
    SAY((shared[31 * MIB] = 5));
    sigemptyset(&mask);
    sigaddset(&mask, SIGBUS);
    if (sigsetjmp(back, 1) == 0) {
        raise(SIGBUS);
        SAY(1);
        sigprocmask(SIG_UNBLOCK, &mask, NULL);
        SAY(2);
    }
    SAY(code);
    SAY(sigprocmask(SIG_SETMASK, &old, NULL));
    errno = 77;
    shared[30 * MIB] = 1;
    SAY(errno);
    SAY(munmap(shared, 40 * MIB));
    close(fd);
}

// Blocks that came back to front, in as many pieces, touched from the end on.
static void pieces(void) {
    static char page[PAGE];
    int fd = sparse("pieces", MIB);
    char *map = map_all(fd, MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    for (int at = MIB / PAGE - 1; at >= 0; at--) {
        memset(page, 'a' + at % 26, PAGE);
        if (pwrite(fd, page, PAGE, (off_t)at * PAGE) != PAGE) printf("pwrite failed\n");
    }
    int right = 0;
    for (int at = MIB / PAGE - 1; at >= 0; at--)
        right += touch(map + at * PAGE, 0) == 0 && map[at * PAGE] == 'a' + at % 26;
    SAY(right);
    SAY(munmap(map, MIB));
    SAY(close(fd));
    SAY(unlink("pieces"));
}

static jmp_buf plain;

static void unblocks(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    longjmp(plain, 1);
}

// A handler that unblocks the signal itself and jumps out gets the next one, too.
static void jumps(void) {
    int fd = sparse("jumps", PAGE);
    char *map = map_all(fd, 2 * PAGE, PROT_READ, MAP_SHARED);
    struct sigaction action = {.sa_handler = unblocks}, before;
    SAY(sigaction(SIGBUS, &action, &before));
    volatile int caught = 0;
    for (volatile int i = 0; i < 3; i++) {
        if (_setjmp(plain)) caught++;
        else (void)*(volatile char *)(map + PAGE);
    }
    SAY(caught);
    SAY(sigaction(SIGBUS, &before, NULL));
    SAY(munmap(map, 2 * PAGE));
    SAY(close(fd));
    SAY(unlink("jumps"));
}

// After a child by posix_spawn signals are blocked as before.
static void spawned(void) {
    char *arguments[] = {"true", NULL};
    pid_t child;
    SAY(posix_spawnp(&child, "true", NULL, NULL, arguments, NULL));
    int status = -1;
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    sigset_t set;
    SAY(sigprocmask(SIG_BLOCK, NULL, &set));
    SAY(sigismember(&set, SIGBUS));
}

// What the kernel reads into pages that are not there; no more of them come than are needed.
static void arrives(void) {
    int fd = sparse("arrives", 32 * MIB), ends[2], pair[2];
    char *map = map_all(fd, 32 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    SAY(pipe(ends));
    SAY(write(ends[1], "short", 5));
    SAY(read(ends[0], map, 32 * MIB));
    SAY_TEXT(map);
    SAY(blocks(fd) * 512 <= 2 * MIB);
    SAY(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    SAY(read(ends[0], map + 3 * MIB, 8 * MIB));
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(send(pair[0], "received", 9, 0));
    SAY(recv(pair[1], map + 6 * MIB - 4, 16 * MIB, 0));
    SAY_TEXT(map + 6 * MIB - 4);
    SAY(send(pair[0], "message", 8, 0));
    struct iovec parts[2] = {{map + 9 * MIB, 3}, {map + 12 * MIB, 10 * MIB}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    SAY(recvmsg(pair[1], &message, 0));
    SAY_TEXT(map + 12 * MIB);
    int other = memfd_create("other", 0);
    SAY(ftruncate(other, 3 * PAGE));
    SAY(pwrite(other, "of the kernel's", 16, 2 * PAGE));
    SAY(pread(other, map + 16 * MIB - PAGE, 12 * MIB, PAGE));
    SAY_TEXT(map + 16 * MIB);
    SAY(lseek(other, 2 * PAGE, SEEK_SET));
    SAY(read(other, map + 18 * MIB, 12 * MIB));
    SAY(blocks(fd) * 512 <= 16 * MIB);
    // Structures, over an edge of two pages, too.
    struct stat *stat_at = (struct stat *)(map + 22 * MIB + PAGE - 40);
    SAY(stat("/", stat_at));
    SAY(stat_at->st_mode & S_IFMT);
    SAY(fstat(other, (struct stat *)(map + 24 * MIB)));
    SAY(((struct stat *)(map + 24 * MIB))->st_size);
    SAY(readlink("/proc/self/nothing", map + 26 * MIB, 100));
    SAY(getrandom(map + 26 * MIB, 3 * PAGE, 0));
    SAY(mlock(map + 28 * MIB, PAGE));
    SAY(map[28 * MIB]);
    SAY(pread(other, map + 33 * MIB, 1, 0));
    SAY(munmap(map, 32 * MIB));
    close(other);
    close(fd);
}

static volatile int came;

static void comes(int signal) {
    came = came * 100 + signal;
    if (signal != SIGBUS) shared[(came % 97 + 1) * 2 * MIB] = 1;
}

static int blocked(int signal) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    return sigismember(&set, signal);
}

static int pending(int signal) {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, signal);
}

static void blocks_it(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigprocmask(SIG_BLOCK, &set, NULL);
    came = came * 100 + blocked(SIGBUS);
}

static void *born(void *unused) {
    SAY(blocked(SIGBUS));
    shared[200 * MIB] = 1;
    SAY(raise(SIGBUS));
    SAY(pending(SIGBUS));
    SAY(pending(SIGUSR1));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    struct timespec none = {0};
    siginfo_t info;
    SAY(sigtimedwait(&set, &info, &none));
    SAY(info.si_code == SI_TKILL);
    SAY(pending(SIGBUS));
    SAY(sigtimedwait(&set, &info, &none));
    int number = 0;
    SAY(raise(SIGBUS));
    SAY(sigwait(&set, &number));
    SAY(number);
    return NULL;
}

// Masks that have SIGBUS in them: those of handlers, waits and new threads.
static void masks(void) {
    int fd = sparse("masks", 256 * MIB);
    shared = map_all(fd, 256 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    struct sigaction action = {.sa_handler = blocks_it}, before;
    SAY(sigaction(SIGUSR2, &action, NULL));
    SAY(raise(SIGUSR2));
    SAY(came);
    SAY(blocked(SIGBUS));
    action.sa_handler = comes;
    SAY(sigaction(SIGUSR1, &action, NULL));
    SAY(sigaction(SIGBUS, &action, &before));
    sigset_t all, some, old;
    sigfillset(&all);
    SAY(pthread_sigmask(SIG_SETMASK, &all, &old));
    pthread_t thread;
    // Not said: the thread may say something before this one does.
    pthread_create(&thread, NULL, born, NULL);
    SAY(pthread_join(thread, NULL));
    // A handler that runs while a wait has SIGBUS blocked.
    SAY(raise(SIGUSR1));
    some = all;
    sigdelset(&some, SIGUSR1);
    came = 0;
    SAY(sigsuspend(&some));
    SAY(came);
    SAY(raise(SIGUSR1));
    SAY(ppoll(NULL, 0, NULL, &some));
    SAY(came);
    SAY(raise(SIGUSR1));
    SAY(pselect(0, NULL, NULL, NULL, NULL, &some));
    SAY(came);
    // One that was sent while it was blocked ends a wait that has it not.
    SAY(raise(SIGBUS));
    SAY(pending(SIGBUS));
    came = 0;
    some = all;
    sigdelset(&some, SIGBUS);
    struct timespec long_enough = {20};
    SAY(ppoll(NULL, 0, &long_enough, &some));
    SAY(came);
    SAY(blocked(SIGBUS) + blocked(SIGUSR1) + pending(SIGBUS));
    shared[202 * MIB] = 1;
    SAY(raise(SIGBUS));
    SAY(pthread_sigmask(SIG_SETMASK, &old, NULL));
    SAY(came);
    // As they were called before POSIX.
    SAY(sigblock(sigmask(SIGBUS) | sigmask(SIGUSR2)));
    SAY(blocked(SIGBUS) + blocked(SIGUSR1) + blocked(SIGUSR2));
    SAY(siggetmask() == (sigmask(SIGBUS) | sigmask(SIGUSR2)));
    SAY(sigsetmask(0) == (sigmask(SIGBUS) | sigmask(SIGUSR2)));
    SAY(blocked(SIGBUS) + blocked(SIGUSR2));
    SAY(sighold(SIGBUS));
    SAY(blocked(SIGBUS));
    SAY(sigrelse(SIGBUS));
    SAY(blocked(SIGBUS));
    SAY(sighold(1000));
    SAY(sigaction(SIGBUS, &before, NULL));
    SAY(munmap(shared, 256 * MIB));
    close(fd);
}

static volatile int woken, waking;

static void on_wake(int signal) {
    shared[(woken++ % 120 + 1) * 2 * MIB] = 'k';
}

static void *wakes(void *thread) {
    while (waking) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(20000);
    }
    return NULL;
}

// A handler that touches missing pages runs while its thread waits for SIGBUS, which is blocked: the kernel ended
// the process there.
static void waits(void) {
    int fd = sparse("waits", 256 * MIB);
    shared = map_all(fd, 256 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    struct sigaction action = {.sa_handler = on_wake}, before;
    SAY(sigaction(SIGUSR1, &action, &before));
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    SAY(pthread_sigmask(SIG_BLOCK, &set, &old));
    pthread_t self = pthread_self(), waker;
    waking = 1;
    SAY(pthread_create(&waker, NULL, wakes, &self));
    struct timespec long_enough = {60};
    siginfo_t info;
    SAY(sigtimedwait(&set, &info, &long_enough));
    waking = 0;
    SAY(pthread_join(waker, NULL));
    char byte = 0;
    SAY(woken > 0 && pread(fd, &byte, 1, 2 * MIB) == 1 && byte == 'k');
    SAY(pending(SIGBUS));
    // As before: blocked for what is sent, not for missing pages.
    shared[250 * MIB] = 1;
    SAY(raise(SIGBUS));
    SAY(sigtimedwait(&set, &info, &long_enough));
    SAY(pthread_sigmask(SIG_SETMASK, &old, NULL));
    SAY(sigaction(SIGUSR1, &before, NULL));
    SAY(munmap(shared, 256 * MIB));
    close(fd);
}

enum { RACES = 40 };
static char *volatile racing, *volatile seen;
static volatile int stored, go_on;

// Stores into pages that a file has only just got, until they are gone.
static void *racer(void *unused) {
    while (go_on) {
        char *map = seen = racing;
        if (!map) {
            sched_yield();
            continue;
        }
        for (int page = 1; page < 64 && racing == map; page++) {
            if (touch(map + page * PAGE, 1) != 0) break;
            stored = page;
        }
    }
    return NULL;
}

// What was stored in a private mapping is in the one that it was moved to.
static void races(void) {
    int fd = sparse("races", PAGE), wrong = 0;
    pthread_t thread;
    go_on = 1;
    SAY(pthread_create(&thread, NULL, racer, NULL));
    for (int i = 1; i <= RACES; i++) {
        if (ftruncate(fd, PAGE) != 0) wrong++;
        char *map = map_all(fd, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        if (ftruncate(fd, 64 * PAGE) != 0) wrong++;
        stored = 0;
        racing = map;
        while (stored < i) sched_yield();
        char *moved = mremap(map, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
        racing = NULL;
        while (seen) sched_yield();
        if (moved == MAP_FAILED) {
            wrong++;
            continue;
        }
        for (int page = 1, last = stored; page <= last; page++) wrong += moved[page * PAGE] != 'w';
        munmap(moved, 128 * PAGE);
    }
    go_on = 0;
    SAY(pthread_join(thread, NULL));
    SAY(wrong);
    close(fd);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    catch(0);
    sees_holes();
    ends();
    calls();
    changes();
    advice();
    privately();
    threads();
    fills();
    handlers();
    pieces();
    jumps();
    spawned();
    arrives();
    masks();
    waits();
    catch(0);
    races();
    return 0;
}
