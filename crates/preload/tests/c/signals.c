// The rules of signal actions, waits that signals end, faults of the program's own, cancelled
// threads: line by line as the kernel's.
#include "say.h"
#include <pthread.h>
#include <setjmp.h>

static int file;
static volatile sig_atomic_t count, last_value, last_code, depth, deepest;
static char order[64];
static sigjmp_buf jump;

static void plain(int signal) {
    count++;
    pwrite(file, "h", 1, 0);
}

static void informed(int signal, siginfo_t *info, void *context) {
    count++;
    last_code = info->si_code;
    last_value = info->si_value.sival_int;
    size_t length = strlen(order);
    if (length < sizeof order - 1)
        order[length] = '0' + info->si_value.sival_int % 10;
    if (++depth > deepest)
        deepest = depth;
    struct stat status;
    fstat(file, &status);
    depth--;
}

static void show_action(int signal, int line) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    int result = sigaction(signal, NULL, &action);
    const char *handler = action.sa_handler == SIG_DFL           ? "default"
                          : action.sa_handler == SIG_IGN         ? "ignore"
                          : action.sa_handler == plain           ? "plain"
                          : action.sa_sigaction == informed      ? "informed"
                                                                 : "other";
    fprintf(results, "%d %d: %d %s flags %x mask", line, signal, result, handler, action.sa_flags);
    for (int other = 1; other < 65; other++)
        if (sigismember(&action.sa_mask, other) == 1)
            fprintf(results, " %d", other);
    fputs("\n", results);
    fflush(results);
}
#define SHOW_ACTION(signal) show_action(signal, __LINE__)

static int set(int signal, void *handler, int flags, int masked) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (masked)
        sigaddset(&action.sa_mask, masked);
    return sigaction(signal, &action, NULL);
}

static void actions(void) {
    static const int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGFPE, SIGCHLD};
    for (int index = 0; index < 5; index++) {
        int signal = signals[index];
        SHOW_ACTION(signal);
        SAY(set(signal, plain, 0, SIGHUP));
        SHOW_ACTION(signal);
        SAY(set(signal, informed, SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_NODEFER, SIGKILL));
        SHOW_ACTION(signal);
        SAY(set(signal, SIG_IGN, SA_RESTART, SIGTERM));
        SHOW_ACTION(signal);
        SAY(set(signal, plain, SA_RESETHAND, 0));
        SHOW_ACTION(signal);
        SAY(raise(signal));
        SHOW_ACTION(signal);
        SAY(signal == SIGCHLD ? 0 : set(signal, SIG_IGN, 0, 0));
        SAY(raise(signal));
        SAY(set(signal, SIG_DFL, 0, 0));
        SHOW_ACTION(signal);
    }
    SAY(set(SIGKILL, plain, 0, 0));
    SAY(set(SIGSTOP, SIG_IGN, 0, 0));
    SAY(set(0, plain, 0, 0));
    SAY(set(65, plain, 0, 0));
    SAY(set(32, plain, 0, 0));
    SAY(signal(SIGUSR1, plain) == SIG_DFL);
    SHOW_ACTION(SIGUSR1);
    SAY(siginterrupt(SIGUSR1, 1));
    SHOW_ACTION(SIGUSR1);
    SAY(signal(SIGUSR1, SIG_IGN) == plain);
    SAY(signal(SIGUSR1, plain) == SIG_IGN);
    SHOW_ACTION(SIGUSR1);
    SAY(siginterrupt(SIGUSR1, 0));
    SAY(sysv_signal(SIGUSR2, plain) == SIG_DFL);
    SHOW_ACTION(SIGUSR2);
    SAY(sigset(SIGUSR2, SIG_HOLD) == (void *)plain);
    SAY(sigset(SIGUSR2, plain) == SIG_HOLD);
    SHOW_ACTION(SIGUSR2);
    SAY(sigignore(SIGUSR2));
    SHOW_ACTION(SIGUSR2);
    SAY((long)signal(0, plain));
    SAY(count);
}

static void queues(void) {
    sigset_t all, before;
    set(SIGRTMIN, informed, SA_SIGINFO, SIGRTMIN + 1);
    set(SIGRTMIN + 1, informed, SA_SIGINFO, 0);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    count = 0;
    for (int index = 0; index < 6; index++)
        sigqueue(getpid(), SIGRTMIN + index % 2, (union sigval){index});
    sigprocmask(SIG_SETMASK, &before, NULL);
    SAY(count);
    SAY_TEXT(order);
    SAY(last_code);
    count = 0;
    sigqueue(getpid(), SIGRTMIN, (union sigval){7});
    SAY(last_value);
    SAY(last_code == SI_QUEUE);
    SAY(raise(SIGRTMIN));
    SAY(last_code == SI_TKILL);
    SAY(kill(getpid(), SIGRTMIN));
    SAY(last_code == SI_USER);
    SAY(count);
}

static void *hold(void *how) {
    int fd = open("locked", O_RDWR), ready = *(int *)how;
    struct flock lock = {.l_type = F_WRLCK};
    return (void *)(long)(fcntl(fd, F_OFD_SETLK, &lock) | flock(fd, LOCK_EX));
}

// Until a process has slept for a while, however long it takes to get there.
static void until_it_sleeps(pid_t pid) {
    char name[32], text[256];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    for (int times = 0; times < 10; usleep(2000)) {
        int fd = open(name, O_RDONLY);
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        text[length < 0 ? 0 : length] = 0;
        char *state = strrchr(text, ')');
        times = state && state[2] == 'S' ? times + 1 : 0;
    }
}

// A child interrupts this process twice, then lets go of the lock.
static void waits(int flags) {
    static const char *const names[] = {"F_SETLKW", "F_OFD_SETLKW", "flock"};
    for (int kind = 0; kind < 3; kind++) {
        int ready[2];
        pipe(ready);
        set(SIGUSR1, plain, flags, 0);
        count = 0;
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            int fd = open("locked", O_RDWR);
            struct flock lock = {.l_type = F_WRLCK};
            fcntl(fd, kind == 1 ? F_OFD_SETLK : F_SETLK, &lock);
            flock(fd, LOCK_EX);
            write(ready[1], "r", 1);
            for (int signals = 0; signals < 2; signals++) {
                until_it_sleeps(parent);
                kill(parent, SIGUSR1);
            }
            until_it_sleeps(parent);
            _exit(0);
        }
        char byte;
        read(ready[0], &byte, 1);
        int fd = open("locked", O_RDWR);
        struct flock lock = {.l_type = F_WRLCK};
        int result = kind == 2 ? flock(fd, LOCK_EX)
                               : fcntl(fd, kind ? F_OFD_SETLKW : F_SETLKW, &lock);
        int error = result ? errno : 0;
        fprintf(results, "%s, flags %x: %d %s, signals %d\n", names[kind], flags, result,
                strerrorname_np(error), flags ? count : count > 0);
        fflush(results);
        while (waitpid(child, NULL, 0) < 0) {}
        close(fd);
        close(ready[0]);
        close(ready[1]);
    }
}

static void recover(int signal, siginfo_t *info, void *context) {
    count++;
    char bytes[8];
    pread(file, bytes, 8, 0);
    siglongjmp(jump, info->si_code > 0 ? signal : -1);
}

static void skip(int signal, siginfo_t *info, void *context) {
    count++;
    pwrite(file, "s", 1, 0);
    // The two bytes of `mov [rax], cl`.
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void store(char *at) {
    __asm__ volatile(".byte 0x88, 0x08" : : "a"(at), "c"(1) : "memory");
}

static int overflow(int level) {
    volatile char room[4096];
    room[0] = level;
    return room[0] + (level < 1 << 20 ? overflow(level + 1) : 0);
}

static volatile int polling;

static void *bad_pointers(void *argument) {
    long failures = 0;
    while (polling)
        failures += pwrite(file, (void *)8, 10, 0) != -1 || errno != EFAULT;
    return (void *)failures;
}

static char *poll_page;
static void at_safepoint(int signal, siginfo_t *info, void *context) {
    if (info->si_addr == poll_page)
        mprotect(poll_page, 4096, PROT_READ | PROT_WRITE);
    count++;
    pwrite(file, "p", 1, 0);
}

static void faults(void) {
    count = 0;
    set(SIGSEGV, recover, SA_SIGINFO, 0);
    for (int round = 0; round < 3; round++) {
        int caught = sigsetjmp(jump, 1);
        if (!caught)
            store((char *)16);
        SAY(caught);
    }
    SAY(pwrite(file, (void *)16, 1, 0));
    set(SIGSEGV, skip, SA_SIGINFO, 0);
    store((char *)16);
    SAY(count);
    SAY(pread(file, (void *)16, 1, 0));
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    SAY(sigaltstack(&stack, NULL));
    set(SIGSEGV, recover, SA_SIGINFO | SA_ONSTACK, 0);
    int caught = sigsetjmp(jump, 1);
    if (!caught)
        overflow(0);
    SAY(caught);
    caught = sigsetjmp(jump, 1);
    if (!caught)
        kill(getpid(), SIGSEGV);
    SAY(caught);
    // As a Java machine stops its threads.
    poll_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(SIGSEGV, at_safepoint, SA_SIGINFO | SA_RESTART | SA_ONSTACK, 0);
    count = 0;
    polling = 1;
    pthread_t other;
    pthread_create(&other, NULL, bad_pointers, NULL);
    for (int round = 0; round < 200; round++) {
        mprotect(poll_page, 4096, PROT_NONE);
        *(volatile char *)poll_page = 1;
        pwrite(file, "x", 1, 1);
    }
    polling = 0;
    void *failures;
    pthread_join(other, &failures);
    SAY(count);
    SAY((long)failures);
    set(SIGSEGV, SIG_DFL, 0, 0);
    for (int how = 0; how < 4; how++) {
        pid_t child = fork();
        if (child == 0) {
            if (how & 1)
                set(SIGSEGV, SIG_IGN, 0, 0);
            if (how & 2)
                store((char *)16);
            raise(SIGSEGV);
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        SAY(WIFSIGNALED(status) ? WTERMSIG(status) : 100 + WEXITSTATUS(status));
    }
}

static void clean_up(void *argument) {
    pwrite(file, argument, 1, 2);
    count++;
}

// Other names of the C library for the same calls.
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern int __open(const char *, int, ...), __close(int), __fcntl(int, int, ...);

// The name of this number again and again: each is a point at which the thread is cancelled.
static void by_other_name(int which) {
    char byte;
    for (;;) {
        if (which == 0)
            __read(file, &byte, 1);
        else if (which == 1)
            __write(file, "w", 1);
        else if (which == 2)
            __pread64(file, &byte, 1, 3);
        else if (which == 3)
            __pwrite64(file, "w", 1, 3);
        else
            __close(__open("f", O_RDONLY));
    }
}

static void *to_cancel(void *how) {
    int kind = *(int *)how, old;
    struct flock lock = {.l_type = F_WRLCK};
    int ends[2];
    pipe(ends);
    char byte;
    pthread_cleanup_push(clean_up, "c");
    if (kind == 1)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    if (kind == 2) {
        int fd = open("locked", O_RDWR);
        fcntl(fd, F_OFD_SETLKW, &lock);
    } else if (kind == 3) {
        read(ends[0], &byte, 1);
    } else if (kind == 4) {
        pthread_exit("exit");
    } else if (kind == 5) {
        __fcntl(open("locked", O_RDWR), F_OFD_SETLKW, &lock);
    } else if (kind > 5) {
        by_other_name(kind - 6);
    } else {
        for (;;)
            pwrite(file, "w", 1, 3);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancels(void) {
    int fd = open("locked", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK};
    SAY(fcntl(fd, F_OFD_SETLK, &lock));
    for (int kind = 0; kind < 11; kind++) {
        for (int round = 0; round < (kind > 4 ? 4 : 20); round++) {
            pthread_t thread;
            void *result;
            pthread_create(&thread, NULL, to_cancel, &kind);
            usleep(2000 + round * 37);
            if (kind != 4)
                pthread_cancel(thread);
            pthread_join(thread, &result);
            if (round == 3 || round == 19)
                SAY(result == PTHREAD_CANCELED);
        }
    }
    SAY(pwrite(file, "after", 5, 0));
    SAY(close(fd));
}

static void fork_inside(int signal) {
    pid_t child = fork();
    if (child == 0) {
        char byte;
        _exit(pread(file, &byte, 1, 0) == 1 && pwrite(file, "f", 1, 4) == 1 ? 9 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    last_value = WEXITSTATUS(status);
}

static void forks(void) {
    set(SIGUSR1, fork_inside, 0, 0);
    SAY(raise(SIGUSR1));
    SAY(last_value);
    // What is ignored stays ignored in a new image, what is handled does not.
    set(SIGSEGV, SIG_IGN, 0, 0);
    set(SIGBUS, plain, 0, 0);
    set(SIGHUP, SIG_IGN, 0, 0);
    set(SIGALRM, plain, 0, 0);
    fflush(results);
    SAY(system("set -- $(grep SigIgn /proc/self/status); exit $((0x$2 & 0x2441))"));
    SAY(system("set -- $(grep SigIgn /proc/self/status); exit $(((0x$2 & 0x2441) >> 8))"));
    SAY(system("set -- $(grep SigBlk /proc/self/status); exit $((0x$2 & 255))"));
    SHOW_ACTION(SIGSEGV);
    SHOW_ACTION(SIGBUS);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("f", "contents");
    put("locked", "x");
    file = open("f", O_RDWR);
    actions();
    queues();
    waits(0);
    waits(SA_RESTART);
    faults();
    count = 0;
    cancels();
    SAY(count);
    forks();
    return 0;
}
