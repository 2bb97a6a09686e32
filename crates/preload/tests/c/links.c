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
    char own[64], of_task[64];
    snprintf(own, sizeof own, "/proc/%d/fd/%%ld", getpid());
    snprintf(of_task, sizeof of_task, "/proc/%d/task/%d/fd/%%ld", getpid(), getpid());
    const char *const patterns[] = {"/proc/self/fd/%ld", "/dev/fd/%ld", own,
                                    "/proc/thread-self/fd/%ld", of_task};
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

// Whether the walk ends above the place of the test.
static int leaves(const char *path, uint64_t way, int from) {
    if (way & (RESOLVE_BENEATH | RESOLVE_IN_ROOT))
        return 0;
    return *path == '/' || strstr(path, "out-link") || strstr(path, "rooted") ||
           strstr(path, "high") || !strncmp(path, "..", 2) || strstr(path, "../..") ||
           (from && strstr(path, "up"));
}

// The kernel says EAGAIN where it goes up a directory while anybody on the machine renames.
static long opened(int dir, const char *path, void *how) {
    long fd = -1;
    for (int times = 0; times < 1000000; times++)
        if ((fd = syscall(SYS_openat2, dir, path, how, sizeof(struct open_how))) >= 0 ||
            errno != EAGAIN)
            break;
    return fd;
}

static void structures(int dir) {
    struct { struct open_how how; uint64_t later; } how = {{.resolve = RESOLVE_BENEATH}, 0};
    WORKS(syscall(SYS_openat2, dir, "file", &how, sizeof how));
    how.later = 1;
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how));
    SAY(syscall(SYS_openat2, dir, "file", &how, 16));
    SAY(syscall(SYS_openat2, dir, "file", &how, 5000));
    SAY(syscall(SYS_openat2, dir, "file", NULL, sizeof how.how));
    how.how.mode = 0600;
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
    how.how.flags = O_RDWR | O_CREAT | O_EXCL;
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
    WORKS(syscall(SYS_openat2, dir, "dir/made", &how, sizeof how.how));
    SAY(opened(dir, "dir/../../made", &how));
    SAY(unlink("dir/made"));
    how.how.mode = 0100600;
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
    how.how = (struct open_how){.flags = O_PATH | O_APPEND};
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
    how.how = (struct open_how){.flags = 1ul << 40};
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
    how.how = (struct open_how){.flags = O_RDWR | O_TRUNC, .resolve = RESOLVE_CACHED};
    SAY(syscall(SYS_openat2, dir, "file", &how, sizeof how.how));
}

static void resolved(void) {
    static const char *const paths[] = {"dir/inner", "../x", "dir/../file", "/etc/passwd", "link",
                                        "out-link", "dir/up", "dir", "none", "dir/.",
                                        "rooted", "high", "loop", "dir/../../file", "..", "/", "",
                                        "file/", "file/x", "dir//inner", "/file", "/dir/up/", "dir/..",
                                        "none/x", "/../../file", "./link", "link/"};
    static const uint64_t ways[] = {0,
                                    RESOLVE_BENEATH,
                                    RESOLVE_IN_ROOT,
                                    RESOLVE_NO_SYMLINKS,
                                    RESOLVE_NO_MAGICLINKS,
                                    RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
                                    RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT,
                                    RESOLVE_IN_ROOT | RESOLVE_BENEATH,
                                    1 << 20};
    symlink("/file", "rooted");
    symlink("../../file", "high");
    symlink("loop", "loop");
    int dir = open(".", O_RDONLY), below = open("dir", O_PATH);
    for (unsigned path = 0; path < sizeof paths / sizeof *paths; path++)
        for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct open_how how = {.resolve = ways[way]};
            static const int kinds[] = {O_RDONLY, O_PATH | O_NOFOLLOW, O_RDONLY | O_DIRECTORY};
            for (unsigned kind = 0; kind < 3; kind++)
                for (int from = 0; from < 2; from++) {
                    how.flags = kinds[kind];
                    // What lies above the place of the test is not the same everywhere.
                    if (leaves(paths[path], ways[way], from))
                        continue;
                    long fd = opened(from ? below : dir, paths[path], &how);
                    struct stat info = {0};
                    fprintf(results, "openat2 %s %lx %x %d: %s", paths[path], (long)ways[way],
                            kinds[kind], from, fd < 0 ? strerrorname_np(errno) : "works");
                    fstat(fd, &info);
                    fprintf(results, " %o %ld\n", info.st_mode, S_ISDIR(info.st_mode) ? 0L : (long)info.st_size);
                    close(fd);
                }
        }
    structures(dir);
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
    resolved();
    return 0;
}
