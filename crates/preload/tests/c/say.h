// What all test programs share. Each prints every result; the driver runs it on a kernel file
// system and on a volume and compares the two outputs. Nothing that may differ (inode numbers,
// block counts, free space) is printed.
#ifndef SAY_H
#define SAY_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

// Results go to a copy of the first standard output, which tests that redirect it do not touch.
static FILE *results;
static int line_of_last;

static void say_value(const char *what, int line, long value) {
    line_of_last = line;
    int error = errno;
    if (value == -1)
        fprintf(results, "%d %s = -1 %s\n", line, what, strerrorname_np(error));
    else
        fprintf(results, "%d %s = %ld\n", line, what, value);
    fflush(results);
    errno = error;
}

// Prints an expression and its value, or its error.
#define SAY(expression) say_value(#expression, __LINE__, (long)(expression))
#define SAY_TEXT(expression) \
    do { \
        const char *said = (expression); \
        fprintf(results, "%d %s = %s\n", __LINE__, #expression, said ? said : "NULL"); \
        fflush(results); \
    } while (0)
// A call whose value is a descriptor or an address: only whether it worked.
#define WORKS(expression) \
    do { \
        errno = 0; \
        long given = (long)(expression); \
        fprintf(results, "%d %s: %s\n", __LINE__, #expression, \
                given == -1 ? strerrorname_np(errno) : "works"); \
        fflush(results); \
    } while (0)

static void enter(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        exit(2);
    }
    results = fdopen(fcntl(1, F_DUPFD_CLOEXEC, 100), "w");
    if (chdir(argv[1]) != 0) {
        perror(argv[1]);
        exit(2);
    }
    umask(022);
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fprintf(results, "cannot write %s: %s\n", path, strerrorname_np(errno));
    close(fd);
}

// A path in a directory; good until seven more have been asked for.
static const char *path_in(const char *directory, const char *name) {
    static char path[8][PATH_MAX];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[0], "%s/%s", directory, name);
    return path[next];
}

// Prints a file's contents as text.
static void show(const char *path, int line) {
    char bytes[4096];
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
    if (count < 0) {
        fprintf(results, "%d %s: %s\n", line, path, strerrorname_np(errno));
    } else {
        bytes[count] = 0;
        for (ssize_t at = 0; at < count; at++)
            if (!bytes[at])
                bytes[at] = '.';
        fprintf(results, "%d %s: [%s]\n", line, path, bytes);
    }
    if (fd >= 0)
        close(fd);
    fflush(results);
}
#define SHOW(path) show(path, __LINE__)
#endif
