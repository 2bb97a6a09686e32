// A program that touches pages which are on another node where programs rarely touch memory:
// odd CASE FILE MIB. The file is larger than the program's node. Exit code 0: every word was right.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define THREADS 500

static char *memory;
static size_t pages;
static int file;
static const char *path;

static void fail(const char *what, long found) {
    fprintf(stderr, "%s: %ld (%s)\n", what, found, strerror(errno));
    _exit(1);
}

static uint64_t content(size_t page) { return page * 0x9E3779B97F4A7C15u + 1; }

static void expect(const char *what, size_t page) {
    uint64_t found = *(volatile uint64_t *)(memory + page * PAGE);
    if (found != content(page)) fail(what, page);
}

static size_t drawn(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % pages;
}

static void touch_some(const char *what, uint64_t seed, int count) {
    while (count-- > 0) expect(what, drawn(&seed));
}

// ---- signals --------------------------------------------------------------------------------------

static void blocked(void) {
    sigset_t all;
    sigfillset(&all);
    if (sigprocmask(SIG_BLOCK, &all, NULL)) fail("sigprocmask", 0);
    touch_some("all signals are blocked", 1, 500);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    if (!sigismember(&now, SIGBUS) || !sigismember(&now, SIGUSR1)) fail("the mask has changed", 0);
}

static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    static uint64_t seed = 2;
    int before = errno;
    for (int i = 0; i < 3; i++) expect("in a handler", drawn(&seed));
    handled++;
    errno = before;
    (void)signal;
}

// On the smallest stack that the kernel takes, with a timer that interrupts touches and calls.
static void small_stack(void) {
    stack_t stack = {.ss_size = MINSIGSTKSZ > 6144 ? MINSIGSTKSZ : 6144};
    stack.ss_sp = malloc(stack.ss_size);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    if (sigaltstack(&stack, NULL) || sigaction(SIGALRM, &action, NULL)) fail("sigaltstack", 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec often = {{0, 2000000}, {0, 2000000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
        fail("timer", 0);
    uint64_t seed = 3;
    for (int i = 0; i < 1500 || handled < 20; i++) {
        size_t page = drawn(&seed);
        uint64_t found;
        expect("beside a timer", page);
        page = drawn(&seed);
        if (pread(file, &found, 8, page * PAGE) != 8) fail("pread beside a timer", page);
        if (found != content(page)) fail("read beside a timer", page);
    }
    timer_delete(timer);
}

// ---- processes and threads ------------------------------------------------------------------------

static void vforked(void) {
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) {
            uint64_t seed = 100 + i;
            for (int k = 0; k < 5; k++) {
                size_t page = drawn(&seed);
                if (*(volatile uint64_t *)(memory + page * PAGE) != content(page)) _exit(9);
            }
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) fail("a vfork child", status);
    }
}

// What exec and posix_spawn are given lies on pages that are away.
static void executed(void) {
    size_t page = 5;
    char saved[PAGE];
    memcpy(saved, memory + page * PAGE, PAGE);
    char **list = (char **)(memory + page * PAGE + 64);
    char *words = memory + page * PAGE + 1024;
    strcpy(words, "/bin/sh");
    strcpy(words + 16, "-c");
    strcpy(words + 32, "exit 7");
    list[0] = words, list[1] = words + 16, list[2] = words + 32, list[3] = NULL;
    for (int i = 0; i < 5; i++) {
        touch_some("ahead of exec", 200 + i, 6000);
        pid_t child = fork();
        if (child == 0) {
            execv(words, list);
            _exit(8);
        }
        int status;
        if (waitpid(child, &status, 0) != child) fail("waitpid", 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fail("exec of words in the file", status);
    }
    memcpy(memory + page * PAGE, saved, PAGE);
}

static void *toucher(void *seed) {
    touch_some("one of many threads", (uint64_t)(uintptr_t)seed, 20);
    return NULL;
}

static void many_threads(void) {
    pthread_t all[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&all[i], &small, toucher, (void *)(i + 1000))) fail("pthread_create", i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
}

// ---- the kernel's own access ----------------------------------------------------------------------

static void by_calls(void) {
    int pair[2], pipes[2];
    char bytes[4 * PAGE];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) || pipe(pipes)) fail("socketpair", 0);
    uint64_t seed = 4;
    for (int i = 0; i < 300; i++) {
        size_t page[3] = {drawn(&seed), drawn(&seed), drawn(&seed)};
        struct iovec parts[3];
        for (int k = 0; k < 3; k++) parts[k] = (struct iovec){memory + page[k] * PAGE, 1000};
        if (writev(pair[0], parts, 3) != 3000) fail("writev", i);
        if (recv(pair[1], bytes, sizeof bytes, 0) != 3000) fail("recv", i);
        for (int k = 0; k < 3; k++) {
            uint64_t found;
            memcpy(&found, bytes + 1000 * k, 8);
            if (found != content(page[k])) fail("what writev sent", page[k]);
        }
        off_t at = page[0] * PAGE;
        if (sendfile(pipes[1], file, &at, PAGE) != PAGE) fail("sendfile", page[0]);
        if (read(pipes[0], memory + page[1] * PAGE, PAGE) != PAGE) fail("read into the file", page[1]);
        if (*(uint64_t *)(memory + page[1] * PAGE) != content(page[0])) fail("what came", page[1]);
        *(uint64_t *)(memory + page[1] * PAGE) = content(page[1]);
        struct timespec *time = (struct timespec *)(memory + page[2] * PAGE + 512);
        if (clock_gettime(CLOCK_REALTIME, time) || time->tv_sec < 1000) fail("clock_gettime", page[2]);
    }
}

static void direct(void) {
    int other = open(path, O_RDWR | O_DIRECT);
    if (other < 0) fail("O_DIRECT", 0);
    char *buffer;
    if (posix_memalign((void **)&buffer, PAGE, PAGE)) fail("memory", 0);
    uint64_t seed = 5;
    for (int i = 0; i < 500; i++) {
        size_t page = drawn(&seed), from = drawn(&seed);
        if (pread(other, buffer, PAGE, page * PAGE) != PAGE) fail("a direct read", page);
        if (*(uint64_t *)buffer != content(page)) fail("what it read", page);
        if (pwrite(other, buffer, PAGE, page * PAGE) != PAGE) fail("a direct write", page);
        // From mapped memory of the file itself.
        if (pread(other, memory + from * PAGE, PAGE, from * PAGE) != PAGE) fail("into itself", from);
        expect("read into itself", from);
    }
    close(other);
}

static void by_another(void) {
    pid_t me = getpid();
    touch_some("ahead of process_vm_readv", 6, 100);
    pid_t child = fork();
    if (child == 0) {
        uint64_t seed = 7, found;
        int failed = 0;
        for (int i = 0; i < 500; i++) {
            size_t page = drawn(&seed);
            struct iovec to = {&found, 8}, from = {memory + page * PAGE, 8};
            ssize_t got = process_vm_readv(me, &to, 1, &from, 1, 0);
            // What is not there cannot be read so: refused, never wrong.
            if (got == 8 && found != content(page)) _exit(1);
            failed += got != 8;
        }
        fprintf(stderr, "%d of 500 reads refused\n", failed);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("process_vm_readv", status);
}

static void many_mappings(void) {
    char *all[1000];
    for (int i = 0; i < 1000; i++) {
        size_t page = (size_t)i * 7 % pages;
        all[i] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, page * PAGE);
        if (all[i] == MAP_FAILED) fail("mmap", i);
    }
    for (int i = 0; i < 1000; i++) {
        size_t page = (size_t)i * 7 % pages;
        if (*(volatile uint64_t *)all[i] != content(page)) fail("one of 1,000 mappings", i);
    }
    for (int i = 0; i < 1000; i++) munmap(all[i], PAGE);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"blocked", blocked},   {"small-stack", small_stack},     {"vfork", vforked},
        {"exec", executed},     {"many-threads", many_threads},   {"calls", by_calls},
        {"direct", direct},     {"by-another", by_another},       {"mappings", many_mappings},
    };
    if (count != 4) return 2;
    path = arguments[2];
    pages = atol(arguments[3]) << 8;
    file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, pages * PAGE)) fail("the file", file);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap", 0);
    for (size_t page = 0; page < pages; page++) *(uint64_t *)(memory + page * PAGE) = content(page);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(arguments[1], cases[i].name)) {
            cases[i].run();
            for (size_t page = 0; page < pages; page++) expect("in the end", page);
            return 0;
        }
    return 2;
}
