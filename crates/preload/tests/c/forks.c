// Forks of every kind: by threads in the middle of calls, with handlers that do I/O, by system calls
// that no library sees; vfork and its wait; what a child may and may not take from its parent.
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, __WALL) == pid ? status : -1;
}

// What a child does that must work at any moment: files, streams, names, mappings, locks.
static int work(const char *name) {
    char text[64], path[64];
    snprintf(path, sizeof path, "%s.new", name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, name, strlen(name)) != (ssize_t)strlen(name))
        return 1;
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || memcmp(map, name, strlen(name)) != 0)
        return 2;
    map[0] = 'M';
    munmap(map, 4096);
    if (flock(fd, LOCK_EX) != 0 || close(fd) != 0)
        return 3;
    FILE *stream = fopen(path, "r");
    if (!stream || !fgets(text, sizeof text, stream) || text[0] != 'M' || fclose(stream) != 0)
        return 4;
    char *here = getcwd(NULL, 0);
    if (!here || chdir(here) != 0)
        return 5;
    free(here);
    if (rename(path, name) != 0 || unlink(name) != 0)
        return 6;
    return 0;
}

#define THREADS 4
#define FORKS 40

static atomic_int failures, children;

static void *forking(void *argument) {
    char name[32];
    for (int round = 0; round < FORKS; round++) {
        snprintf(name, sizeof name, "t%ld-%d", (long)argument, round);
        if (work(name) != 0)
            failures++;
        pid_t pid = fork();
        if (pid == 0) {
            strcat(name, "c");
            _exit(work(name));
        }
        if (pid < 0 || status_of(pid) != 0)
            failures++;
        else
            children++;
    }
    return NULL;
}

static void from_threads(void) {
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, forking, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    SAY(failures);
    SAY(children);
}

static int log_of_handlers = -1;

static void note(const char *what) {
    if (log_of_handlers >= 0 && write(log_of_handlers, what, strlen(what)) < 0)
        failures++;
}
static void before_first(void) { note("before 1, "); }
static void before_second(void) { note("before 2, "); close(open("h2", O_CREAT | O_RDWR, 0600)); }
static void in_parent(void) { note("parent, "); }
static void in_child(void) { note("child, "); close(open("hc", O_CREAT | O_RDWR, 0600)); }

static void with_handlers(void) {
    pthread_atfork(before_first, in_parent, in_child);
    pthread_atfork(before_second, NULL, NULL);
    log_of_handlers = open("handlers", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int pipes[2];
    SAY(pipe(pipes));
    pid_t pid = fork();
    char byte;
    if (pid == 0) {
        close(pipes[1]);
        if (read(pipes[0], &byte, 1) != 0)
            _exit(1);
        note("end");
        _exit(0);
    }
    // The child's handler may run before the parent's: it is let go only now.
    close(pipes[0]);
    close(pipes[1]);
    SAY(status_of(pid));
    char text[128] = {0};
    SAY(pread(log_of_handlers, text, sizeof text, 0));
    SAY(strstr(text, "before 2, before 1, ") == text);
    SAY(strstr(text, "child, ") && strstr(text, "parent, ") && strstr(text, "end"));
    SAY(access("h2", F_OK) | access("hc", F_OK));
    // Not by these.
    SAY(ftruncate(log_of_handlers, 0));
    pid = _Fork();
    if (pid == 0)
        _exit(work("underscore"));
    SAY(status_of(pid));
    pid = vfork();
    if (pid == 0)
        _exit(4);
    SAY(status_of(pid));
    SAY(system("true"));
    SAY(pread(log_of_handlers, text, sizeof text, 0));
    close(log_of_handlers);
    log_of_handlers = -1;
}

// The child of a vfork is through, or executes something, before its parent goes on.
static void vfork_waits(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        usleep(30000);
        close(open("by-vfork", O_CREAT | O_RDWR, 0600));
        _exit(0);
    }
    SAY(access("by-vfork", F_OK));
    SAY(status_of(pid));
    char *arguments[] = {"sh", "-c", "echo x > by-exec; sleep 0.1", NULL};
    int fd = open("by-dup", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pid = vfork();
    if (pid == 0) {
        close_range(3, fd - 1, 0);
        dup2(fd, 1);
        execv("/bin/sh", arguments);
        _exit(9);
    }
    // What the child did to its numbers is its own affair.
    SAY(write(fd, "parent", 6));
    SAY(status_of(pid));
    SHOW("by-dup");
    close(fd);
}

static char stack[1 << 16] __attribute__((aligned(64)));

static int in_clone(void *name) { return work(name) + 40; }
static int sharing(void *fd) {
    // Another process, the same descriptors and memory.
    return dup2(*(int *)fd, 70) == 70 && write(70, "clone", 5) == 5 ? 7 : 8;
}
static int executing(void *fd) {
    dup2(*(int *)fd, 1);
    execl("/bin/sh", "sh", "-c", "echo from a clone", (char *)NULL);
    return 9;
}

static void clones(void) {
    char *top = stack + sizeof stack;
    SAY(status_of(clone(in_clone, top, SIGCHLD, "cloned")));
    SAY(status_of(clone(in_clone, top, 0, "silent")));
    int fd = open("clones", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(status_of(clone(sharing, top, CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, &fd)));
    SAY(write(70, " parent ", 8));
    SAY(close(70));
    SAY(status_of(clone(executing, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &fd)));
    SHOW("clones");
    SAY(clone(in_clone, NULL, SIGCHLD, "x"));
    close(fd);
}

// Children that no library was told of: they see what a fork would have given them, and their
// parent is not touched.
static void raw(void) {
    int fd = open("raw", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct flock lock = {.l_type = F_WRLCK, .l_start = 0, .l_len = 5};
    SAY(fcntl(fd, F_SETLK, &lock));
    pid_t pid = syscall(SYS_fork);
    if (pid == 0) {
        if (write(fd, "child ", 6) != 6)
            _exit(1);
        // A lock of the parent's is not the child's.
        struct flock mine = {.l_type = F_WRLCK, .l_start = 0, .l_len = 5};
        if (fcntl(fd, F_SETLK, &mine) == 0)
            _exit(2);
        _exit(work("rawly"));
    }
    SAY(status_of(pid));
    SAY(write(fd, "parent", 6));
    pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (pid == 0) {
        dup2(fd, 1);
        execl("/bin/sh", "sh", "-c", "echo executed; exit 3", (char *)NULL);
        _exit(9);
    }
    SAY(status_of(pid));
    pid = syscall(SYS_fork);
    if (pid == 0)
        syscall(SYS_exit_group, 5);
    SAY(status_of(pid));
    pid = syscall(SYS_fork);
    if (pid == 0) {
        pid = fork();
        if (pid == 0)
            exit(work("grandchild"));
        _exit(status_of(pid) == 0 ? 6 : 7);
    }
    SAY(status_of(pid));
    // Still the parent's.
    pid = fork();
    if (pid == 0) {
        struct flock mine = {.l_type = F_WRLCK, .l_start = 0, .l_len = 5};
        _exit(fcntl(fd, F_SETLK, &mine) == 0);
    }
    SAY(status_of(pid));
    SHOW("raw");
    close(fd);
}

static void *idle(void *fd) {
    char byte;
    return (void *)read(*(int *)fd, &byte, 1);
}

// A child that becomes a daemon while its parents end.
static void daemons(void) {
    for (int way = 0; way < 2; way++) {
        unlink("daemon");
        pid_t pid = fork();
        if (pid == 0) {
            char *here = getcwd(NULL, 0), path[PATH_MAX];
            snprintf(path, sizeof path, "%s/daemon.new", here);
            int kept = open("kept", O_RDWR | O_CREAT, 0644);
            if (way == 0) {
                if (fork() != 0)
                    _exit(0);
                setsid();
                if (fork() != 0)
                    _exit(0);
                chdir("/");
                umask(027);
                for (int fd = 0; fd < 1024; fd++)
                    close(fd);
            } else if (daemon(0, 0) != 0) {
                _exit(1);
            }
            usleep(20000);
            int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
            if (way == 1 && write(kept, "x", 1) != 1)
                _exit(1);
            if (write(fd, "daemon", 6) == 6) {
                snprintf(path, sizeof path, "%s/daemon", here);
                char old[PATH_MAX];
                snprintf(old, sizeof old, "%s/daemon.new", here);
                rename(old, path);
            }
            _exit(0);
        }
        SAY(status_of(pid));
        while (access("daemon", F_OK) != 0)
            usleep(1000);
        SHOW("daemon");
        struct stat stat_of_it;
        SAY(stat("daemon", &stat_of_it));
        SAY(stat_of_it.st_mode);
    }
}

static void last_words(void) {
    pid_t pid = fork();
    if (pid == 0) {
        int result = work("from-atexit");
        int fd = open("last", O_RDWR | O_CREAT | O_TRUNC, 0644);
        char text[8];
        snprintf(text, sizeof text, "%d", result);
        failures += write(fd, text, 1) != 1;
        _exit(0);
    }
    status_of(pid);
    SHOW("last");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    from_threads();
    with_handlers();
    vfork_waits();
    clones();
    raw();
    // Now a threaded parent, whose thread is in a call that does not touch the volume.
    int pipes[2];
    pthread_t thread;
    SAY(pipe(pipes));
    pthread_create(&thread, NULL, idle, &pipes[0]);
    raw();
    clones();
    close(pipes[1]);
    pthread_join(thread, NULL);
    daemons();
    atexit(last_words);
    return 0;
}
