// Children that share their parent's memory until they execute something, of a process that has nothing of
// the directory open behind an exec: what they do, how they end, and that nothing of it is left behind.
#include "say.h"
#include <pthread.h>
#include <spawn.h>
#include <sched.h>
#include <sys/ptrace.h>

extern char **environ;
static volatile int told;
static char outside[] = "/tmp/solera-lends-XXXXXX";

static void on_child(int signal) {
    (void)signal;
    told++;
}

// How a child ended, and how often this process was told.
static int ended(pid_t pid) {
    int status = -1;
    if (pid < 0)
        return -1;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return status * 100 + told;
}

// The child's part is a statement, which does not come back.
#define CHILD(statement) \
    do { \
        told = 0; \
        pid_t pid = vfork(); \
        if (pid == 0) { \
            statement; \
            _exit(99); \
        } \
        SAY(ended(pid)); \
    } while (0)

static char *arguments(const char *first, const char *second) {
    static char *list[3];
    list[0] = (char *)first, list[1] = (char *)second, list[2] = NULL;
    return (char *)list;
}

static const char *contents(const char *path) {
    static char bytes[200];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return strerrorname_np(errno);
    ssize_t length = read(fd, bytes, sizeof bytes - 1);
    bytes[length > 0 ? length : 0] = 0;
    close(fd);
    return bytes;
}

static void put_mode(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    write(fd, text, strlen(text));
    close(fd);
}

static int into(const char *path, int flags) {
    int fd = open(path, flags | O_WRONLY | O_CREAT, 0600);
    return fd < 0 ? -1 : dup2(fd, 1);
}

static int numbers(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    int count = 0;
    for (int byte; (byte = fgetc(maps)) != EOF;)
        count += byte == '\n';
    fclose(maps);
    return count;
}

static void ends(void) {
    CHILD(execl("/bin/true", "true", NULL));
    CHILD(execl("/bin/false", "false", NULL));
    CHILD(_exit(3));
    CHILD(execl("/nowhere/at/all", "x", NULL); _exit(errno == ENOENT ? 5 : 6));
    CHILD(execl("/tmp", "x", NULL); _exit(errno == EACCES ? 5 : 6));
    CHILD(execl("/etc/passwd", "x", NULL); _exit(errno == EACCES ? 5 : 6));
    CHILD(execv((char *)8, NULL); _exit(errno == EFAULT ? 5 : 6));
    CHILD(kill(getpid(), SIGTERM));
    CHILD(kill(getpid(), SIGKILL));
    CHILD(execlp("true", "true", NULL));
    CHILD(execlp("solera-has-no-such-program", "x", NULL); _exit(errno == ENOENT ? 5 : 6));
    CHILD(execl("/bin/sh", "sh", "-c", "kill -USR1 $$", NULL));
    // It is told nothing of a child that it does not want to be told of.
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(3);
    SAY(waitpid(pid, NULL, 0));
    signal(SIGCHLD, on_child);
    // What it writes to memory is its parent's.
    volatile int seen = 0;
    CHILD(seen = 7; execl("/bin/true", "true", NULL));
    SAY(seen);
    CHILD(seen = 8; _exit(0));
    SAY(seen);
    CHILD(into("made", O_TRUNC); seen = 9; _exit(0));
    SAY(seen);
}

static void executes(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/script", outside);
    put_mode(path, "#!/bin/sh\necho \"$0 $1\" | sed 's,.*/,,'\n", 0700);
    CHILD(into("made", O_TRUNC); execl(path, "x", "one", NULL));
    SAY_TEXT(contents("made"));
    put_mode("script", "#!/bin/sh\necho here $1\n", 0700);
    CHILD(into("made", O_TRUNC); execl("./script", "x", "two", NULL));
    SAY_TEXT(contents("made"));
    char whole[PATH_MAX], here[PATH_MAX];
    getcwd(here, sizeof here);
    snprintf(whole, sizeof whole, "%s/script", here);
    snprintf(path, sizeof path, "%s/link", outside);
    symlink(whole, path);
    CHILD(into("made", O_TRUNC); execl(path, "x", "three", NULL));
    SAY_TEXT(contents("made"));
    snprintf(path, sizeof path, "%s/plain", outside);
    put_mode(path, "echo plain\n", 0700);
    CHILD(execl(path, "x", NULL); _exit(errno == ENOEXEC ? 5 : 6));
    CHILD(into("made", O_TRUNC); execlp(path, "x", NULL));
    SAY_TEXT(contents("made"));
    // An environment of its own, with nothing in it.
    char *nothing[] = {NULL}, *one[] = {"A=b", NULL};
    CHILD(into("made", O_TRUNC); execle("/bin/sh", "sh", "-c", "echo $A.$HOME >&1; cat script | wc -l", NULL, one));
    SAY_TEXT(contents("made"));
    CHILD(into("made", O_TRUNC); execle("/bin/cat", "cat", whole, NULL, nothing));
    SAY_TEXT(contents("made"));
    // From a directory outside, by relative paths.
    CHILD(chdir(outside); into("made", O_TRUNC); execl("./script", "x", "four", NULL));
    chdir(outside);
    SAY_TEXT(contents("made"));
    CHILD(into("made", O_TRUNC); execl("script", "x", "five", NULL));
    SAY_TEXT(contents("made"));
    CHILD(into("made", O_TRUNC); execl("link", "x", "six", NULL));
    SAY_TEXT(contents("made"));
    chdir(here);
    SAY_TEXT(contents("made"));
}

// As debuggers start a program: they are told of its exec by a stop.
static void traced(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execve("/bin/true", (char *[]){"true", NULL}, environ);
        _exit(98);
    }
    int status = -1;
    SAY(waitpid(pid, &status, 0) == pid);
    SAY(WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    SAY(ptrace(PTRACE_CONT, pid, NULL, NULL));
    SAY(waitpid(pid, &status, 0) == pid);
    SAY(status);
}

static void numbers_move(void) {
    int ends[2];
    char bytes[100];
    pipe2(ends, O_CLOEXEC);
    CHILD(dup2(ends[1], 1); close(0); execl("/bin/sh", "sh", "-c", "echo moved", NULL));
    SAY(read(ends[0], bytes, sizeof bytes));
    CHILD(dup2(ends[1], 1); close_range(3, ~0U, 0); execl("/bin/sh", "sh", "-c", "echo ranged; test -e /proc/self/fd/100", NULL));
    SAY(read(ends[0], bytes, sizeof bytes));
    CHILD(dup2(ends[1], 1); for (int fd = 3; fd < 1100; fd++) close(fd); into("made", O_TRUNC); dup2(1, 900);
          execl("/bin/sh", "sh", "-c", "echo all; test -e /proc/self/fd/100", NULL));
    SAY_TEXT(contents("made"));
    CHILD(dup2(ends[1], 1000); fcntl(1000, F_SETFD, FD_CLOEXEC); write(1000, "kept\n", 5); execl("/bin/true", "true", NULL));
    SAY(read(ends[0], bytes, sizeof bytes));
    close(ends[0]), close(ends[1]);
    int kept = open("kept", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    write(kept, "0123456789", 10);
    CHILD(lseek(kept, 2, SEEK_SET); write(kept, "x", 1); execl("/bin/true", "true", NULL));
    SAY(lseek(kept, 0, SEEK_CUR));
    SAY_TEXT(contents("kept"));
    CHILD(dup2(kept, 1); execl("/bin/echo", "echo", "end", NULL));
    SAY_TEXT(contents("kept"));
    CHILD(close(kept); execl("/bin/true", "true", NULL));
    SAY(lseek(kept, 0, SEEK_CUR));
    // Closed with all others, and then something that it does not do in its parent's memory.
    CHILD(close_range(3, ~0U, 0); into("made", O_TRUNC); execl("/bin/echo", "echo", "closed", NULL));
    SAY_TEXT(contents("made"));
    CHILD(close_range(3, ~0U, 0); execl("/root/.none/true", "x", NULL); execl("/bin/true", "true", NULL));
    CHILD(close_range(3, ~0U, 0); chdir("."); _exit(fcntl(kept, F_GETFD) == -1 ? 5 : 6));
    CHILD(close_range(3, ~0U, 0); int null = open("/dev/null", O_RDONLY); chdir("."); _exit(null * 10 + read(null, bytes, 1)));
    CHILD(close_range(3, ~0U, 0); int copy = dup(ends[1]); chdir("."); _exit(copy + 10));
    CHILD(close_range(3, ~0U, 0); int copy = dup(0); chdir("."); _exit(copy * 10 + (lseek(copy, 0, SEEK_END) == 10)));
    CHILD(close_range(3, ~0U, 0); _exit(dup2(kept, 7) == -1 && dup2(0, kept) == kept ? 5 : 6));
    CHILD(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); chdir("."); _exit(write(kept, "c", 1)));
    SAY_TEXT(contents("kept"));
    fcntl(kept, F_SETFD, 0);
    CHILD(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); chdir("."); _exit(fcntl(kept, F_GETFD)));
    SAY(fcntl(kept, F_GETFD));
    close(kept);
    CHILD(into("/dev/null", 0); execl("/bin/echo", "echo", "nothing", NULL));
    CHILD(umask(077); into("masked", 0); execl("/bin/true", "true", NULL));
    mode_t mask = umask(0);
    SAY(mask), umask(mask);
}

static void masks(void) {
    sigset_t all, before, after;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    sigprocmask(SIG_SETMASK, NULL, &all);
    pid_t pid = vfork();
    told = 0;
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execl("/bin/sh", "sh", "-c", "kill -TERM $$", NULL);
        _exit(99);
    }
    sigprocmask(SIG_SETMASK, NULL, &after);
    SAY(memcmp(&after, &all, 8));
    sigprocmask(SIG_SETMASK, &before, NULL);
    SAY(ended(pid));
    signal(SIGUSR1, SIG_IGN), signal(SIGUSR2, on_child);
    CHILD(signal(SIGUSR2, SIG_IGN); execl("/bin/sh", "sh", "-c", "kill -USR1 $$; kill -USR2 $$; exit 4", NULL));
    CHILD(execl("/bin/sh", "sh", "-c", "kill -USR1 $$; kill -USR2 $$; exit 4", NULL));
    CHILD(signal(SIGSEGV, SIG_DFL); signal(SIGBUS, SIG_IGN); execl("/bin/sh", "sh", "-c", "kill -BUS $$; exit 4", NULL));
    SAY(signal(SIGUSR2, SIG_DFL) == on_child);
}

static void spawns(void) {
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    SAY(posix_spawn(&pid, "/nowhere", NULL, NULL, (char **)arguments("x", NULL), environ));
    SAY(posix_spawnp(&pid, "solera-has-none", NULL, NULL, (char **)arguments("x", NULL), environ));
    SAY(posix_spawnp(&pid, "true", NULL, NULL, (char **)arguments("true", NULL), environ));
    SAY(ended(pid) >> 8);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "made", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    SAY(posix_spawn(&pid, "/bin/echo", &actions, NULL, (char **)arguments("echo", "spawned"), environ));
    SAY(ended(pid) >> 8);
    SAY_TEXT(contents("made"));
    SAY(posix_spawn(&pid, "/nowhere", &actions, NULL, (char **)arguments("x", NULL), environ));
    posix_spawn_file_actions_addopen(&actions, 5, "none/at/all", O_RDONLY, 0);
    SAY(posix_spawn(&pid, "/bin/true", &actions, NULL, (char **)arguments("true", NULL), environ));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    mkdir("below", 0700);
    put_mode("below/script", "#!/bin/sh\npwd | sed 's,.*/,,' > told\n", 0700);
    posix_spawn_file_actions_addchdir_np(&actions, "below");
    SAY(posix_spawn(&pid, "./script", &actions, NULL, (char **)arguments("x", NULL), environ));
    SAY(ended(pid) >> 8);
    SAY_TEXT(contents("below/told"));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals), sigaddset(&signals, SIGUSR1);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    char *script[] = {"sh", "-c", "test $(ps -o pgid= -p $$) = $$ || exit 3; kill -USR1 $$; exit 4", NULL};
    SAY(posix_spawn(&pid, "/bin/sh", NULL, &attributes, script, environ));
    SAY(ended(pid) >> 8);
    posix_spawnattr_destroy(&attributes);
    SAY(system("echo system > made; exit 7"));
    SAY_TEXT(contents("made"));
    FILE *stream = popen("cat made; echo popen", "re");
    char line[100];
    while (fgets(line, sizeof line, stream))
        SAY_TEXT(line);
    SAY(pclose(stream));
}

enum { EACH = 60, THREADS = 3 };
static volatile int goes_on = 1;
static pid_t made[THREADS * EACH * 2], found[10000];
static int made_count, found_count, wrong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *makes(void *number) {
    char path[50];
    snprintf(path, sizeof path, "of-%ld", (long)number);
    for (int round = 0; round < EACH; round++) {
        pid_t pid = vfork();
        if (pid == 0) {
            if (round % 3 == 0)
                into(path, O_APPEND), execl("/bin/echo", "echo", "x", NULL);
            if (round % 3 == 1)
                execl("/nowhere", "x", NULL), _exit(9);
            execl("/bin/true", "true", NULL);
            _exit(99);
        }
        pthread_mutex_lock(&lock);
        made[made_count++] = pid;
        pthread_mutex_unlock(&lock);
        sched_yield();
        int status = -1;
        waitpid(pid, &status, 0);
        if (status != (round % 3 == 1 ? 9 << 8 : 0))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    return number;
}

// Sees all children that another thread could take away.
static void *watches(void *number) {
    while (goes_on && found_count < 10000) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid)
            found[found_count++] = info.si_pid;
        sched_yield();
    }
    return number;
}

static void *works(void *number) {
    while (goes_on) {
        put_mode("beside", "text", 0600);
        rename("beside", "beside too"), unlink("beside too");
        free(malloc(100000));
    }
    return number;
}

static void threads(void) {
    pthread_t all[THREADS + 2];
    pthread_create(&all[THREADS], NULL, watches, NULL);
    pthread_create(&all[THREADS + 1], NULL, works, NULL);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&all[number], NULL, makes, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(all[number], NULL);
    goes_on = 0;
    pthread_join(all[THREADS], NULL), pthread_join(all[THREADS + 1], NULL);
    SAY(wrong);
    int strange = 0;
    for (int one = 0; one < found_count; one++) {
        int known = 0;
        for (int other = 0; other < made_count; other++)
            known |= made[other] == found[one];
        strange += !known;
    }
    SAY(strange);
    for (int number = 0; number < THREADS; number++) {
        char path[50];
        snprintf(path, sizeof path, "of-%d", number);
        SAY(strlen(contents(path)));
    }
    SAY(waitpid(-1, NULL, WNOHANG));
}

static void interrupted(void) {
    signal(SIGALRM, on_child);
    struct itimerval each = {{0, 1000}, {0, 1000}}, none = {0};
    setitimer(ITIMER_REAL, &each, NULL);
    int right = 0;
    for (int round = 0; round < 200; round++) {
        pid_t pid = vfork();
        if (pid == 0) {
            signal(SIGALRM, SIG_DFL);
            if (round % 2)
                into("made", O_TRUNC);
            execl("/bin/true", "true", NULL);
            _exit(99);
        }
        int status = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        right += status == 0;
    }
    setitimer(ITIMER_REAL, &none, NULL);
    SAY(right);
    signal(SIGALRM, SIG_DFL);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    mkdtemp(outside);
    signal(SIGCHLD, on_child);
    ends();
    executes();
    traced();
    numbers_move();
    masks();
    spawns();
    int open = numbers(), mapped = mappings();
    interrupted();
    SAY(numbers() - open);
    SAY(mappings() - mapped > 4);
    threads();
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", outside);
    SAY(system(command));
    return 0;
}
