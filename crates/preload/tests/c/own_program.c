// A program that lies on the file system looks at itself by /proc/self/exe, and starts itself again by that.
#include "say.h"

static void copy_to(const char *path) {
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;)
        write(to, bytes, got);
    close(from), close(to);
}

static const char *last_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void looks(const char *link) {
    char path[PATH_MAX] = {0}, whole[PATH_MAX] = {0};
    struct stat named, own;
    SAY(readlink(link, path, sizeof path - 1) > 0);
    SAY_TEXT(last_of(path));
    SAY(realpath(link, whole) != NULL);
    SAY(strcmp(path, whole));
    SAY(stat(path, &named) | stat(link, &own));
    SAY(named.st_ino == own.st_ino && named.st_size == own.st_size);
    SAY(lstat(link, &own));
    SAY(S_ISLNK(own.st_mode));
    SAY(access(link, X_OK));
    SAY(open(link, O_WRONLY));
    SAY(readlink(link, path, 3));
    SAY(strncmp(path, whole, 3));
}

int main(int argc, char **argv) {
    if (argc > 3)
        return chdir(argv[1]) != 0 || argc - 3;
    enter(argc, argv);
    char own[64];
    if (argc > 2) {
        looks("/proc/self/exe");
        looks("/proc/thread-self/exe");
        snprintf(own, sizeof own, "/proc/%d/exe", getpid());
        looks(own);
        // Itself once more, by the name that the link has said.
        char path[PATH_MAX] = {0};
        readlink("/proc/self/exe", path, sizeof path - 1);
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            execl(path, "again", argv[1], "x", "y", NULL);
            _exit(99);
        }
        waitpid(pid, &status, 0);
        SAY(status);
        return 0;
    }
    copy_to("own program");
    fflush(NULL);
    execl("./own program", "own", argv[1], "second", NULL);
    return 1;
}
