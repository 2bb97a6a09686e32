// The second engine: what a program sees of files that are staged, mapped, cut, shared and killed.
// Usage: beneath DIRECTORY PART; each line of output must be the kernel's.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

static char bytes[1 << 16];

static void fill(int seed) {
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (char)(1 + (at * 31 + seed) % 250);
}

static long sum(const char *path) {
    static char buffer[1 << 16];
    long sum = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t at = 0; at < got; at++)
            sum = sum * 31 + buffer[at];
    close(fd);
    return sum;
}

static long size_of(const char *path) {
    struct stat stat;
    return lstat(path, &stat) == 0 ? (long)stat.st_size : -1;
}

// Appends of every alignment, read back while they are staged and after.
static void appends(void) {
    int fd = open("appends", O_RDWR | O_CREAT | O_TRUNC, 0644);
    static const int lengths[] = {4096, 1, 4095, 8192, 100, 12288, 33, 4063, 65536};
    for (int round = 0; round < 5; round++) {
        for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
            fill(round * 10 + at);
            SAY(write(fd, bytes, lengths[at]));
            char back[100];
            off_t end = lseek(fd, 0, SEEK_END);
            size_t want = lengths[at] < 100 ? lengths[at] : 100;
            SAY(pread(fd, back, 100, end - want) == (ssize_t)want && !memcmp(back, bytes + lengths[at] - want, want));
        }
        SAY(size_of("appends"));
        SAY(round % 2 ? fsync(fd) : fdatasync(fd));
        SAY(sum("appends"));
    }
    SAY(pwrite(fd, "over the staged end", 19, size_of("appends") - 5));
    SAY(pwrite(fd, "beyond", 6, size_of("appends") + 5000));
    SAY(write(fd, "overwritten?", 12));
    SAY(sum("appends"));
    struct iovec pieces[3] = {{"one", 3}, {"", 0}, {"three", 5}};
    SAY(writev(fd, pieces, 3));
    SAY(pwritev(fd, pieces, 3, 10));
    SAY(close(fd));
    SAY(sum("appends"));
}

// Two descriptors of one file, O_APPEND, duplicates, truncation.
static void shared(void) {
    int one = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int two = open("shared", O_WRONLY | O_APPEND);
    int again = dup(one);
    for (int round = 0; round < 6; round++) {
        SAY(write(one, "first", 5));
        SAY(write(two, "second", 6));
        SAY(lseek(again, 0, SEEK_CUR));
    }
    SAY(size_of("shared"));
    SAY(ftruncate(one, 20));
    SAY(write(two, "after", 5));
    SAY(lseek(two, 0, SEEK_CUR));
    SAY(size_of("shared"));
    SAY(truncate("shared", 7));
    SAY(write(again, "far", 3));
    SAY(size_of("shared"));
    SAY(fcntl(one, F_SETFL, O_APPEND));
    SAY(write(one, "at the end", 10));
    SAY(lseek(one, 0, SEEK_CUR));
    SAY(fallocate(one, FALLOC_FL_KEEP_SIZE, 0, 100000));
    SAY(size_of("shared"));
    int emptied = open("shared", O_RDWR | O_TRUNC);
    SAY(size_of("shared"));
    SAY(write(one, "x", 1));
    SAY(size_of("shared"));
    char back[8] = "";
    SAY(read(emptied, back, 8));
    SAY(close(one) | close(two) | close(again) | close(emptied));
    SAY(sum("shared"));
}

// Other names, no name, permissions.
static void named(void) {
    int fd = open("named", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 5000));
    SAY(rename("named", "renamed"));
    SAY(write(fd, bytes, 5000));
    SAY(size_of("renamed"));
    SAY(link("renamed", "linked"));
    SAY(unlink("renamed"));
    SAY(write(fd, bytes, 100));
    SAY(chmod("linked", 0400));
    SAY(write(fd, bytes, 100));
    SAY(close(fd));
    SAY(size_of("linked"));
    SAY(sum("linked"));
    fd = open("gone", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 5000));
    SAY(unlink("gone"));
    SAY(write(fd, bytes, 5000));
    struct stat stat;
    SAY(fstat(fd, &stat));
    SAY((long)stat.st_size);
    SAY(pread(fd, bytes, 10, 24995));
    int other = open("over", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(other, "victim", 6));
    int by = open("by", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(by, "the other", 9));
    SAY(rename("by", "over"));
    SAY(write(other, " lives on", 9));
    SAY(write(by, " one", 4));
    SAY(size_of("over"));
    SAY(close(fd) | close(other) | close(by));
    SAY(sum("over"));
}

// Mapped by the program.
static void mapped(void) {
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
    fill(3);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 6000));
    char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(memcmp(at + 18000, bytes, 6000));
    SAY(write(fd, "more", 4));
    SAY(memcmp(at + 24000, "more", 4));
    at[5] = 'X';
    char back[10];
    SAY(pread(fd, back, 10, 0));
    SAY(back[5]);
    SAY(pwrite(fd, "YZ", 2, 7));
    SAY(at[8]);
    SAY(munmap(at, 65536));
    SAY(close(fd));
    SAY(sum("mapped"));
}

// A process that has no engine cuts, grows and replaces what this one has open.
static void beside(void) {
    int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644);
    fill(9);
    for (int round = 0; round < 10; round++)
        SAY(write(fd, bytes, 5000));
    SAY(fsync(fd));
    static const char *changes[] = {"truncate -s 30000 beside", "truncate -s 100 beside",
                                    "printf added >> beside", "truncate -s 20000 beside",
                                    "printf new > other; mv other beside"};
    for (size_t at = 0; at < sizeof changes / sizeof *changes; at++) {
        char command[200];
        snprintf(command, sizeof command, "unset LD_PRELOAD SOLERA_SPLIT; %s", changes[at]);
        SAY(system(command));
        int again = open("beside", O_RDWR);
        char back[200];
        SAY(pread(fd, back, 200, 0));
        SAY(pread(fd, back, 200, 29900));
        SAY(pread(fd, back, 200, 90));
        SAY(lseek(fd, 0, SEEK_END));
        SAY(pwrite(fd, "z", 1, 150));
        SAY(pwrite(again, "y", 1, 151));
        SAY(lseek(fd, 0, SEEK_END));
        SAY(close(again));
        SAY(sum("beside"));
    }
    SAY(close(fd));
}

// Parents, children, exec.
static void handed(void) {
    int fd = open("handed", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, "0123456789", 10));
    if (fork() == 0) {
        SAY(write(fd, "child", 5));
        int own = open("handed", O_WRONLY | O_APPEND);
        for (int round = 0; round < 5; round++)
            write(own, "own", 3);
        _exit(0);
    }
    int status;
    wait(&status);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(write(fd, "parent", 6));
    SAY(size_of("handed"));
    int log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    for (int round = 0; round < 4; round++)
        SAY(write(log, "line\n", 5));
    SAY(system("cat log; echo shell >> log; wc -c < log"));
    SAY(write(log, "last\n", 5));
    dup2(log, 7);
    SAY(system("echo seven >&7"));
    SAY(size_of("log"));
    SAY(sum("log"));
    SAY(close(log) | close(7) | close(fd));
}

// What is set after a write stays, although the bytes come to the file later; locks are kept.
static void kept(void) {
    int fd = open("kept", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 6; round++)
        SAY(write(fd, bytes, 5000));
    struct timespec times[2] = {{1000, 1}, {2000, 2}};
    SAY(futimens(fd, times));
    SAY(fchmod(fd, 04755));
    SAY(close(fd));
    struct stat stat;
    SAY(lstat("kept", &stat));
    SAY((long)stat.st_mtime);
    SAY(stat.st_mode);
    // Children that count under a record lock, as a database would.
    fd = open("count", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, "00000000", 8));
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            for (int round = 0; round < 100; round++) {
                int own = open("count", O_RDWR);
                char text[9] = "";
                lockf(own, F_LOCK, 0);
                read(own, text, 8);
                read(own, text, 0);
                snprintf(text, sizeof text, "%08d", atoi(text) + 1);
                lseek(own, 0, SEEK_SET);
                write(own, text, 8);
                lseek(own, 0, SEEK_SET);
                struct flock unlock = {.l_type = F_UNLCK};
                fcntl(own, F_SETLK, &unlock);
                close(own);
            }
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    char text[9] = "";
    SAY(pread(fd, text, 8, 0));
    SAY(atoi(text));
    SAY(close(fd));
    // Holes stay holes.
    fd = open("holes", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, 20 << 20));
    SAY(pwrite(fd, "data", 4, 10 << 20));
    for (int round = 0; round < 5; round++)
        SAY(pread(fd, bytes, 4096, round << 21));
    SAY(fstat(fd, &stat));
    SAY(stat.st_blocks < 1000);
    SAY(close(fd));
}

// Other ways to what is staged: descriptors that are not served, names outside, streams that cut.
static void other_ways(void) {
    int fd = open("ways", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, bytes, 100));
    int synced = open("ways", O_RDWR | O_SYNC | O_APPEND);
    char back[200];
    SAY(read(synced, back, sizeof back));
    SAY(write(synced, "x", 1));
    SAY(size_of("ways"));
    SAY(close(fd) | close(synced));
    SAY(sum("ways"));
    fd = open("inside", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    unlink("../outside");
    SAY(link("inside", "../outside"));
    int outside = open("../outside", O_RDWR);
    SAY(write(fd, bytes, 5000));
    SAY(read(outside, back, sizeof back));
    SAY(write(outside, "over", 4));
    SAY(close(fd) | close(outside) | unlink("../outside"));
    SAY(sum("inside"));
    fd = open("cut", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, bytes, 5000));
    FILE *stream = fopen("cut", "w");
    SAY(size_of("cut"));
    fputs("short", stream);
    SAY(fclose(stream));
    SAY(sum("cut"));
    SAY(pwrite(fd, bytes, 5000, 5));
    stream = freopen("cut", "w", fopen("other", "w"));
    SAY(size_of("cut"));
    SAY(fclose(stream));
    SAY(close(fd));
    SAY(sum("cut"));
}

// Two processes that stage for each other's files, and take turns.
static void between(void) {
    int down[2], up[2];
    char turn;
    SAY(pipe(down) | pipe(up));
    if (fork() == 0) {
        read(down[0], &turn, 1);
        int seen = open("seen", O_WRONLY | O_APPEND);
        write(seen, bytes, 4096);
        int theirs = open("theirs", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        write(theirs, bytes, 5000);
        // What the parent has staged goes to its place.
        sum("mine");
        int late = open("late", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        write(late, bytes, 5000);
        write(up[1], "+", 1);
        read(down[0], &turn, 1);
        _exit(close(seen) | close(theirs) | close(late));
    }
    int mine = open("mine", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(mine, bytes, 5000));
    int seen = open("seen", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(pread(seen, &turn, 1, 0));
    write(down[1], "+", 1);
    read(up[0], &turn, 1);
    SAY(sum("late"));
    char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, seen, 0);
    struct stat stat;
    SAY(fstat(seen, &stat));
    SAY((long)stat.st_size);
    SAY(memcmp(at, bytes, 4096));
    SAY(munmap(at, 4096));
    SAY(truncate("theirs", 100));
    SAY(sum("theirs"));
    write(down[1], "+", 1);
    int status;
    wait(&status);
    SAY(status);
    SAY(sum("theirs"));
    SAY(sum("seen"));
    SAY(write(mine, bytes, 5000));
    SAY(close(mine) | close(seen));
    SAY(sum("mine"));
    SAY(close(down[0]) | close(down[1]) | close(up[0]) | close(up[1]));
}

// What a killed process had appended is fetched for a descriptor that nobody serves; the record lock on
// the file stays.
static void locked(void) {
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC | O_SYNC, 0644);
    SAY(write(fd, "12345", 5));
    struct flock lock = {.l_type = F_WRLCK, .l_len = 5};
    SAY(fcntl(fd, F_SETLK, &lock));
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            int own = open("locked", O_RDWR | O_APPEND);
            for (int more = 0; more < 5; more++)
                write(own, bytes, 3000);
            raise(SIGKILL);
        }
        int status;
        waitpid(child, &status, 0);
        SAY(WTERMSIG(status));
        static char all[1 << 16];
        SAY(pread(fd, all, sizeof all, 0));
        SAY(size_of("locked"));
        child = fork();
        if (child == 0) {
            int own = open("locked", O_RDWR);
            struct flock other = {.l_type = F_WRLCK, .l_len = 5};
            _exit(fcntl(own, F_SETLK, &other) == 0 ? 1 : 2);
        }
        waitpid(child, &status, 0);
        SAY(WEXITSTATUS(status));
    }
    // One more, and this process appends behind it by a descriptor that is served.
    if (fork() == 0) {
        int own = open("locked", O_RDWR | O_APPEND);
        for (int more = 0; more < 5; more++)
            write(own, "staged", 6);
        raise(SIGKILL);
    }
    wait(NULL);
    int behind = open("locked", O_WRONLY | O_APPEND);
    SAY(write(behind, "behind", 6));
    SAY(write(behind, "behind", 6));
    SAY(close(behind));
    SAY(close(fd));
    SAY(sum("locked"));
    // A child locks before it has moved any data.
    fd = open("locked", O_RDWR);
    if (fork() == 0) {
        SAY(fcntl(fd, F_SETLK, &lock));
        int own = open("locked", O_RDWR | O_APPEND);
        for (int round = 0; round < 4; round++)
            SAY(write(own, "54321", 5));
        if (fork() == 0) {
            SAY(fcntl(fd, F_GETLK, &lock));
            SAY(lock.l_type);
            _exit(0);
        }
        wait(NULL);
        _exit(0);
    }
    wait(NULL);
    SAY(close(fd));
}

// A pwrite that appends leaves the position where it was, whoever appends.
static void positions(void) {
    int fd = open("positions", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    SAY(write(fd, "first", 5));
    SAY(pwrite(fd, "second", 6, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    char back[20] = "";
    SAY(write(fd, "third", 5));
    SAY(pwrite(fd, "fourth", 6, 0));
    SAY(read(fd, back, sizeof back));
    SAY(back[0]);
    SAY(pwrite(fd, bytes, sizeof bytes, 0));
    SAY(write(fd, bytes, sizeof bytes));
    SAY(pwrite(fd, "fifth", 5, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(munmap(at, 4096) | close(fd));
    SAY(sum("positions"));
}

// Locks and sizes that are reckoned from where the program is, not from where the kernel's number stands.
static void reckoned(void) {
    int fd = open("reckoned", O_RDWR | O_CREAT | O_TRUNC, 0644);
    fill(7);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 1000));
    SAY(lockf(fd, F_LOCK, 10));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3500, .l_len = 10};
    SAY(fcntl(fd, F_SETLK, &lock));
    fflush(NULL);
    if (fork() == 0) {
        static const off_t places[] = {0, 500, 4000, 4009, 4010};
        for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
            struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = places[at], .l_len = 1};
            SAY(fcntl(fd, F_GETLK, &asked));
            SAY(asked.l_type);
        }
        _exit(0);
    }
    wait(NULL);
    SAY(close(fd));
    // A child that has not moved data yet asks for what its parent appends meanwhile.
    fd = open("reckoned", O_RDWR | O_APPEND);
    int to_child[2], to_parent[2];
    SAY(pipe(to_child) | pipe(to_parent));
    if (fork() == 0) {
        char byte;
        read(to_child[0], &byte, 1);
        SAY(lseek(fd, 0, SEEK_END));
        struct stat stat;
        SAY(fstat(fd, &stat));
        SAY((long)stat.st_size);
        _exit(0);
    }
    int own = open("reckoned", O_WRONLY | O_APPEND);
    for (int round = 0; round < 4; round++)
        SAY(write(own, bytes, 100));
    write(to_child[1], "x", 1);
    wait(NULL);
    SAY(close(fd) | close(own));
    // More than a staging file holds, and times that were told before the close.
    fd = open("reckoned", O_WRONLY | O_APPEND);
    for (int round = 0; round < 40; round++)
        if (write(fd, bytes, sizeof bytes) != sizeof bytes)
            SAY(-1);
    struct timespec set[2] = {{1000, 0}, {1000, 0}};
    SAY(futimens(fd, set));
    SAY(write(fd, bytes, 100));
    struct stat told, then;
    SAY(fstat(fd, &told));
    SAY(told.st_mtim.tv_sec > 1000);
    usleep(20000);
    SAY(close(fd));
    SAY(stat("reckoned", &then));
    SAY(told.st_mtim.tv_sec == then.st_mtim.tv_sec && told.st_mtim.tv_nsec == then.st_mtim.tv_nsec);
    SAY(told.st_ctim.tv_sec == then.st_ctim.tv_sec && told.st_ctim.tv_nsec == then.st_ctim.tv_nsec);
    SAY(sum("reckoned"));
}

// What is kept of a file after its last close holds nothing of the program's description: no lock, no
// right to write.
static void released(void) {
    int fd = open("released", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, bytes, 20000));
    SAY(close(fd));
    char back[100];
    for (int round = 0; round < 2; round++) {
        fd = open("released", round ? O_RDWR : O_RDONLY);
        SAY(flock(fd, LOCK_EX | LOCK_NB));
        for (int part = 0; part < 4; part++)
            SAY(read(fd, back, sizeof back));
        SAY(close(fd));
    }
    fd = open("released", O_RDONLY);
    int program = open("program", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    int from = open("/bin/true", O_RDONLY);
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;)
        if (write(program, bytes, got) != got)
            SAY(-1);
    SAY(close(fd) | close(from) | close(program));
    fd = open("program", O_RDWR);
    for (int part = 0; part < 4; part++)
        SAY(read(fd, back, sizeof back));
    SAY(close(fd));
    SAY(system("./program"));
    fill(1);
    // Nor its blocks, when its last name is removed, whatever that is by then.
    for (int round = 0; round < 4; round++) {
        fd = open("first name", O_RDWR | O_CREAT | O_TRUNC, 0644);
        SAY(write(fd, bytes, 5000));
        SAY(close(fd));
        fd = open("first name", O_RDONLY);
        SAY(read(fd, back, sizeof back));
        if (round == 0)
            SAY(unlink("first name"));
        if (round == 1)
            SAY(rename("first name", "second name"));
        SAY(close(fd));
        if (round == 2)
            SAY(rename("first name", "second name"));
        if (round == 3)
            SAY(link("first name", "second name") | unlink("first name"));
        SAY(unlink("second name"));
        SAY(system("grep -c 'name.*deleted' /proc/$PPID/maps"));
    }
}

// Mapped before it grows, and by a number that has moved no data yet.
static void grows_mapped(void) {
    int fd = open("grows", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 4096));
    SAY(memcmp(at + 12288, bytes, 4096));
    SAY(close(fd));
    fd = open("grows", O_WRONLY | O_APPEND);
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 4096));
    SAY(memcmp(at + 28672, bytes, 4096));
    SAY(munmap(at, 1 << 20));
    SAY(close(fd));
    fd = open("other way", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, bytes, 4096));
    int other = open("other way", O_RDONLY);
    at = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, other, 0);
    SAY(close(other));
    for (int round = 0; round < 4; round++)
        SAY(write(fd, bytes, 4096));
    SAY(memcmp(at + 16384, bytes, 4096));
    SAY(munmap(at, 1 << 20));
    SAY(close(fd));
}

// A line that a stream reads, if there is one.
static void line_of(FILE *stream) {
    char line[100];
    clearerr(stream);
    SAY_TEXT(fgets(line, sizeof line, stream));
}

// Streams read and write by themselves. What a descriptor of the same process had appended they did
// not see, and what they appended came before it.
static void beside_streams(void) {
    char line[100];
    int fd = open("lines", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644);
    FILE *before = fopen("lines", "r"), *over = fdopen(open("lines", O_RDONLY), "r"), *late = NULL;
    for (int round = 0; round < 6; round++) {
        SAY(write(fd, line, sprintf(line, "line %d\n", round)));
        line_of(before);
        line_of(over);
        if (round == 2)
            late = fopen("lines", "r");
        if (late)
            line_of(late);
    }
    // In a child the stream goes on.
    if (fork() == 0) {
        int own = open("lines", O_WRONLY | O_APPEND);
        for (int round = 0; round < 4; round++) {
            SAY(write(own, line, sprintf(line, "child's %d\n", round)));
            line_of(before);
        }
        _exit(0);
    }
    wait(NULL);
    SAY(fclose(before) | fclose(over) | fclose(late));
    // Appended by both, in turns.
    FILE *writer = fopen("lines", "a"), *both = fopen("lines", "a+");
    for (int round = 0; round < 4; round++) {
        SAY(write(fd, "number,", 7));
        fputs("stream,", writer);
        SAY(fflush(writer));
        SAY(write(fd, "number again,", 13));
        fputs("the other\n", both);
        SAY(fflush(both));
    }
    SAY(fclose(writer) | fclose(both) | close(fd));
    SHOW("lines");
    // Its number belongs to a descriptor by now.
    int again = open("lines", O_WRONLY | O_APPEND), reader = open("lines", O_RDONLY);
    for (int round = 0; round < 4; round++) {
        SAY(write(again, "staged", 6));
        SAY(read(reader, line, 100));
    }
    SAY(close(again) | close(reader));
    SHOW("lines");
}

// The standard streams, on numbers that became a file's: as a shell redirects a group. What the
// shell wrote itself was written over by the first program that it started.
static void standard_streams(void) {
    int input = dup(0), output = dup(1);
    fflush(stdout);
    int fd = open("group", O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    printf("first line, long enough\n");
    if (fork() == 0) {
        dprintf(1, "second\n");
        _exit(0);
    }
    wait(NULL);
    printf("third\n");
    SAY(write(1, "fourth\n", 7));
    printf("fifth\n");
    dup2(output, 1);
    SHOW("group");
    // The number was free, and opened.
    close(1);
    SAY(open("alone", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644) == 1);
    for (int round = 0; round < 3; round++) {
        SAY(write(1, "by number\n", 10));
        printf("by stream\n");
    }
    int other = open("alone", O_WRONLY | O_APPEND);
    for (int round = 0; round < 3; round++) {
        SAY(write(other, "by another\n", 11));
        printf("by stream\n");
    }
    close(other);
    close(1);
    dup2(output, 1);
    SHOW("alone");
    fd = open("group", O_RDWR | O_APPEND);
    int from = open("group", O_RDONLY);
    dup2(from, 0);
    for (int round = 0; round < 6; round++) {
        SAY(write(fd, "more\n", 5));
        line_of(stdin);
    }
    dup2(input, 0);
    SAY(close(fd) | close(from) | close(input) | close(output));
    SHOW("group");
    // Another number that a stream has.
    FILE *stream = fopen("other", "w");
    fd = open("group", O_RDWR | O_TRUNC);
    SAY(write(fd, "by number, ", 11));
    SAY(dup2(fd, fileno(stream)) == fileno(stream));
    fputs("by stream, ", stream);
    SAY(fflush(stream));
    SAY(write(fd, "and by number\n", 14));
    SAY(fclose(stream) | close(fd));
    SHOW("group");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    setvbuf(stdout, NULL, _IONBF, 0);
    fill(1);
    appends();
    shared();
    named();
    mapped();
    grows_mapped();
    released();
    reckoned();
    beside();
    handed();
    kept();
    other_ways();
    between();
    locked();
    positions();
    beside_streams();
    standard_streams();
    return 0;
}
