// A program that lowers its limit of numbers below some that are open: its children fork, execute and end
// as before, those that come later find the volume, and numbers beyond the limit are inherited.
#include "say.h"
#include <spawn.h>
#include <sys/resource.h>

enum { HIGH = 200, LIMIT = 64 };

static long ended(pid_t pid) {
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1000 - status;
}

// In a new image: what is inherited, and what is found by name.
static int again(void) {
    char text[8] = "";
    int fd = open("content", O_RDONLY);
    if (fd < 0 || pread(fd, text, 7, 0) != 7 || strcmp(text, "content"))
        return 21;
    if (fcntl(HIGH, F_GETFD) == 0 && (pread(HIGH, text, 7, 0) != 7 || strcmp(text, "inherit")))
        return 22;
    return 20;
}

static void children(void) {
    char *const arguments[] = {"/proc/self/exe", "-", "again", NULL};
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct stat found;
            _exit(stat("content", &found) == 0 ? 10 : 11);
        }
        SAY(ended(pid));
        pid = fork();
        if (pid == 0) {
            execv(arguments[0], arguments);
            _exit(12);
        }
        SAY(ended(pid));
        SAY(posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ));
        SAY(ended(pid));
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[2], "again"))
        return again();
    enter(argc, argv);
    put("content", "content");
    put("inherited", "inherit");
    int fd = open("inherited", O_RDONLY);
    SAY(dup2(fd, HIGH));
    close(fd);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = LIMIT;
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    children();
    SAY(close(HIGH));
    limit.rlim_max = LIMIT;
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    children();
    getrlimit(RLIMIT_NOFILE, &limit);
    SAY(limit.rlim_cur);
    return 0;
}
