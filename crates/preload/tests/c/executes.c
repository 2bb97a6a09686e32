// exec in every form, and what is left of a process when it fails; spawn, popen and system with
// their attributes, signals and many at once.
#include "say.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern char **environ;

static int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void script(const char *path, const char *text) {
    put(path, text);
    chmod(path, 0755);
}

// Runs one exec in a child that has `out` as standard output; shows what came.
#define EXECUTES(call) \
    do { \
        int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644); \
        pid_t pid = fork(); \
        if (pid == 0) { \
            dup2(out, 1); \
            call; \
            _exit(errno); \
        } \
        close(out); \
        SAY(status_of(pid)); \
        show("out", __LINE__); \
    } while (0)

static void forms(void) {
    char *arguments[] = {"name", "one", "two", NULL};
    char *variables[] = {"V=variable", NULL}, *none[] = {NULL};
    script("script", "#!/bin/sh\necho \"$1 $2 $V\"; echo more > made\n");
    script("plain", "echo \"plain $1\"\n");
    script("printing", "#!/usr/bin/printf %s,\n");
    mkdir("bin", 0755);
    script("bin/found", "#!/bin/sh\necho found $0 | sed 's,/.*/,,'\n");
    script("bin/unformatted", "echo unformatted $1\n");
    int directory = open(".", O_RDONLY | O_DIRECTORY), file = open("script", O_RDONLY);
    EXECUTES(execve("script", arguments, variables));
    EXECUTES(execve("./script", arguments, none));
    EXECUTES(execve("script", arguments, NULL));
    EXECUTES(execl("script", "name", "one", "three", (char *)NULL));
    EXECUTES(execle("script", "name", "one", "three", (char *)NULL, variables));
    EXECUTES(execve("printing", arguments, variables));
    EXECUTES(execv("plain", arguments));
    EXECUTES(execvp("./plain", arguments));
    EXECUTES(execveat(directory, "script", arguments, variables, 0));
    EXECUTES(execveat(directory, "bin/../script", arguments, variables, 0));
    EXECUTES(execveat(AT_FDCWD, "script", arguments, variables, 0));
    EXECUTES(execveat(file, "", arguments, variables, AT_EMPTY_PATH));
    EXECUTES(execveat(file, "", arguments, variables, 0));
    EXECUTES(fexecve(file, arguments, variables));
    int sh = open("/bin/echo", O_RDONLY | O_CLOEXEC);
    EXECUTES(fexecve(sh, arguments, variables));
    EXECUTES(execveat(sh, "", arguments, variables, AT_EMPTY_PATH));
    EXECUTES(execveat(-1, "/bin/echo", arguments, variables, 0));
    EXECUTES(fexecve(99, arguments, variables));
    WORKS(symlink("script", "link") ? -1 : 0);
    EXECUTES(execveat(directory, "link", arguments, variables, 0));
    EXECUTES(execveat(directory, "link", arguments, variables, AT_SYMLINK_NOFOLLOW));
    char path[PATH_MAX], *here = getcwd(NULL, 0);
    snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", here);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    EXECUTES(execlp("found", "found", (char *)NULL));
    EXECUTES(execvp("unformatted", arguments));
    EXECUTES(execvpe("unformatted", arguments, none));
    EXECUTES(execlp("echo", "echo", "from the path", (char *)NULL));
    setenv("PATH", before, 1);
    SHOW("made");
    // A variable of the program's own, and one more library.
    setenv("LD_PRELOAD_TEST", "kept", 1);
    EXECUTES(execl("/bin/sh", "sh", "-c", "echo $LD_PRELOAD_TEST; env -i /bin/sh -c 'echo x > e; "
                   "cat e; unset LD_PRELOAD; cat e'", (char *)NULL));
    // A binary of this file system.
    SAY(system("cp /bin/echo own-echo && ./own-echo from here"));
    EXECUTES(execv("own-echo", arguments));
    EXECUTES(execveat(directory, "own-echo", arguments, environ, 0));
    chmod("own-echo", 0644);
    EXECUTES(execv("own-echo", arguments));
    close(directory);
    close(file);
    close(sh);
}

static void failing(void) {
    char *arguments[] = {"x", NULL};
    int fd = open("left", O_RDWR | O_CREAT | O_TRUNC, 0644), cloexec = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    struct flock lock = {.l_type = F_WRLCK, .l_start = 0, .l_len = 5};
    SAY(fcntl(fd, F_SETLK, &lock));
    mkdir("somewhere", 0755);
    SAY(chdir("somewhere"));
    sigset_t some, now;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigprocmask(SIG_BLOCK, &some, NULL);
    put("no-format", "\177ELX");
    chmod("no-format", 0755);
    put("empty", "");
    chmod("empty", 0755);
    script("no-interpreter", "#!/none/none\n");
    script("loop", "#!./loop\n");
    put("not-executable", "#!/bin/sh\n");
    chmod("not-executable", 0600);
    SAY(execv("none", arguments));
    SAY(execv("../left", arguments));
    SAY(execv("no-format", arguments));
    SAY(execv("empty", arguments));
    SAY(execv("no-interpreter", arguments));
    SAY(execv("not-executable", arguments));
    SAY(execv(".", arguments));
    SAY(execv("../left/x", arguments));
    SAY(execv("", arguments));
    SAY(execv("/etc/passwd", arguments));
    SAY(execvp("no-format", arguments));
    SAY(execvp("", arguments));
    static char large[3 << 20];
    memset(large, 'x', sizeof large - 1);
    char *too_large[] = {"x", large, NULL};
    SAY(execv("/bin/true", too_large));
    // As it was.
    SAY(write(fd, "left", 4));
    SAY(write(cloexec, " it", 3));
    SAY(fcntl(cloexec, F_GETFD));
    SAY(fcntl(fd, F_GETFD));
    sigprocmask(SIG_SETMASK, NULL, &now);
    SAY(sigismember(&now, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &some, NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(fcntl(fd, F_SETLK, &lock) == 0);
    SAY(status_of(pid));
    SAY(chdir(".."));
    SHOW("left");
    // What exec keeps: a record lock; what it does not.
    pid = fork();
    if (pid == 0) {
        int own = open("locked", O_RDWR | O_CREAT, 0644);
        fcntl(own, F_SETLK, &lock);
        execl("/bin/sh", "sh", "-c",
              "echo locked > locking; while [ ! -e asked ]; do sleep 0.01; done", (char *)NULL);
    }
    while (access("locking", F_OK) != 0)
        usleep(1000);
    int other = open("locked", O_RDWR);
    SAY(fcntl(other, F_SETLK, &lock));
    put("asked", "");
    SAY(status_of(pid));
    SAY(fcntl(other, F_SETLK, &lock));
    close(other);
    close(fd);
    close(cloexec);
}

static atomic_int stop;

static void *busy(void *name) {
    while (!stop) {
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (write(fd, "busy", 4) != 4)
            break;
        close(fd);
        unlink(name);
    }
    return NULL;
}

// One thread executes while the others are inside calls.
static void *execs(void *fd) {
    dup2(*(int *)fd, 1);
    execl("/bin/sh", "sh", "-c", "echo a thread; rm -f busy*", (char *)NULL);
    return NULL;
}

static void from_a_thread(void) {
    for (int round = 0; round < 10; round++) {
        int fd = open("by-thread", O_RDWR | O_CREAT | O_TRUNC, 0644);
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, busy, "busy1");
            pthread_create(&thread, NULL, busy, "busy2");
            usleep(2000);
            pthread_create(&thread, NULL, execs, &fd);
            pause();
        }
        int status = status_of(pid);
        if (status != 0 || round == 9) {
            SAY(status);
            SHOW("by-thread");
        }
        close(fd);
    }
}

static void attributes(void) {
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawnattr_init(&attr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    posix_spawnattr_setsigmask(&attr, &set);
    signal(SIGUSR2, SIG_IGN);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGUSR2);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    mkdir("down", 0755);
    int down = open("down", O_RDONLY | O_DIRECTORY);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addfchdir_np(&actions, down);
    posix_spawn_file_actions_addopen(&actions, 1, "said", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    char *arguments[] = {"grep", "-E", "SigBlk", "/proc/self/status", NULL};
    SAY(posix_spawn(&pid, "/bin/grep", &actions, &attr, arguments, environ));
    SAY(status_of(pid));
    SHOW("down/said");
    char *group[] = {"sh", "-c", "test $(cut -d' ' -f5 /proc/$$/stat) = $$; echo $?; pwd | "
                     "sed 's,.*/,,'; kill -USR2 $$", NULL};
    SAY(posix_spawn(&pid, "/bin/sh", &actions, &attr, group, environ));
    SAY(status_of(pid));
    SHOW("down/said");
    // The error is told although all numbers are closed.
    SAY(posix_spawn(&pid, "/none", &actions, &attr, arguments, environ));
    SAY(posix_spawnp(&pid, "no-such-program", NULL, NULL, arguments, environ));
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    char *session[] = {"sh", "-c", "test $(cut -d' ' -f6 /proc/$$/stat) = $$", NULL};
    SAY(posix_spawn(&pid, "/bin/sh", NULL, &attr, session, environ));
    SAY(status_of(pid));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    signal(SIGUSR2, SIG_DFL);
    close(down);
}

static void streams(void) {
    FILE *all[20];
    char command[64];
    for (int at = 0; at < 20; at++) {
        snprintf(command, sizeof command, "cat > many%d", at);
        all[at] = popen(command, at % 2 ? "w" : "we");
        fprintf(all[at], "stream %d", at);
    }
    // Each ends by itself: no other command holds its pipe open.
    int statuses = 0;
    for (int at = 0; at < 20; at++)
        statuses |= pclose(all[at]);
    SAY(statuses);
    SHOW("many0");
    SHOW("many19");
    errno = 0;
    SAY(popen("true", "x") == NULL);
    SAY(errno);
    FILE *stream = popen("exit 3", "r");
    SAY(pclose(stream));
    stream = popen("none-such-command 2>/dev/null", "r");
    SAY(pclose(stream));
    stream = popen("cat many1; echo", "re");
    SAY(fcntl(fileno(stream), F_GETFD));
    char line[64] = {0};
    fgets(line, sizeof line, stream);
    SAY_TEXT(line);
    SAY(pclose(stream));
}

static atomic_int interrupted, reaped;
static void on_interrupt(int signal) { interrupted++; }
static void on_child(int signal) { reaped++; }

static void shells(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = on_child;
    sigaction(SIGCHLD, &action, NULL);
    // The parent ignores it while the command runs; the command gets it.
    SAY(system("kill -INT $PPID; echo x > by-system"));
    SAY(interrupted);
    SAY(system("kill -INT $$"));
    SAY(system("kill -QUIT $PPID"));
    SAY(reaped);
    raise(SIGINT);
    SAY(interrupted);
    SAY(system("none-such-command 2>/dev/null"));
    signal(SIGINT, SIG_DFL);
    signal(SIGCHLD, SIG_IGN);
    SAY(system("true"));
    signal(SIGCHLD, SIG_DFL);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    forms();
    failing();
    from_a_thread();
    attributes();
    streams();
    shells();
    return 0;
}
