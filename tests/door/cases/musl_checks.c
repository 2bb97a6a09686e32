// Checks of programs without glibc's dynamic linker: musl_checks NAME DIRECTORY [ARGUMENT]. Each prints lines
// that are the same wherever the directory lies.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *dir, *self, *extra;
static char *in(const char *name) {
    static __thread char paths[8][4096];
    static __thread int next;
    char *path = paths[next++ % 8];
    snprintf(path, 4096, "%s/%s", dir, name);
    return path;
}
static void say(const char *what, long value) { printf("%s %ld\n", what, value); fflush(stdout); }
static void put(const char *name, const char *text) {
    int fd = open(in(name), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) say("put failed", errno);
    close(fd);
}
static void show(const char *name) {
    char bytes[256] = {0};
    int fd = open(in(name), O_RDONLY);
    long count = fd < 0 ? -errno : read(fd, bytes, sizeof bytes - 1);
    printf("%s: %ld %s\n", name, count, bytes);
    if (fd >= 0) close(fd);
}

static int sum_of(unsigned char *bytes, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    return sum;
}

static void files(void) {
    put("a", "one\ntwo\nthree\n");
    FILE *f = fopen(in("a"), "r+");
    char line[64];
    while (fgets(line, sizeof line, f)) fputs(line, stdout);
    fseek(f, 4, SEEK_SET);
    fputs("TWO", f);
    fclose(f);
    show("a");
    say("rename", rename(in("a"), in("b")));
    say("link", link(in("b"), in("c")));
    say("symlink", symlink("c", in("s")));
    say("mkdir", mkdir(in("d"), 0755));
    struct stat st;
    stat(in("b"), &st);
    say("links", st.st_nlink);
    say("size", st.st_size);
    say("realpath", strcmp(realpath(in("s"), line) ? "x" : "y", "x"));
    say("unlink absent", unlink(in("zz")) ? errno : 0);
    say("rmdir", rmdir(in("d")));
    say("truncate", truncate(in("b"), 5));
    show("c");
    int fd = open(in("v"), O_CREAT | O_RDWR, 0600);
    struct iovec v[3] = {{"ab", 2}, {"cde", 3}, {"f", 1}};
    say("writev", writev(fd, v, 3));
    say("pwrite", pwrite(fd, "Z", 1, 2));
    say("lseek", lseek(fd, 0, SEEK_CUR));
    say("fallocate", posix_fallocate(fd, 0, 100000));
    say("flock", flock(fd, LOCK_EX | LOCK_NB));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    say("lock", fcntl(fd, F_SETLK, &lock));
    say("dup2", dup2(fd, 77));
    close(fd);
    char bytes[7] = {0};
    say("pread", pread(77, bytes, 6, 0));
    puts(bytes);
    DIR *d = opendir(dir);
    int names = 0;
    while (readdir(d)) names++;
    closedir(d);
    say("names", names);
    glob_t g;
    say("glob", glob(in("*"), 0, 0, &g));
    say("globbed", g.gl_pathc);
    struct statvfs fs;
    say("statvfs", statvfs(dir, &fs));
    char *made = strdup(in("tmpXXXXXX"));
    say("mkstemp", mkstemp(made) >= 0);
    say("chdir", chdir(dir));
    say("access", access("v", R_OK));
    char where[4096];
    say("getcwd", !strcmp(getcwd(where, sizeof where), dir));
    struct timespec times[2] = {{1000, 5}, {2000, 6}};
    say("utimensat", utimensat(AT_FDCWD, "v", times, 0));
    stat("v", &st);
    say("mtime", st.st_mtim.tv_sec * 10 + st.st_mtim.tv_nsec);
    FILE *tmp = tmpfile();
    say("tmpfile", tmp && fputs("x", tmp) >= 0);
}

#define THREADS 8
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turns, total;
static __thread int mine;
static void *appends(void *number) {
    char name[32], text[64];
    mine = (int)(intptr_t)number;
    snprintf(name, sizeof name, "thread%d", mine);
    for (int i = 0; i < 200; i++) {
        int fd = open(in("shared"), O_CREAT | O_WRONLY | O_APPEND, 0644);
        write(fd, "0123456789\n", 11);
        close(fd);
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, name);
        fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
        snprintf(text, sizeof text, "%d %d\n", mine, i);
        write(fd, text, strlen(text));
        close(fd);
        pthread_mutex_lock(&mutex);
        total += i;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    turns++;
    pthread_cond_broadcast(&cond);
    while (turns < THREADS) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return (void *)(intptr_t)mine;
}
static void threads(void) {
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], 0, appends, (void *)i);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *gives;
        pthread_join(t[i], &gives);
        sum += (long)gives;
    }
    say("sum", sum);
    say("total", total);
    struct stat st;
    stat(in("shared"), &st);
    say("shared", st.st_size);
    show("thread3");
}

static void *short_life(void *fd) {
    write((int)(intptr_t)fd, "d", 1);
    __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
    return 0;
}
static void detached(void) {
    int fd = open(in("detached"), O_CREAT | O_WRONLY | O_APPEND, 0644);
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&a, 65536);
    for (int i = 0; i < 2000; i++) {
        pthread_t t;
        int code;
        while ((code = pthread_create(&t, &a, short_life, (void *)(intptr_t)fd)) == EAGAIN) usleep(100);
        if (code) say("create", code);
    }
    while (__atomic_load_n(&turns, __ATOMIC_SEQ_CST) < 2000) usleep(1000);
    say("detached", lseek(fd, 0, SEEK_END));
}

static void processes(void) {
    put("p", "begin\n");
    int fd = open(in("p"), O_WRONLY | O_APPEND);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (!pid) {
            char text[32];
            snprintf(text, sizeof text, "child %d\n", i);
            write(fd, text, strlen(text));
            _exit(i);
        }
        int status;
        waitpid(pid, &status, 0);
        say("status", WEXITSTATUS(status));
    }
    pid_t pid = vfork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", "echo by vfork >>\"$0\"; exit 9", in("p"), (char *)0);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    say("vfork", WEXITSTATUS(status));
    char *argv[] = {"sh", "-c", "cat >>\"$0\"; echo $VAR >>\"$0\"", in("p"), 0}, *env[] = {"VAR=spawned", "PATH=/bin:/usr/bin", 0};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    put("input", "from input\n");
    posix_spawn_file_actions_addopen(&actions, 0, in("input"), O_RDONLY, 0);
    int spawned = posix_spawn(&pid, "/bin/sh", &actions, 0, argv, env);
    waitpid(pid, &status, 0);
    say("spawn", spawned);
    say("spawned", status);
    say("spawn of none", posix_spawn(&pid, in("absent"), 0, 0, argv, env));
    say("spawnp of none", posix_spawnp(&pid, "no-such-program-x", 0, 0, argv, env));
    char command[5000];
    snprintf(command, sizeof command, "echo by system >>'%s'; exit 3", in("p"));
    status = system(command);
    say("system", WEXITSTATUS(status));
    snprintf(command, sizeof command, "cat '%s'; echo popen", in("p"));
    FILE *pipe = popen(command, "r");
    char line[256];
    while (fgets(line, sizeof line, pipe)) printf("> %s", line);
    say("pclose", pclose(pipe));
    snprintf(command, sizeof command, "cat >'%s'", in("w"));
    pipe = popen(command, "w");
    fputs("written to a pipe\n", pipe);
    say("pclose", pclose(pipe));
    show("w");
    // Itself, again.
    char exe[4096] = {0};
    readlink("/proc/self/exe", exe, sizeof exe - 1);
    say("exe", !strcmp(exe, realpath(self, line) ? line : ""));
    char *again[] = {self, "again", dir, 0};
    spawned = posix_spawn(&pid, self, 0, 0, again, environ);
    waitpid(pid, &status, 0);
    say("again", spawned);
    say("again ended", WEXITSTATUS(status));
    // A copy that lies in the directory.
    snprintf(command, sizeof command, "cp '%s' '%s'", self, in("copy"));
    say("cp", system(command));
    again[0] = in("copy");
    spawned = posix_spawn(&pid, again[0], 0, 0, again, environ);
    waitpid(pid, &status, 0);
    say("copy", spawned);
    say("copy ended", WEXITSTATUS(status));
    // A script, with an interpreter that is itself.
    snprintf(command, sizeof command, "#!%s script\n", in("copy"));
    put("script", command);
    chmod(in("script"), 0755);
    char *script[] = {in("script"), 0};
    spawned = posix_spawn(&pid, script[0], 0, 0, script, environ);
    waitpid(pid, &status, 0);
    say("script", spawned);
    say("script ended", WEXITSTATUS(status));
    fd = open(in("copy"), O_RDONLY);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (!(pid = fork())) {
        fexecve(fd, again, environ);
        _exit(100);
    }
    waitpid(pid, &status, 0);
    say("fexecve", WEXITSTATUS(status));
}
static void again(void) { puts("it is run again"); fflush(stdout); show("w"); exit(44); }

static volatile sig_atomic_t got, depth;
static void on_signal(int number) {
    int fd = open(in("by-signal"), O_CREAT | O_WRONLY | O_APPEND, 0644);
    write(fd, "s", 1);
    close(fd);
    got += number;
}
static sigjmp_buf jump;
static void jumps(int number, siginfo_t *info, void *context) { (void)info, (void)context; siglongjmp(jump, number); }
static void signals(void) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, 0);
    for (int i = 0; i < 20; i++) raise(SIGUSR1);
    say("got", got);
    struct stat st;
    stat(in("by-signal"), &st);
    say("size", st.st_size);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    say("blocked", got);
    sigset_t pending;
    sigpending(&pending);
    say("pending", sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, 0);
    say("unblocked", got);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    a.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &a, 0);
    raise(SIGUSR2);
    say("on stack", got);
    struct sigaction j = {.sa_sigaction = jumps, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &j, 0);
    sigaction(SIGBUS, &j, 0);
    int code = sigsetjmp(jump, 1);
    if (!code) *(volatile int *)8 = 1;
    say("segv", code);
    // A hole behind a file's end.
    int fd = open(in("short"), O_CREAT | O_RDWR, 0644);
    ftruncate(fd, 4096);
    char *map = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[0] = 'x';
    code = sigsetjmp(jump, 1);
    if (!code) map[8192] = 1;
    say("bus", code);
    ftruncate(fd, 16384);
    code = sigsetjmp(jump, 1);
    if (!code) map[8192] = 'y';
    say("grown", code);
    char bytes[2] = {0};
    pread(fd, bytes, 1, 8192);
    puts(bytes);
    say("read to hole", read(fd, map + 32768, 10) < 0 ? errno : 0);
    say("EFAULT", write(fd, (void *)8, 1) < 0 ? errno : 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    a.sa_flags = SA_RESTART;
    got = 0;
    sigaction(SIGALRM, &a, 0);
    setitimer(ITIMER_REAL, &timer, 0);
    unsigned char block[4096];
    for (int i = 0; i < 500 || got < 140; i++) {
        memset(block, i, sizeof block);
        if (pwrite(fd, block, sizeof block, (i % 16) * 4096) != sizeof block) say("pwrite", errno);
        if (pread(fd, block, sizeof block, (i % 16) * 4096) != sizeof block || block[7] != (unsigned char)i) say("pread", errno);
    }
    struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, 0);
    say("timer", got >= 140);
    // A system call that is interrupted.
    int ends[2];
    pipe(ends);
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, 0);
    ualarm(20000, 0);
    say("read interrupted", read(ends[0], bytes, 1) < 0 ? errno : 0);
    struct timespec wait = {5, 0}, left;
    ualarm(20000, 0);
    say("nanosleep", nanosleep(&wait, &left) < 0 ? errno : 0);
    sigemptyset(&set);
    ualarm(20000, 0);
    say("sigsuspend", sigsuspend(&set) < 0 ? errno : 0);
    ualarm(20000, 0);
    say("ppoll", ppoll(0, 0, 0, &set) < 0 ? errno : 0);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, 0);
    ualarm(20000, 0);
    int which;
    say("sigwait", sigwait(&set, &which));
    say("which", which);
    pid_t pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        struct rlimit no = {0, 0};
        setrlimit(RLIMIT_CORE, &no);
        *(volatile int *)8 = 1;
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    say("killed by", WTERMSIG(status));
    pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        abort();
    }
    waitpid(pid, &status, 0);
    say("aborted by", WTERMSIG(status));
}

static void mappings(void) {
    int fd = open(in("m"), O_CREAT | O_RDWR, 0644);
    ftruncate(fd, 3 << 20);
    unsigned char *map = mmap(0, 3 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3 << 20; i += 4096) map[i] = i >> 12;
    say("msync", msync(map, 3 << 20, MS_SYNC));
    unsigned char bytes[8192];
    pread(fd, bytes, 8192, 1 << 20);
    say("sum", sum_of(bytes, 8192));
    unsigned char *own = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 1 << 20);
    own[5] = 99;
    pread(fd, bytes, 8192, 1 << 20);
    say("private", bytes[5]);
    map = mremap(map, 3 << 20, 4 << 20, MREMAP_MAYMOVE);
    ftruncate(fd, 4 << 20);
    map[(4 << 20) - 1] = 7;
    say("mremap", map[4096]);
    pid_t pid = fork();
    if (!pid) { map[9] = 55; _exit(0); }
    waitpid(pid, 0, 0);
    say("shared by fork", map[9]);
    say("munmap", munmap(map, 4 << 20));
    map = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    say("exec map", map != MAP_FAILED);
    say("mprotect", mprotect(own, 4096, PROT_NONE));
    say("EFAULT", pread(fd, own, 10, 0) < 0 ? errno : 0);
    void *start = sbrk(0);
    // musl has no other one.
    syscall(SYS_brk, (char *)start + (1 << 20));
    say("brk", sbrk(0) == (char *)start + (1 << 20));
    memset(start, 1, 1 << 20);
    syscall(SYS_brk, start);
    say("brk back", sbrk(0) == start);
    char *blocks[100];
    for (int i = 0; i < 100; i++) memset(blocks[i] = malloc(i * 5000 + 1), i, i * 5000 + 1);
    for (int i = 0; i < 100; i++) free(blocks[i]);
}

struct shared { pthread_mutex_t mutex; int value; int ready; };
static struct shared *both;
static void *locks(void *way) {
    pthread_mutex_lock(&both->mutex);
    both->value++;
    __atomic_store_n(&both->ready, 1, __ATOMIC_SEQ_CST);
    if (way) pause();
    return 0;
}
static struct shared *new_shared(const char *name) {
    int fd = open(in(name), O_CREAT | O_RDWR | O_TRUNC, 0644);
    ftruncate(fd, 4096);
    both = extra && !strcmp(extra, "anonymous") ? mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                                                : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(both, 0, sizeof *both);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    say("init", pthread_mutex_init(&both->mutex, &a));
    return both;
}
static void lock_after(const char *what) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    int code = pthread_mutex_timedlock(&both->mutex, &until);
    say(what, code);
    if (code == EOWNERDEAD) {
        say("consistent", pthread_mutex_consistent(&both->mutex));
        say("unlock", pthread_mutex_unlock(&both->mutex));
    }
}
static void robust(void) {
    new_shared("robust1");
    pthread_t t;
    pthread_create(&t, 0, locks, 0);
    pthread_join(t, 0);
    lock_after("thread that ended");
    for (int way = 0; way < 6; way++) {
        new_shared("robust2");
        pid_t pid = fork();
        if (!pid) {
            if (way < 3) {
                locks(0);
            } else {
                pthread_create(&t, 0, locks, (void *)1);
                while (!__atomic_load_n(&both->ready, __ATOMIC_SEQ_CST)) usleep(1000);
            }
            if (way % 3 == 0) kill(getpid(), SIGKILL);
            if (way % 3 == 1) _exit(0);
            execl("/bin/true", "true", (char *)0);
            _exit(1);
        }
        int status;
        waitpid(pid, &status, 0);
        char text[64];
        snprintf(text, sizeof text, "%s, %s", way < 3 ? "first thread" : "second thread",
                 way % 3 == 0 ? "killed" : way % 3 == 1 ? "exited" : "executed");
        lock_after(text);
    }
}

static int cleaned;
static void cleans(void *name) {
    (void)name;
    int fd = open(in("cancelled"), O_CREAT | O_WRONLY | O_APPEND, 0644);
    write(fd, "c", 1);
    close(fd);
    cleaned++;
}
static void *waits(void *fd) {
    char byte;
    pthread_cleanup_push(cleans, 0);
    __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
    read((int)(intptr_t)fd, &byte, 1);
    pthread_cleanup_pop(0);
    return 0;
}
static void *writes_ever(void *unused) {
    (void)unused;
    pthread_cleanup_push(cleans, 0);
    int fd = open(in("ever"), O_CREAT | O_WRONLY, 0644);
    __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
    for (;;) pwrite(fd, "0123456789", 10, 0);
    pthread_cleanup_pop(0);
    return 0;
}
static void *spins(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
    for (;;) __asm__ volatile("pause");
    return 0;
}
static void *pauses(void *unused) {
    pthread_cleanup_push(cleans, 0);
    __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
    pause();
    pthread_cleanup_pop(0);
    return unused;
}
// At all moments of a call: the signal comes after so many turns of a loop.
static void cancel(void) {
    int ends[2];
    pipe(ends);
    void *(*ways[])(void *) = {waits, writes_ever, spins, pauses};
    for (int round = 0; round < 400; round++) {
        pthread_t t;
        turns = 0;
        pthread_create(&t, 0, ways[round % 4], (void *)(intptr_t)ends[0]);
        while (!__atomic_load_n(&turns, __ATOMIC_SEQ_CST)) sched_yield();
        for (volatile int turn = round * 37 % 100 * 60; turn > 0; turn--) ;
        pthread_cancel(t);
        void *gives;
        pthread_join(t, &gives);
        if (gives != PTHREAD_CANCELED) say("not cancelled", round);
    }
    say("cleaned", cleaned);
    struct stat st;
    stat(in("cancelled"), &st);
    say("size", st.st_size);
}

static void clocks(void) {
    clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
                       CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_REALTIME_COARSE};
    for (int i = 0; i < 8; i++) {
        struct timespec a, b;
        int code = clock_gettime(all[i], &a);
        for (int turn = 0; turn < 1000; turn++) clock_gettime(all[i], &b);
        printf("clock %d %d %d\n", i, code, b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
    }
    struct timeval tv;
    say("gettimeofday", gettimeofday(&tv, 0));
    say("time", time(0) > 1700000000);
    say("vdso", getauxval(AT_SYSINFO_EHDR) != 0);
    say("page", getauxval(AT_PAGESZ));
    say("random", getauxval(AT_RANDOM) != 0);
    say("uid", getauxval(AT_UID) == getuid());
    say("secure", getauxval(AT_SECURE));
    say("execfn", !strcmp((char *)getauxval(AT_EXECFN), self));
    say("cpu", sched_getcpu() >= 0);
}

static int stop;
static void *same_user(void *unused) {
    (void)unused;
    char byte;
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        int fd = open(in("users"), O_CREAT | O_RDWR, 0666);
        pread(fd, &byte, 1, 0);
        close(fd);
    }
    return (void *)(intptr_t)(geteuid() * 100000L + getegid());
}
static void users(void) {
    if (getuid()) { puts("not root"); return; }
    put("root-only", "x");
    chmod(in("root-only"), 0600);
    chmod(dir, 0777);
    umask(0);
    put("users", "u");
    chmod(in("users"), 0666);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, same_user, 0);
    usleep(20000);
    say("setegid", setegid(1234));
    say("seteuid", seteuid(1234));
    usleep(20000);
    say("open", open(in("root-only"), O_RDONLY) < 0 ? errno : 0);
    int fd = open(in("theirs"), O_CREAT | O_WRONLY, 0644);
    struct stat st;
    fstat(fd, &st);
    say("owner", st.st_uid * 100000L + st.st_gid);
    say("setuid", setuid(0));
    say("setgid", setgid(0));
    say("again", open(in("root-only"), O_RDONLY) < 0 ? errno : 0);
    say("setresgid", setresgid(77, 77, 77));
    say("setresuid", setresuid(77, 77, 77));
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 4; i++) {
        void *is;
        pthread_join(t[i], &is);
        say("thread is", (long)is);
    }
    say("open", open(in("root-only"), O_RDONLY) < 0 ? errno : 0);
}

static void *forks_beside(void *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        int status;
        pid_t pid = fork();
        if (!pid) {
            int fd = open(in("forked"), O_CREAT | O_WRONLY | O_APPEND, 0644);
            _exit(write(fd, "f", 1) != 1);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status) say("fork", errno);
    }
    return 0;
}
static void *spawns_beside(void *unused) {
    (void)unused;
    for (int i = 0; i < 15; i++) {
        int status;
        pid_t pid;
        char *argv[] = {"sh", "-c", "printf s >>\"$0\"", in("spawned"), 0};
        if (posix_spawn(&pid, "/bin/sh", 0, 0, argv, environ) || waitpid(pid, &status, 0) != pid || status) say("spawn", errno);
    }
    return 0;
}
static void beside(void) {
    pthread_t t[6];
    for (int i = 0; i < 6; i++) pthread_create(&t[i], 0, i < 2 ? forks_beside : i < 4 ? spawns_beside : appends, (void *)(intptr_t)i);
    turns = THREADS;
    for (int i = 0; i < 6; i++) pthread_join(t[i], 0);
    struct stat st;
    stat(in("forked"), &st);
    say("forked", st.st_size);
    stat(in("spawned"), &st);
    say("spawned", st.st_size);
    stat(in("shared"), &st);
    say("appended", st.st_size);
}

static void names(void) {
    char text[4096] = {0}, exe[4096] = {0};
    FILE *f = fopen("/proc/self/comm", "r");
    fgets(text, sizeof text, f);
    fclose(f);
    printf("comm %s", text);
    char name[17] = {0};
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    int fd = open("/proc/self/cmdline", O_RDONLY);
    long count = read(fd, text, sizeof text - 1);
    close(fd);
    for (long i = 0; i < count; i++) putchar(text[i] ? text[i] : ' ');
    putchar('\n');
    readlink("/proc/self/exe", exe, sizeof exe - 1);
    printf("exe %s\n", strrchr(exe, '/') + 1);
    memset(exe, 0, sizeof exe);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", getpid());
    readlink(path, exe, sizeof exe - 1);
    printf("exe by number %s\n", strrchr(exe, '/') + 1);
    fd = open("/proc/self/exe", O_RDONLY);
    int own = open(self, O_RDONLY);
    struct stat a, b;
    fstat(fd, &a);
    fstat(own, &b);
    say("same file", a.st_size == b.st_size);
    memset(text, 0, sizeof text);
    f = fopen("/proc/self/maps", "r");
    int found = 0;
    while (fgets(text, sizeof text, f)) found |= strstr(text, "musl_checks") != 0;
    say("in maps", found);
    for (char **v = environ; *v; v++)
        if (!strncmp(*v, "LD_", 3) || !strncmp(*v, "SOLERA", 6)) found++;
    say("descriptors", dup(0));
    for (int i = 3; i < 40; i++)
        if (fcntl(i, F_GETFD) >= 0 && i != dup(0)) found = found;
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    say("stack", limit.rlim_cur >> 10);
    pthread_setname_np(pthread_self(), "renamed");
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
}

static int deep(int depth) {
    volatile char room[1024];
    memset((char *)room, depth, sizeof room);
    return depth ? room[5] - room[5] + deep(depth - 1) + 1 : 0;
}
static void *deep_thread(void *unused) { (void)unused; return (void *)(intptr_t)deep(60); }
static void stacks(void) {
    say("deep", deep(7000));
    pthread_attr_t a;
    pthread_attr_init(&a);
    say("least", pthread_attr_setstacksize(&a, 131072));
    pthread_t t;
    void *gives;
    pthread_create(&t, &a, deep_thread, 0);
    pthread_join(t, &gives);
    say("in a thread", (long)gives);
    // A stack of one's own, and another call from it.
    char *own = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_setstack(&a, own, 65536);
    say("create", pthread_create(&t, &a, short_life, (void *)(intptr_t)open(in("stacked"), O_CREAT | O_WRONLY, 0644)));
    pthread_join(t, &gives);
    show("stacked");
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "script")) { printf("a script of %d\n", argc); return 45; }
    if (argc < 3) return 2;
    dir = argv[2];
    extra = argv[3];
    struct { const char *name; void (*run)(void); } all[] = {
        {"files", files}, {"threads", threads}, {"detached", detached}, {"processes", processes}, {"again", again},
        {"signals", signals}, {"mappings", mappings}, {"robust", robust}, {"cancel", cancel}, {"clocks", clocks},
        {"users", users}, {"beside", beside}, {"names", names}, {"stacks", stacks}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, argv[1])) { all[i].run(); return 0; }
    return 2;
}
