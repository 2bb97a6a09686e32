// Descriptors by their names in /proc and /dev, without names, and by openat2.
#include "say.h"
#include <linux/openat2.h>
#include <sys/syscall.h>

static char name[64];

static const char *in(const char *pattern, long number) {
    snprintf(name, sizeof name, pattern, number);
    return name;
}

static void read_all(int fd) {
    char text[64] = {0};
    SAY(pread(fd, text, sizeof text - 1, 0));
    SAY_TEXT(text);
}

static void reopened(int fd) {
    char own[64];
    snprintf(own, sizeof own, "/proc/%d/fd/%%ld", getpid());
    const char *const patterns[] = {"/proc/self/fd/%ld", "/dev/fd/%ld", own,
                                    "/proc/thread-self/fd/%ld"};
    struct stat one, two;
    fstat(fd, &one);
    for (unsigned at = 0; at < sizeof patterns / sizeof *patterns; at++) {
        SAY(at);
        const char *path = in(patterns[at], fd);
        SAY(stat(path, &two));
        SAY(one.st_ino == two.st_ino && one.st_dev == two.st_dev);
        SAY(lstat(path, &two));
        SAY(S_ISLNK(two.st_mode));
        SAY(access(path, R_OK));
        lseek(fd, 3, SEEK_SET);
        int again = open(path, O_RDONLY);
        SAY(lseek(again, 0, SEEK_CUR));
        SAY(write(again, "x", 1));
        read_all(again);
        SAY(close(again));
        again = open(path, O_WRONLY | O_APPEND);
        SAY(fcntl(again, F_GETFL));
        SAY(write(again, "+", 1));
        SAY(close(again));
        SAY(open(path, O_RDONLY | O_NOFOLLOW));
        SAY(open(path, O_RDONLY | O_DIRECTORY));
        SAY(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
        again = open(path, O_PATH);
        SAY(fcntl(again, F_GETFL));
        SAY(close(again));
        FILE *stream = fopen(path, "r");
        char text[64] = {0};
        SAY(fgets(text, sizeof text, stream) != NULL);
        SAY_TEXT(text);
        SAY(fclose(stream));
        SAY(truncate(path, 10));
        SAY(chmod(path, 0640));
        SAY(fstat(fd, &two));
        SAY(two.st_mode * 100 + two.st_size);
        char target[256] = {0};
        SAY(readlink(path, target, sizeof target - 1) > 0);
        SAY_TEXT(strrchr(target, '/') + 1);
    }
}

static void streams(void) {
    int saved[2] = {dup(0), dup(1)};
    put("in", "from standard input\n");
    int fd = open("in", O_RDONLY);
    dup2(fd, 0);
    close(fd);
    SHOW("/dev/stdin");
    SHOW("/dev/fd/0");
    SHOW("/proc/self/fd/0");
    fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    put("/dev/stdout", "to standard output");
    SHOW("out");
    FILE *again = fopen("/dev/stdout", "a");
    fputs(", again", again);
    fclose(again);
    SHOW("out");
    dup2(saved[0], 0);
    dup2(saved[1], 1);
    close(saved[0]);
    close(saved[1]);
}

static void nameless(void) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    SAY(write(fd, "0123456789", 10));
    SAY(linkat(AT_FDCWD, in("/proc/self/fd/%ld", fd), AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    SAY(linkat(fd, "", AT_FDCWD, "linked-2", AT_EMPTY_PATH));
    SAY(linkat(fd, "", AT_FDCWD, "linked-2", AT_EMPTY_PATH));
    SAY(linkat(fd, "", AT_FDCWD, "linked-3", 0));
    struct stat stat;
    SAY(fstat(fd, &stat));
    SAY(stat.st_nlink);
    SHOW("linked");
    SAY(unlink("linked") | unlink("linked-2"));
    SAY(linkat(fd, "", AT_FDCWD, "linked-4", AT_EMPTY_PATH));
    SAY(linkat(AT_FDCWD, in("/proc/self/fd/%ld", fd), AT_FDCWD, "linked-5", AT_SYMLINK_FOLLOW));
    // Unlinked, but open: by its number it can be opened again.
    int again = open(in("/proc/self/fd/%ld", fd), O_RDWR);
    SAY(pwrite(again, "AB", 2, 4));
    read_all(fd);
    SAY(close(fd) | close(again));
    fd = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    SAY(linkat(fd, "", AT_FDCWD, "linked-6", AT_EMPTY_PATH));
    SAY(close(fd));
}

static void empty_paths(void) {
    int fd = open("file", O_RDWR), dir = open(".", O_RDONLY);
    struct stat stat;
    struct statx more;
    SAY(fstatat(fd, "", &stat, AT_EMPTY_PATH));
    SAY(stat.st_size);
    SAY(fstatat(dir, "", &stat, AT_EMPTY_PATH));
    SAY(S_ISDIR(stat.st_mode));
    SAY(fstatat(fd, "", &stat, 0));
    SAY(fstatat(AT_FDCWD, "", &stat, AT_EMPTY_PATH));
    SAY(S_ISDIR(stat.st_mode));
    SAY(fstatat(-1, "", &stat, AT_EMPTY_PATH));
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &more));
    SAY(more.stx_size);
    SAY(fchownat(fd, "", -1, -1, AT_EMPTY_PATH));
    SAY(fchownat(fd, "", -1, -1, 0));
    SAY(faccessat(fd, "", R_OK, AT_EMPTY_PATH));
    SAY(openat(fd, "", O_RDONLY));
    SAY(openat(fd, "x", O_RDONLY));
    SAY(openat(dir, "", O_RDONLY));
    SAY(openat(500, "file", O_RDONLY));
    SAY(openat(500, "", O_RDONLY));
    SAY(utimensat(fd, NULL, NULL, 0));
    SAY(utimensat(fd, "", NULL, AT_EMPTY_PATH));
    SAY(close(fd) | close(dir));
}

static void standard_streams(void) {
    int fd = open("stream", O_RDWR | O_CREAT, 0644);
    FILE *stream = fdopen(fd, "w+");
    SAY(fileno(stream) == fd);
    SAY(fseek(stream, 0, SEEK_END));
    SAY(fprintf(stream, ", more"));
    SAY(fflush(stream));
    SHOW("stream");
    stream = freopen("stream-2", "w", stream);
    SAY(fileno(stream) == fd);
    SAY(fputs("second", stream));
    SAY(fclose(stream));
    SHOW("stream-2");
    SAY(fcntl(fd, F_GETFD));
    SAY(fdopen(fd, "r") ? 0 : -1);
    fd = open("stream", O_RDONLY);
    SAY(fdopen(fd, "z") ? 0 : -1);
    SAY(fdopen(fd, "w") ? 0 : -1);
    SAY(fdopendir(fd) ? 0 : -1);
    SAY(close(fd));
    fd = open("dir", O_RDONLY);
    DIR *list = fdopendir(fd);
    SAY(dirfd(list) == fd);
    int names = 0;
    while (readdir(list))
        names++;
    SAY(names);
    SAY(closedir(list));
    SAY(fcntl(fd, F_GETFD));
}

static void resolved(void) {
    static const char *const paths[] = {"dir/inner", "../x", "dir/../file", "/etc/passwd", "link",
                                        "out-link", "dir/up", "dir", "none", "dir/."};
    static const uint64_t ways[] = {0,
                                    RESOLVE_BENEATH,
                                    RESOLVE_IN_ROOT,
                                    RESOLVE_NO_SYMLINKS,
                                    RESOLVE_NO_MAGICLINKS,
                                    RESOLVE_NO_XDEV};
    int dir = open(".", O_RDONLY);
    for (unsigned path = 0; path < sizeof paths / sizeof *paths; path++)
        for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct open_how how = {.flags = O_RDONLY, .resolve = ways[way]};
            if (ways[way] == 0 && paths[path][0] == '/')
                continue;
            long fd = syscall(SYS_openat2, dir, paths[path], &how, sizeof how);
            fprintf(results, "openat2 %s %lx: %s\n", paths[path], (long)ways[way],
                    fd < 0 ? strerrorname_np(errno) : "works");
            close(fd);
        }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "0123456789");
    mkdir("dir", 0755);
    put("dir/inner", "inner");
    symlink("file", "link");
    symlink("/etc/passwd", "out-link");
    symlink("../file", "dir/up");
    int fd = open("file", O_RDWR);
    reopened(fd);
    close(fd);
    streams();
    nameless();
    empty_paths();
    standard_streams();
    if (argc > 2)
        resolved();
    return 0;
}
