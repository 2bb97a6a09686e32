// System calls by the program's own instructions, and what they meet: registers, masks, signal stacks, handlers
// that leave by siglongjmp, threads, children, own SIGSYS handlers, filters, timers' threads.
#include "raw.h"
#include "say.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <time.h>
#include <ucontext.h>

#define ALL_BUT_KILL 0xfffffffffffbfeff

// ---- the calls themselves

// Opens a file, says whether the call saw it with its content, and closes it.
static long seen(void) {
    char text[8] = "";
    long fd = raw(SYS_openat, AT_FDCWD, "content", O_RDONLY);
    if (fd < 0)
        return fd;
    long got = raw(SYS_pread64, fd, text, 7);
    raw(SYS_close, fd);
    return got == 7 && !memcmp(text, "content", 7);
}

static void calls(void) {
    char text[64] = "", names[1024];
    struct stat info;
    struct iovec parts[2] = {{text, 3}, {text + 3, 3}};
    long fd = raw(SYS_open, "file", O_RDWR | O_CREAT | O_EXCL, 0640), other;
    SAY(fd >= 0);
    SAY(raw(SYS_write, fd, "abcdef", 6));
    SAY(raw(SYS_lseek, fd, 0, SEEK_SET));
    SAY(raw(SYS_readv, fd, parts, 2));
    SAY_TEXT(text);
    SAY(raw(SYS_fstat, fd, &info));
    SAY(info.st_size);
    SAY(raw(SYS_ftruncate, fd, 3));
    SAY(raw(SYS_fchmod, fd, 0600));
    SAY(raw(SYS_flock, fd, LOCK_EX));
    struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
    SAY(raw(SYS_fcntl, fd, F_SETLK, &lock));
    SAY((other = raw(SYS_dup, fd)) > fd);
    SAY(raw(SYS_dup3, fd, other, O_CLOEXEC) == other);
    SAY(raw(SYS_close, other));
    SAY(raw(SYS_mkdir, "directory", 0700));
    long directory = raw(SYS_openat, AT_FDCWD, "directory", O_DIRECTORY);
    SAY(raw(SYS_renameat2, AT_FDCWD, "file", directory, "moved", 0));
    SAY(raw(SYS_newfstatat, directory, "moved", &info, 0));
    SAY(info.st_size);
    SAY(raw(SYS_getdents64, directory, names, sizeof names) > 0);
    SAY(raw(SYS_unlinkat, directory, "moved", 0));
    SAY(raw(SYS_fchdir, directory));
    SAY(raw(SYS_chdir, ".."));
    SAY(raw(SYS_rmdir, "directory"));
    char *at = (char *)raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(at[0]);
    at[1] = 'x';
    SAY(raw(SYS_pread64, fd, text, 3, 0));
    SAY_TEXT(text);
    SAY(raw(SYS_munmap, at, 4096));
    SAY(raw(SYS_close, fd) | raw(SYS_close, directory));
    SAY(raw(SYS_openat, AT_FDCWD, "none", O_RDONLY));
    SAY(raw(SYS_openat, AT_FDCWD, NULL, O_RDONLY));
    SAY(raw(SYS_close, 999));
    SAY(raw(9999));
    SAY(raw(SYS_getpid) == getpid());
    errno = 77;
    raw(SYS_openat, AT_FDCWD, "none", O_RDONLY);
    SAY(errno);
}

// Every register and the flags are as before, the 128 bytes below the stack pointer, and the vectors.
static void registers(void) {
    static uint64_t before[4][2] __attribute__((aligned(64))), after[4][2] __attribute__((aligned(64)));
    long answer, wrong;
    for (int word = 0; word < 8; word++)
        before[word / 2][word % 2] = 0x1111111111111111 * (word + 1);
    asm volatile(
        "movups %[before0], %%xmm0\n movups %[before1], %%xmm7\n movups %[before2], %%xmm8\n"
        "movups %[before3], %%xmm15\n"
        "mov $0x1234, %%rbx\n mov $0x2345, %%r12\n mov $0x3456, %%r13\n mov $0x4567, %%r14\n"
        "movq $0x5678, -8(%%rsp)\n movq $0x6789, -128(%%rsp)\n"
        "mov $0x9a, %%r8\n mov $0xab, %%r9\n"
        "mov $2, %%eax\n lea 1f(%%rip), %%rdi\n xor %%esi, %%esi\n xor %%edx, %%edx\n"
        "stc\n syscall\n"
        "mov %%rax, %%rcx\n"
        "setnc %%al\n movzbl %%al, %%eax\n"
        "sub $0x1234, %%rbx\n or %%rbx, %%rax\n sub $0x2345, %%r12\n or %%r12, %%rax\n"
        "sub $0x3456, %%r13\n or %%r13, %%rax\n sub $0x4567, %%r14\n or %%r14, %%rax\n"
        "sub $0x9a, %%r8\n or %%r8, %%rax\n sub $0xab, %%r9\n or %%r9, %%rax\n"
        "mov -8(%%rsp), %%r8\n sub $0x5678, %%r8\n or %%r8, %%rax\n"
        "mov -128(%%rsp), %%r8\n sub $0x6789, %%r8\n or %%r8, %%rax\n"
        "movups %%xmm0, %[after0]\n movups %%xmm7, %[after1]\n movups %%xmm8, %[after2]\n"
        "movups %%xmm15, %[after3]\n"
        "jmp 2f\n 1: .asciz \"content\"\n 2:\n"
        : "=&a"(wrong), "=&c"(answer), [after0] "=m"(after[0]), [after1] "=m"(after[1]),
          [after2] "=m"(after[2]), [after3] "=m"(after[3])
        : [before0] "m"(before[0]), [before1] "m"(before[1]), [before2] "m"(before[2]),
          [before3] "m"(before[3])
        : "rbx", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "memory",
          "xmm0", "xmm7", "xmm8", "xmm15");
    SAY(wrong);
    SAY(answer >= 0);
    SAY(memcmp(before, after, 64));
    raw(SYS_close, answer);
}

// ---- masks and handlers

static volatile long from_handler, count;

static void calls_raw(int signal) {
    (void)signal;
    from_handler = seen();
    count++;
}

static void handler_of(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static void masks(void) {
    uint64_t all = ~0ull, none = 0, found = 0;
    sigset_t set, old;
    // By the instruction, and by the C library.
    SAY(raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &found, 8));
    SAY(found == 0);
    SAY(seen());
    SAY(raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, &found, 8));
    SAY(found == ALL_BUT_KILL);
    SAY(raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, &found, 4));
    SAY(raw(SYS_rt_sigprocmask, 99, &none, &found, 8));
    sigfillset(&set);
    SAY(sigprocmask(SIG_SETMASK, &set, &old));
    SAY(seen());
    SAY(sigprocmask(SIG_SETMASK, &old, &set));
    SAY(sigismember(&set, SIGSYS));
    // One that is sent while it is blocked waits.
    handler_of(SIGSYS, calls_raw, 0);
    count = 0;
    sigemptyset(&set), sigaddset(&set, SIGSYS);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGSYS);
    SAY(count);
    SAY(seen());
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    SAY(count);
    SAY(from_handler);
    // A handler with all blocked, in waits by the instruction with all blocked but the signal.
    handler_of(SIGALRM, calls_raw, 0);
    uint64_t wait = ~(1ull << (SIGALRM - 1)), alarm_bit = 1ull << (SIGALRM - 1);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    struct timespec second = {5, 0};
    struct {
        void *mask;
        size_t size;
    } inner = {&wait, 8};
    struct epoll_event event;
    long poll = epoll_create1(0);
    raw(SYS_rt_sigprocmask, SIG_BLOCK, &alarm_bit, NULL, 8);
    from_handler = 0, setitimer(ITIMER_REAL, &soon, NULL);
    SAY(raw(SYS_rt_sigsuspend, &wait, 8));
    SAY(from_handler);
    from_handler = 0, setitimer(ITIMER_REAL, &soon, NULL);
    SAY(raw(SYS_ppoll, NULL, 0, &second, &wait, 8));
    SAY(from_handler);
    from_handler = 0, second.tv_sec = 5, setitimer(ITIMER_REAL, &soon, NULL);
    SAY(raw(SYS_pselect6, 0, NULL, NULL, NULL, &second, &inner));
    SAY(from_handler);
    from_handler = 0, setitimer(ITIMER_REAL, &soon, NULL);
    SAY(raw(SYS_epoll_pwait, poll, &event, 1, 5000, &wait, 8));
    SAY(from_handler);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
    close(poll);
}

// What the kernel's action looks like.
struct kernel_action {
    void *handler;
    uint64_t flags;
    void *restorer;
    uint64_t mask;
};

static void actions(void) {
    struct kernel_action new = {calls_raw, 0x04000000 | SA_RESTART, NULL, ~0ull}, old = {0};
    struct sigaction read;
    sigaction(SIGUSR1, NULL, &read);
    new.restorer = NULL;
    // Its restorer is the C library's, as that of what `sigaction` has set.
    SAY(raw(SYS_rt_sigaction, SIGSYS, NULL, &old, 8));
    new.restorer = old.restorer;
    SAY(raw(SYS_rt_sigaction, SIGUSR1, &new, &old, 8));
    SAY(old.handler == SIG_DFL);
    count = from_handler = 0;
    kill(getpid(), SIGUSR1);
    SAY(count);
    SAY(from_handler);
    SAY(raw(SYS_rt_sigaction, SIGUSR1, NULL, &old, 8));
    SAY(old.handler == calls_raw);
    SAY(old.mask == ALL_BUT_KILL);
    SAY(sigaction(SIGUSR1, NULL, &read));
    SAY(read.sa_handler == calls_raw);
    SAY(raw(SYS_rt_sigaction, SIGUSR1, &new, &old, 4));
    SAY(raw(SYS_rt_sigaction, SIGKILL, &new, &old, 8));
    SAY(raw(SYS_rt_sigaction, 65, &new, &old, 8));
}

static sigjmp_buf back;
static int ends[2];

static void leaves(int signal) {
    (void)signal;
    from_handler += seen();
    siglongjmp(back, 1);
}

// Handlers that leave a waiting call.
static void leaving(void) {
    volatile int rounds = 0;
    char byte;
    if (pipe(ends))
        return;
    handler_of(SIGALRM, leaves, 0);
    from_handler = 0;
    struct itimerval often = {{0, 0}, {0, 300}};
    sigsetjmp(back, 1);
    if (++rounds <= 200) {
        setitimer(ITIMER_REAL, &often, NULL);
        raw(SYS_read, ends[0], &byte, 1);
    }
    SAY(rounds);
    SAY(from_handler);
    SAY(seen());
}

static volatile int is_on;
static char own_stack[1 << 16] __attribute__((aligned(64)));

static void on_stack(int signal) {
    stack_t found;
    (void)signal;
    is_on = (char *)&found >= own_stack && (char *)&found < own_stack + sizeof own_stack;
    from_handler = seen();
    SAY(raw(SYS_sigaltstack, NULL, &found));
    SAY(found.ss_flags);
    stack_t other = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    SAY(raw(SYS_sigaltstack, &other, NULL));
}

static void stacks(void) {
    stack_t own = {.ss_sp = own_stack, .ss_size = sizeof own_stack}, found, off = {.ss_flags = SS_DISABLE};
    SAY(raw(SYS_sigaltstack, NULL, &found));
    SAY(found.ss_flags);
    SAY(raw(SYS_sigaltstack, &own, &found));
    SAY(sigaltstack(NULL, &found));
    SAY(found.ss_sp == own_stack && found.ss_size == sizeof own_stack && found.ss_flags == 0);
    SAY(seen());
    handler_of(SIGUSR2, on_stack, SA_ONSTACK);
    SAY(kill(getpid(), SIGUSR2));
    SAY(is_on);
    SAY(from_handler);
    own.ss_size = 100;
    SAY(raw(SYS_sigaltstack, &own, NULL));
    own.ss_size = sizeof own_stack, own.ss_flags = 77;
    SAY(raw(SYS_sigaltstack, &own, NULL));
    SAY(raw(SYS_sigaltstack, &off, NULL));
    SAY(sigaltstack(NULL, &found));
    SAY(found.ss_flags);
    // The least that there may be.
    own.ss_size = MINSIGSTKSZ, own.ss_flags = 0;
    SAY(raw(SYS_sigaltstack, &own, NULL));
    handler_of(SIGUSR2, calls_raw, SA_ONSTACK);
    from_handler = 0;
    kill(getpid(), SIGUSR2);
    SAY(from_handler);
    SAY(seen());
    SAY(raw(SYS_sigaltstack, &off, NULL));
}

// ---- contexts, threads, children

static ucontext_t first, second;

static void in_context(void) {
    from_handler = seen();
    swapcontext(&second, &first);
}

static void contexts(void) {
    static char stack[1 << 16];
    getcontext(&second);
    second.uc_stack.ss_sp = stack, second.uc_stack.ss_size = sizeof stack, second.uc_link = &first;
    makecontext(&second, in_context, 0);
    from_handler = 0;
    swapcontext(&first, &second);
    SAY(from_handler);
}

static void *works(void *number) {
    char name[20], text[8];
    long wrong = 0;
    snprintf(name, sizeof name, "of-%ld", (long)number);
    for (int round = 0; round < 300; round++) {
        long fd = raw(SYS_open, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        wrong += fd < 0 || raw(SYS_write, fd, "12345678", 8) != 8;
        wrong += raw(SYS_pread64, fd, text, 8, 0) != 8 || memcmp(text, "12345678", 8);
        wrong += raw(SYS_close, fd) != 0 || raw(SYS_unlink, name) != 0;
    }
    return (void *)wrong;
}

static void by_timer(union sigval value) {
    (void)value;
    from_handler = seen();
    raw(SYS_write, ends[1], "t", 1);
}

static int in_raw_thread(void) {
    // It has no record of the C library's: memory and the kernel's calls alone.
    count = 5;
    raw(SYS_exit, 0);
    return 0;
}

static void threads(void) {
    pthread_t all[4];
    void *wrong;
    long sum = 0;
    handler_of(SIGPROF, calls_raw, SA_RESTART);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {0};
    setitimer(ITIMER_PROF, &often, NULL);
    for (long at = 0; at < 4; at++)
        pthread_create(&all[at], NULL, works, (void *)at);
    for (int at = 0; at < 4; at++)
        pthread_join(all[at], &wrong), sum += (long)wrong;
    setitimer(ITIMER_PROF, &never, NULL);
    SAY(sum);
    // A thread that the C library makes for a timer.
    timer_t timer;
    char byte;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_timer};
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    from_handler = 0;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &soon, NULL);
    SAY(raw(SYS_read, ends[0], &byte, 1));
    SAY(from_handler);
    timer_delete(timer);
    // One by the instruction: it goes on behind it, on its own stack.
    static char stack[1 << 16] __attribute__((aligned(64)));
    volatile int tid = 0;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                 CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
    count = 0;
    long answer;
    register long r10 asm("r10") = (long)&tid;
    asm volatile("syscall\n test %%rax, %%rax\n jnz 1f\n call *%[function]\n 1:"
                 : "=a"(answer)
                 : "a"(SYS_clone), "D"(flags), "S"(stack + sizeof stack), "d"(&tid), "r"(r10),
                   [function] "b"(in_raw_thread)
                 : "rcx", "r11", "memory");
    while (tid)
        raw(SYS_sched_yield);
    SAY(answer > 0);
    SAY(count);
}

static void *calls_once(void *unused) {
    (void)unused;
    return (void *)seen();
}

static int mappings(void) {
    int lines = 0, byte;
    FILE *maps = fopen("/proc/self/maps", "r");
    while ((byte = getc(maps)) != EOF)
        lines += byte == '\n';
    fclose(maps);
    return lines;
}

// Threads that have ended leave no memory behind.
static void many_threads(void) {
    int before = mappings();
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, calls_once, NULL);
        pthread_join(thread, NULL);
    }
    SAY(mappings() - before < 50);
}

static long ended(long pid) {
    int status = 0;
    long waited = raw(SYS_wait4, pid, &status, 0, NULL);
    return waited == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1000 - status;
}

static int in_child(void *unused) {
    (void)unused;
    raw(SYS_exit_group, seen() == 1 ? 21 : 22);
    return 0;
}

static void children(void) {
    char *const arguments[] = {"/bin/true", NULL};
    long pid = raw(SYS_fork);
    if (pid == 0)
        raw(SYS_exit_group, seen() == 1 ? 11 : 12);
    SAY(ended(pid));
    pid = raw(SYS_clone, SIGCHLD);
    if (pid == 0)
        raw(SYS_exit_group, seen() == 1 ? 13 : 14);
    SAY(ended(pid));
    pid = fork();
    if (pid == 0)
        raw(SYS_exit_group, seen() == 1 ? 15 : 16);
    SAY(ended(pid));
    // As Go executes programs: the child shares memory, its parent waits.
    pid = raw(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD);
    if (pid == 0) {
        raw(SYS_execve, arguments[0], arguments, environ);
        raw(SYS_exit_group, 17);
    }
    SAY(ended(pid));
    struct {
        uint64_t flags, pidfd, child, parent, exit_signal, stack, size, tls;
    } arguments3 = {CLONE_VM | CLONE_VFORK, 0, 0, 0, SIGCHLD, 0, 0, 0};
    pid = raw(SYS_clone3, &arguments3, sizeof arguments3);
    if (pid == 0) {
        raw(SYS_execve, arguments[0], arguments, environ);
        raw(SYS_exit_group, 18);
    }
    SAY(ended(pid));
    // With a stack of its own, by the instruction and by the C library.
    static char stack[1 << 16] __attribute__((aligned(64)));
    SAY(ended(clone(in_child, stack + sizeof stack, SIGCHLD, NULL)));
    asm volatile("xor %%edx, %%edx\n xor %%r10d, %%r10d\n xor %%r8d, %%r8d\n syscall\n"
                 "test %%rax, %%rax\n jnz 1f\n xor %%edi, %%edi\n call *%[function]\n 1:"
                 : "=a"(pid)
                 : "a"(SYS_clone), "D"((long)SIGCHLD), "S"(stack + sizeof stack),
                   [function] "b"(in_child)
                 : "rcx", "rdx", "r8", "r10", "r11", "memory");
    int status = ended(pid);
    SAY(status == 21 || status == 22);
    // One that is traced from its exec on makes calls before that.
    pid = raw(SYS_fork);
    if (pid == 0) {
        raw(SYS_ptrace, PTRACE_TRACEME);
        if (seen() == 1)
            raw(SYS_execve, arguments[0], arguments, environ);
        raw(SYS_exit_group, 19);
    }
    SAY(waitpid(pid, &status, 0) == pid);
    SAY(WIFSTOPPED(status) ? WSTOPSIG(status) : -2);
    SAY(ptrace(PTRACE_DETACH, pid, NULL, NULL));
    SAY(ended(pid));
    // `exec` ends it all, and begins it anew.
    pid = fork();
    if (pid == 0) {
        char *const again[] = {"/proc/self/exe", "-", "again", NULL};
        raw(SYS_execve, again[0], again, environ);
        _exit(19);
    }
    SAY(ended(pid));
}

// ---- filters

static void emulates(int signal, siginfo_t *info, void *context) {
    (void)signal;
    if (info->si_code == 1)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
    from_handler = info->si_code;
}

static void filters(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    struct sigaction action = {.sa_sigaction = emulates, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SAY(raw(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    SAY(raw(SYS_getpriority, 0, 0));
    SAY(from_handler);
    SAY(syscall(SYS_getpriority, 0, 0));
    SAY(seen());
    action.sa_handler = SIG_DFL;
    sigaction(SIGSYS, &action, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        raw(SYS_getpriority, 0, 0);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    SAY(WIFSIGNALED(status) ? WTERMSIG(status) : -2);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[2], "again"))
        return seen() == 1 ? 31 : 32;
    enter(argc, argv);
    put("content", "content");
    calls();
    registers();
    masks();
    actions();
    leaving();
    stacks();
    contexts();
    threads();
    many_threads();
    children();
    filters();
    return 0;
}
