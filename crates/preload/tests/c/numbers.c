// Which numbers descriptors get: lowest free, dup2 onto anything, limits, close_range.
#include "say.h"
#include <sys/resource.h>

static void limit(long numbers) {
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    now.rlim_cur = numbers;
    SAY(setrlimit(RLIMIT_NOFILE, &now));
}

static void lowest(void) {
    int first = open("a", O_RDWR | O_CREAT, 0644);
    SAY(first);
    SAY(open("/dev/null", O_RDONLY));
    SAY(openat(AT_FDCWD, "a", O_RDONLY));
    SAY(creat("b", 0600));
    SAY(close(first + 1));
    SAY(dup(first));
    SAY(close(first));
    SAY(open("a", O_RDWR));
    SAY(fcntl(first, F_DUPFD, 20));
    SAY(fcntl(first, F_DUPFD, 20));
    SAY(fcntl(first, F_DUPFD_CLOEXEC, 0));
    SAY(fcntl(first, F_DUPFD, -1));
    SAY(fcntl(first, F_DUPFD, 1 << 30));
    close(0);
    SAY(dup(first));
    SAY(close(0));
    SAY(open("a", O_RDONLY));
    char byte;
    SAY(write(first, "text", 4));
    SAY(read(0, &byte, 1));
    SAY(byte);
    SAY(fcntl(first + 3, F_GETFD) | fcntl(20, F_GETFD) << 1);
    DIR *list = opendir(".");
    SAY(dirfd(list));
    FILE *stream = fopen("a", "r");
    SAY(fileno(stream));
    SAY(open("b", O_RDONLY));
    SAY(fclose(stream) | closedir(list));
    SAY(open("b", O_RDONLY));
    int made[2];
    SAY(pipe(made));
    SAY(made[0] * 100 + made[1]);
    SAY(open(".", O_RDWR | O_TMPFILE, 0600));
    char name[] = "madeXXXXXX";
    SAY(mkstemp(name));
    unlink(name);
    SAY(close_range(3, 15, 0));
    SAY(close_range(17, 99, 0));
    // The results' stream stands at 100.
    SAY(open("a", O_RDONLY));
}

static void onto(void) {
    int file = open("onto", O_RDWR | O_CREAT | O_TRUNC, 0644), null = open("/dev/null", O_RDWR);
    SAY(dup2(file, file));
    SAY(dup2(file, -1));
    SAY(dup2(-1, file));
    SAY(dup2(file, 1 << 30));
    SAY(dup2(99, file));
    SAY(write(file, "kept", 4));
    SAY(dup3(file, file, 0));
    SAY(dup3(file, 50, O_NONBLOCK));
    SAY(dup3(file, 50, O_CLOEXEC));
    SAY(fcntl(50, F_GETFD));
    SAY(dup2(file, 50));
    SAY(fcntl(50, F_GETFD));
    SAY(dup2(null, 50));
    SAY(lseek(50, 0, SEEK_END));
    SAY(dup2(file, null));
    SAY(lseek(null, 0, SEEK_END));
    SAY(dup2(file, 255));
    SAY(write(255, "more", 4));
    SAY(close(file));
    SAY(lseek(255, 0, SEEK_CUR));
    SAY(close(null));
    SAY(ftruncate(255, 6));
    SHOW("onto");
    int last = dup2(255, 0);
    SAY(last);
    SAY(close(255));
    SAY(lseek(0, 0, SEEK_END));
    SAY(close(0));
    SAY(write(0, "x", 1));
    SAY(close(0));
    SAY(close(-1));
    SAY(close(1 << 30));
    SAY(open("onto", O_RDWR));
}

// Every number that the limit allows can be a target, and none of ours stands in the way.
static void everywhere(void) {
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    limit(4096);
    int file = open("everywhere", O_RDWR | O_CREAT, 0644);
    long moved = 0, wrong = 0;
    for (int at = 101; at < 4096; at++)
        moved += dup2(file, at) == at;
    SAY(moved);
    SAY(write(4000, "text", 4));
    put("another", "another");
    struct stat stat;
    for (int at = 101; at < 4096; at++)
        wrong += fstat(at, &stat) != 0 || stat.st_size != 4;
    SAY(wrong);
    pid_t pid = fork();
    if (pid == 0) {
        put("child", "child");
        _exit(close(1000) | close(901) | close(900) | close(1001));
    }
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    SHOW("child");
    SAY(mkdir("made", 0700));
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, 1000, 0);
    SAY(map != MAP_FAILED && !memcmp(map, "text", 4));
    SAY(munmap(map, 4096));
    for (int at = 101; at < 4096; at++)
        wrong += close(at) != 0;
    SAY(wrong);
    for (int at = 101; at < 4096; at++)
        wrong += close(at) == 0;
    SAY(wrong);
    SHOW("another");
    long null = open("/dev/null", O_WRONLY);
    for (int at = 101; at < 4096; at++)
        wrong += dup2(null, at) != at;
    SAY(wrong);
    SHOW("another");
    SAY(close_range(101, 5000, 0));
    SHOW("another");
    SAY(close(null) | close(file));
    setrlimit(RLIMIT_NOFILE, &before);
}

static void limits(void) {
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    int file = open("limits", O_RDWR | O_CREAT, 0644), fd;
    SAY(file);
    limit(64);
    while ((fd = dup(file)) >= 0)
        line_of_last = fd;
    SAY(line_of_last);
    SAY(open("limits", O_RDONLY));
    SAY(open("/dev/null", O_RDONLY));
    SAY(openat(AT_FDCWD, "new", O_CREAT | O_WRONLY, 0600));
    SAY(access("new", F_OK));
    SAY(opendir(".") ? 0 : -1);
    SAY(fopen("limits", "r") ? 0 : -1);
    SAY(fcntl(file, F_DUPFD, 3));
    SAY(fcntl(file, F_DUPFD, 64));
    SAY(dup2(file, 64));
    SAY(dup2(file, 63));
    SAY(write(63, "still", 5));
    SAY(mkdir("limits-dir", 0700));
    struct stat stat;
    SAY(lstat("limits", &stat));
    pid_t pid = fork();
    if (pid == 0)
        _exit(write(62, "!", 1) != 1);
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    pid = fork();
    if (pid == 0) {
        dup2(file, 0);
        lseek(0, 0, SEEK_SET);
        close_range(50, 63, 0);
        execl("/bin/sh", "sh", "-c", "read x; test \"$x\" = still!", NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    SAY(status);
    limit(3);
    SAY(open("limits", O_RDONLY));
    SAY(dup(file));
    SAY(dup2(file, 3));
    SAY(dup2(file, 2));
    SAY(pwrite(63, "S", 1, 0));
    SAY(lseek(63, 0, SEEK_END));
    setrlimit(RLIMIT_NOFILE, &before);
    SHOW("limits");
    SAY(close_range(4, 63, 0));
    SAY(close(file));
}

static void high(void) {
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit more = {200000, before.rlim_max < 200000 ? 200000 : before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) != 0) {
        SAY_TEXT("no high numbers here");
        return;
    }
    int file = open("high", O_RDWR | O_CREAT, 0644);
    SAY(fcntl(file, F_DUPFD, 65535));
    SAY(fcntl(file, F_DUPFD, 65535));
    SAY(dup2(file, 199999));
    SAY(write(199999, "high", 4));
    SAY(lseek(65536, 0, SEEK_CUR));
    SAY(close(65536) | close(65535) | close(file));
    SAY(lseek(199999, 0, SEEK_CUR));
    SAY(close(199999));
    setrlimit(RLIMIT_NOFILE, &before);
}

static void ranges(void) {
    int file = open("ranges", O_RDWR | O_CREAT, 0644);
    SAY(fcntl(file, F_DUPFD, 30) | fcntl(file, F_DUPFD, 40));
    SAY(close_range(30, 35, CLOSE_RANGE_CLOEXEC));
    SAY(fcntl(30, F_GETFD) * 10 + fcntl(40, F_GETFD));
    SAY(close_range(30, 20, 0));
    SAY(close_range(30, 99, 1 << 10));
    SAY(fcntl(40, F_GETFD));
    SAY(close_range(35, 99, CLOSE_RANGE_UNSHARE));
    SAY(fcntl(40, F_GETFD));
    SAY(fcntl(30, F_GETFD));
    pid_t pid = fork();
    if (pid == 0) {
        closefrom(0);
        int again = open("ranges", O_WRONLY);
        _exit(again * 10 + (write(again, "all closed", 10) != 10));
    }
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    SHOW("ranges");
    pid = fork();
    if (pid == 0) {
        long max = sysconf(_SC_OPEN_MAX);
        for (long at = 0; at < max && at < 70000; at++)
            close(at);
        int again = open("ranges", O_WRONLY | O_APPEND);
        _exit(again * 10 + (write(again, ", again", 7) != 7));
    }
    waitpid(pid, &status, 0);
    SAY(status);
    pid = fork();
    if (pid == 0) {
        DIR *list = opendir("/proc/self/fd");
        struct dirent *entry;
        while ((entry = readdir(list)))
            if (atoi(entry->d_name) != dirfd(list))
                close(atoi(entry->d_name));
        int again = open("ranges", O_WRONLY | O_APPEND);
        _exit(again < 0 || write(again, ", listed", 8) != 8);
    }
    waitpid(pid, &status, 0);
    SAY(status);
    SHOW("ranges");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    lowest();
    onto();
    everywhere();
    limits();
    high();
    ranges();
    return 0;
}
