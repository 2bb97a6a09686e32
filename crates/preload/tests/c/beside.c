// A volume, and a directory of the kernel's that the second engine serves: the working directory is
// the first argument, the second is the other. What was written and not synced is on its way in each
// of these calls; what the one stages, calls of the other must find.
#include "say.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { PAGE = 4096, MIB = 1 << 20 };

extern char **environ;
static const char *here, *there;

// A file with bytes that have been appended in several calls, open for both.
static int grown(const char *path, int from, int to) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    char text[16];
    for (int each = from; each < to; each++) {
        int length = snprintf(text, sizeof text, "%06d\n", each);
        if (write(fd, text, length) != length)
            fprintf(results, "cannot grow %s\n", path);
    }
    return fd;
}

static long sum(int fd) {
    static char bytes[4 * MIB];
    ssize_t count = pread(fd, bytes, sizeof bytes, 0);
    long sum = count;
    for (ssize_t at = 0; at < count; at++)
        sum = sum * 31 + bytes[at];
    return sum;
}

static int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

// Copies between the two, by each call that takes both.
static void copies(void) {
    int from = grown("from", 0, 3000), to = grown(path_in(there, "to"), 0, 10);
    SAY(lseek(from, 7, SEEK_SET));
    int target = open(path_in(there, "to"), O_RDWR);
    SAY(lseek(target, 0, SEEK_END));
    SAY(sendfile(target, from, NULL, 7000));
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(lseek(target, 0, SEEK_CUR));
    off_t at = 14;
    SAY(sendfile(target, from, &at, 70));
    SAY(at);
    SAY(sum(target) == sum(to));
    SAY(sum(target));
    // What was sent is in the file, and what comes behind it too.
    SAY(write(target, "behind\n", 7));
    SAY(write(to, "appended\n", 9));
    SAY(sum(target));
    SAY(ftruncate(target, 100));
    SAY(sendfile(target, from, &at, 70));
    SAY(sum(to));
    int pipes[2];
    SAY(pipe(pipes));
    loff_t place = 700;
    SAY(splice(from, &place, pipes[1], NULL, 1000, 0));
    place = 50;
    SAY(splice(pipes[0], NULL, target, &place, 1000, 0));
    SAY(sum(target));
    place = 0;
    SAY(splice(target, &place, pipes[1], NULL, 500, 0));
    int back = open("from", O_RDWR);
    place = 10;
    SAY(splice(pipes[0], NULL, back, &place, 500, 0));
    SAY(sum(from));
    SAY(copy_file_range(from, NULL, from, NULL, 10, 0));
    SAY(copy_file_range(from, NULL, target, NULL, 10, 1));
    close(pipes[0]), close(pipes[1]), close(from), close(to), close(target), close(back);
    SAY(system("cat from | cksum"));
}

// Numbers that stand for the one, then for the other.
static void numbers(void) {
    int one = grown("one", 0, 50), other = grown(path_in(there, "other"), 100, 150);
    int low = dup(other);
    SAY(dup2(one, low) == low);
    SAY(write(low, "one\n", 4));
    SAY(dup2(other, low) == low);
    SAY(write(low, "other\n", 6));
    SAY(dup3(one, other, O_CLOEXEC) == other);
    SAY(write(other, "one again\n", 10));
    SAY(sum(one));
    SAY(sum(low));
    SAY(fcntl(other, F_GETFD));
    SAY(close(one));
    one = open(path_in(there, "other"), O_RDWR);
    SAY(sum(one) == sum(low));
    SAY(dup2(low, one) == one);
    SAY(write(one, "last\n", 5));
    SAY(sum(low));
    SAY(close_range(other, other, 0));
    SAY(write(other, "x", 1));
    close(one), close(low);
    int all[20];
    for (int each = 0; each < 20; each++)
        all[each] = grown(path_in(each % 2 ? here : there, "all"), each, each + 3);
    SAY(close_range(all[3], all[11], 0));
    for (int each = 0; each < 20; each++)
        SAY(write(all[each], "y", 1));
    closefrom(all[0] < 20 ? all[0] : 20);
    for (int each = 0; each < 20; each += 7)
        SAY(fcntl(all[each], F_GETFD));
    // The library's own numbers are still there.
    results = fdopen(fcntl(1, F_DUPFD_CLOEXEC, 100), "w");
    int fd = grown("after", 0, 4), over = grown(path_in(there, "after"), 4, 9);
    SAY(sum(fd));
    SAY(sum(over));
    for (int number = 3; number < 1200; number++)
        if (number != fileno(results) && number != fd && number != over && dup2(fd, number) >= 0)
            close(number);
    SAY(write(fd, "z", 1) + write(over, "z", 1));
    SAY(sum(fd));
    SAY(sum(over));
    SHOW("all");
    SHOW(path_in(there, "all"));
    close(fd), close(over);
}

// Buffers that are pages of the one's mapped files, for calls on the other's.
static void buffers(void) {
    const char *both[] = {here, there};
    for (int each = 0; each < 2; each++) {
        int map = open(path_in(both[each], "map"), O_RDWR | O_CREAT | O_TRUNC, 0644);
        int fd = grown(path_in(both[!each], "bytes"), 0, 2000);
        SAY(ftruncate(map, MIB));
        char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
        SAY(pread(fd, at + 5, 10000, 0));
        SAY(memcmp(at + 5, "000000\n000001\n", 14));
        SAY(pwrite(fd, at + 100000, 3000, 100));
        SAY(write(fd, at + 5, 5000));
        struct iovec parts[] = {{at + 300000, 100}, {at + 500000, 7000}};
        SAY(preadv(fd, parts, 2, 50));
        SAY(pwritev(fd, parts, 2, 20000));
        SAY(readv(fd, parts, 2));
        // Its own pages.
        SAY(pread(map, at + 700000, 5000, 5));
        SAY(memcmp(at + 700000, at + 5, 5000));
        SAY(sum(map));
        SAY(sum(fd));
        SAY(ftruncate(map, 2 * PAGE));
        SAY(pread(fd, at + 4 * PAGE, 10, 0));
        SAY(write(fd, at + 4 * PAGE, 10));
        SAY(munmap(at, MIB));
        close(map), close(fd);
    }
}

static void *nothing(void *argument) {
    return argument;
}

static int cloned(void *fds) {
    return write(((int *)fds)[0], "cloned\n", 7) != 7 || write(((int *)fds)[1], "cloned\n", 7) != 7;
}

// Children of each kind find both as the parent left them, and write behind it.
static void children(void) {
    int fds[] = {grown("child", 0, 5), grown(path_in(there, "child"), 5, 9)};
    static char stack[1 << 16] __attribute__((aligned(16)));
    for (int way = 0; way < 7; way++) {
        pid_t pid = -1;
        char script[64];
        snprintf(script, sizeof script, "echo %d >&%d; echo %d >&%d", way, fds[0], way, fds[1]);
        char *arguments[] = {"sh", "-c", script, NULL};
        if (way < 3) {
            pid = way == 0 ? fork() : way == 1 ? vfork() : _Fork();
            if (pid == 0) {
                if (way == 1)
                    execv("/bin/sh", arguments);
                if (write(fds[0], "child\n", 6) != 6 || write(fds[1], "child\n", 6) != 6)
                    _exit(1);
                int own = open(way ? "own" : path_in(there, "own"), O_RDWR | O_CREAT | O_APPEND, 0644);
                _exit(own < 0 || write(own, "own\n", 4) != 4);
            }
        } else if (way == 3) {
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            posix_spawn_file_actions_addopen(&actions, 1, path_in(there, "spawned"),
                                             O_RDWR | O_CREAT | O_TRUNC, 0644);
            posix_spawn_file_actions_addopen(&actions, 0, "child", O_RDONLY, 0);
            char *list[] = {"sh", "-c", "cat; echo behind", NULL};
            SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, list, environ));
            posix_spawn_file_actions_destroy(&actions);
        } else if (way == 4) {
            SAY(system(script));
        } else if (way == 5) {
            FILE *stream = popen(script, "w");
            SAY(pclose(stream));
        } else {
            pid = clone(cloned, stack + sizeof stack, SIGCHLD, fds);
        }
        if (pid > 0)
            SAY(status_of(pid));
        char text[16];
        int length = snprintf(text, sizeof text, "parent %d\n", way);
        SAY(write(fds[0], text, length) + write(fds[1], text, length));
        SAY(sum(fds[0]));
        SAY(sum(fds[1]));
    }
    SHOW("child");
    SHOW(path_in(there, "child"));
    SHOW("own");
    SHOW(path_in(there, "own"));
    SHOW(path_in(there, "spawned"));
    // With a second thread.
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(write(fds[0], "late\n", 5) != 5 || write(fds[1], "late\n", 5) != 5);
    SAY(status_of(pid));
    SAY(sum(fds[0]));
    SAY(sum(fds[1]));
    close(fds[0]), close(fds[1]);
}

// Streams that go from the one to the other.
static void streams(void) {
    FILE *one = fopen("stream", "w+"), *other = fopen(path_in(there, "stream"), "a+");
    SAY(fprintf(one, "here %d\n", 1));
    SAY(fprintf(other, "there %d\n", 1));
    SAY(fflush(one) | fflush(other));
    SHOW("stream");
    SHOW(path_in(there, "stream"));
    fprintf(one, "lost?\n");
    one = freopen(path_in(there, "again"), "w", one);
    fprintf(one, "now there\n");
    fprintf(other, "lost?\n");
    other = freopen("again", "w", other);
    fprintf(other, "now here\n");
    SAY(fclose(one) | fclose(other));
    SHOW("stream");
    SHOW(path_in(there, "stream"));
    SHOW("again");
    SHOW(path_in(there, "again"));
    int fd = grown(path_in(there, "number"), 0, 4);
    one = fdopen(fd, "a");
    fputs("by a stream\n", one);
    SAY(fclose(one));
    SHOW(path_in(there, "number"));
    fd = grown("number", 0, 4);
    one = fdopen(fd, "a");
    fputs("by a stream\n", one);
    SAY(fclose(one));
    SHOW("number");
}

// Descriptors with bytes on their way, in one message.
static void sent(void) {
    int sockets[2], fds[2] = {grown("sent", 0, 9), grown(path_in(there, "sent"), 9, 20)};
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    char byte = 'x';
    struct iovec data = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(&control.header), fds, sizeof fds);
    SAY(sendmsg(sockets[0], &message, 0));
    pid_t pid = fork();
    if (pid == 0) {
        message.msg_controllen = sizeof control.room;
        int got = recvmsg(sockets[1], &message, 0) == 1;
        memcpy(fds, CMSG_DATA(&control.header), sizeof fds);
        _exit(!got || write(fds[0], "received\n", 9) != 9 || write(fds[1], "received\n", 9) != 9);
    }
    SAY(status_of(pid));
    SAY(write(fds[0], "sender\n", 7) + write(fds[1], "sender\n", 7));
    SAY(sum(fds[0]));
    SAY(sum(fds[1]));
    close(sockets[0]), close(sockets[1]), close(fds[0]), close(fds[1]);
}

// Calls by paths, and from directories, of the one while the other is where the process is.
static void paths(void) {
    int fd = grown(path_in(there, "path"), 0, 30), own = grown("path", 0, 20);
    struct stat found;
    SAY(stat(path_in(there, "path"), &found));
    SAY(found.st_size);
    int directory = open(there, O_RDONLY | O_DIRECTORY);
    SAY(fstatat(directory, "path", &found, 0));
    SAY(found.st_size);
    SAY(write(fd, "more", 4));
    SAY(fstat(fd, &found));
    SAY(found.st_size);
    SAY(truncate(path_in(there, "path"), 50));
    SAY(write(fd, "more", 4));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(chmod(path_in(there, "path"), 0600) | fchmodat(directory, "path", 0640, 0));
    SAY(utimensat(directory, "path", (struct timespec[]){{7, 8}, {9, 10}}, 0));
    SAY(stat(path_in(there, "path"), &found));
    SAY(found.st_mtim.tv_sec * 100 + found.st_mtim.tv_nsec);
    SAY(setxattr(path_in(there, "path"), "user.x", "y", 1, 0));
    SAY(rename(path_in(there, "path"), path_in(there, "renamed")));
    SAY(write(fd, "moved", 5));
    SAY(linkat(directory, "renamed", directory, "linked", 0));
    SAY(unlinkat(directory, "renamed", 0));
    SAY(write(fd, "linked", 6));
    SHOW(path_in(there, "linked"));
    SAY(fchdir(directory));
    SHOW("linked");
    SHOW(path_in(here, "path"));
    SAY(write(own, "from there", 10));
    SAY(remove("linked"));
    SAY(write(fd, "gone", 4));
    SAY(sum(fd));
    SAY(rename(path_in(here, "path"), "path"));
    SAY(link("/dev/null", path_in(here, "null")));
    SAY(chdir(here));
    SAY(sum(own));
    int fresh = openat(directory, "fresh", O_RDWR | O_CREAT | O_EXCL, 0600);
    SAY(write(fresh, "fresh", 5));
    SAY(syscall(SYS_write, fresh, " raw", 4));
    SAY(syscall(SYS_pread64, fresh, (char[16]){0}, 16, 0));
    SAY(fsync(fresh) | fdatasync(fresh) | syncfs(fresh));
    sync();
    SAY(posix_fallocate(fresh, 0, 20000));
    SAY(lseek(fresh, 0, SEEK_END));
    SAY(fallocate(fresh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3));
    SAY(sum(fresh));
    SAY(fcntl(fresh, F_SETFL, O_APPEND));
    SAY(write(fresh, "at the end", 10));
    SAY(sum(fresh));
    close(fresh), close(fd), close(own), close(directory);
}

// Limits hold for both.
static void limits(void) {
    int fd = grown("limited", 0, 10), over = grown(path_in(there, "limited"), 0, 10);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    SAY(getrlimit(RLIMIT_FSIZE, &before));
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    for (int each = 0; each < 3; each++)
        SAY(write(fd, "0123456789012345678", 19)), SAY(write(over, "0123456789012345678", 19));
    SAY(pwrite(over, "x", 1, 200));
    SAY(ftruncate(over, 101));
    SAY(setrlimit(RLIMIT_FSIZE, &before));
    SAY(write(fd, "beyond", 6) + write(over, "beyond", 6));
    SAY(sum(fd));
    SAY(sum(over));
    close(fd), close(over);
}

static void *appends(void *argument) {
    int *fds = argument;
    for (int each = 0; each < 500; each++)
        if (write(fds[each % 2], "thread\n", 7) != 7)
            return "write";
    return NULL;
}

static void threads(void) {
    int fds[] = {grown("threads", 0, 1), grown(path_in(there, "threads"), 0, 1)};
    pthread_t all[4];
    for (int each = 0; each < 4; each++)
        pthread_create(&all[each], NULL, appends, fds);
    // Forks and others' opens while they write.
    for (int each = 0; each < 20; each++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(close(open(path_in(there, "threads"), O_RDONLY)) | close(open("threads", O_RDONLY)));
        if (status_of(pid) != 0)
            fprintf(results, "a child failed\n");
    }
    for (int each = 0; each < 4; each++) {
        void *failed;
        pthread_join(all[each], &failed);
        SAY_TEXT(failed ? (char *)failed : "all is well");
    }
    SAY(sum(fds[0]));
    SAY(sum(fds[1]));
    close(fds[0]), close(fds[1]);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    here = argv[1], there = argv[2];
    copies();
    numbers();
    buffers();
    children();
    streams();
    sent();
    paths();
    limits();
    threads();
    // Left as it is: an end of the process keeps all.
    grown("end", 0, 700);
    grown(path_in(there, "end"), 0, 700);
    return 0;
}
