// What one process has staged is in the size that another one is told of a path: also if it has
// never opened the file, and if it knew another one that had the inode number before.
#include "say.h"

static int go[2], done[2];

static void hand(const int to[2], const int from[2]) {
    char byte = 0;
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
        _exit(99);
}

static void make(const char *name, long length) {
    static char bytes[8192];
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    SAY(write(fd, bytes, length));
    SAY(close(fd));
}

// The other process stages, and ends what it has staged.
static void stage(const char *name) {
    int fd = open(name, O_RDWR | O_APPEND);
    SAY(write(fd, "0123456789", 10));
    hand(done, go);
    SAY(close(fd));
}

static long size_of(const char *name) {
    struct stat found;
    return stat(name, &found) ? -1 : found.st_size;
}

static long size_by_statx(const char *name) {
    struct statx found;
    return statx(AT_FDCWD, name, 0, STATX_SIZE, &found) ? -1 : (long)found.stx_size;
}

static void other(void) {
    char byte;
    if (read(go[0], &byte, 1) != 1)
        _exit(98);
    make("strange", 6);
    stage("strange");
    make("old", 5000);
    hand(done, go);
    // The name of the first file was removed by this process alone.
    SAY(unlink("old"));
    make("new", 6);
    stage("new");
    _exit(0);
}

static void look(const char *name) {
    SAY(size_of(name));
    SAY(size_by_statx(name));
}

int main(int count, char **arguments) {
    enter(count, arguments);
    if (pipe(go) || pipe(done))
        return 2;
    pid_t child = fork();
    if (child == 0)
        other();
    hand(go, done);
    look("strange");
    hand(go, done);
    char bytes[5000];
    int fd = open("old", O_RDONLY);
    SAY(read(fd, bytes, sizeof bytes));
    SAY(close(fd));
    // No window of it is left.
    SAY(truncate("old", 0));
    hand(go, done);
    look("new");
    int status;
    if (write(go[1], bytes, 1) != 1)
        return 3;
    SAY(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
