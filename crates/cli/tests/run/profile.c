// Calls that a profile must count, and nothing else on files: profiled WHAT DIRECTORY
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) \
    do { \
        if ((long)(call) < 0) err(1, "%s", #call); \
    } while (0)
#define CHECK(what) \
    do { \
        if (!(what)) errx(1, "line %d: %s (errno %d)", __LINE__, #what, errno); \
    } while (0)

static char buffer[1 << 16];

// One process and thread: counts and bytes of each kind.
static void alone(void) {
    int fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd);
    for (int i = 0; i < 1000; i++) CHECK(write(fd, buffer, 4096) == 4096);
    for (int i = 0; i < 500; i++) CHECK(pread(fd, buffer, 100, i * 4096) == 100);
    for (int i = 0; i < 7; i++) CHECK(pwrite(fd, buffer, 65536, 0) == 65536);
    struct iovec two[2] = {{buffer, 10}, {buffer, 20}};
    for (int i = 0; i < 5; i++) CHECK(writev(fd, two, 2) == 30);
    for (int i = 0; i < 3; i++) MUST(fsync(fd));
    MUST(lseek(fd, 0, SEEK_SET));
    CHECK(read(fd, buffer, 1000) == 1000);
    struct stat is;
    for (int i = 0; i < 9; i++) MUST(fstat(fd, &is));
    int copy = dup(fd);
    MUST(copy);
    CHECK(write(copy, buffer, 11) == 11);
    MUST(close(copy));
    MUST(close(fd));
    CHECK(syscall(SYS_pread64, fd, buffer, 1, 0) < 0 && errno == EBADF);
    MUST(stat("a", &is));
    MUST(rename("a", "b"));
    MUST(mkdir("d", 0755));
    MUST(rmdir("d"));
    MUST(unlink("b"));
    // The number is another file's now.
    int again = open("c", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(again == fd);
    CHECK(write(again, buffer, 77) == 77);
    MUST(close(again));
    // A pipe is no file.
    int pair[2];
    MUST(pipe(pair));
    CHECK(write(pair[1], buffer, 5) == 5 && read(pair[0], buffer, 5) == 5);
    MUST(close(pair[0]));
    MUST(close(pair[1]));
    // A stream on the volume writes by `write`.
    FILE *stream = fopen("s", "w");
    CHECK(stream);
    static char own[4096];
    setvbuf(stream, own, _IOFBF, sizeof own);
    for (int i = 0; i < 4096; i++) fputs("12345678", stream);
    MUST(fclose(stream));
}

static void *writes(void *number) {
    char name[20];
    sprintf(name, "t%ld", (long)number);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd);
    for (int i = 0; i < 250; i++) CHECK(pwrite(fd, buffer, 64, i * 64) == 64);
    MUST(close(fd));
    return NULL;
}

// Threads, children, an exec, a killed child: all of it counts.
static void many(const char *self) {
    pthread_t threads[4];
    for (int round = 0; round < 3; round++) {
        for (long i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, writes, (void *)i));
        for (int i = 0; i < 4; i++) CHECK(!pthread_join(threads[i], NULL));
    }
    int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    MUST(fd);
    int status;
    // One inherits the descriptor, ends at once.
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) CHECK(write(fd, buffer, 10) == 10);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 70; i++) CHECK(write(fd, buffer, 3) == 3);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    // One is executed with an empty environment.
    child = fork();
    if (child == 0) {
        char number[20];
        sprintf(number, "%d", fd);
        char *arguments[] = {(char *)self, "inherits", number, NULL}, *environment[] = {NULL};
        CHECK(write(fd, buffer, 1) == 1);
        execve(self, arguments, environment);
        err(1, "execve");
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    MUST(close(fd));
}

static sigjmp_buf away;

static void leave(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}

static void *is_cancelled(void *fd) {
    for (;;) {
        if (write((int)(long)fd, buffer, 1) < 0) return NULL;
    }
}

// What a program sees of its calls is what it sees without a profile.
static void same(void) {
    CHECK(open("none/none", O_RDONLY) < 0 && errno == ENOENT);
    CHECK(open(NULL, O_RDONLY) < 0 && errno == EFAULT);
    struct stat is;
    CHECK(stat((char *)8, &is) < 0 && errno == EFAULT);
    CHECK(read(999, buffer, 1) < 0 && errno == EBADF);
    CHECK(close(999) < 0 && errno == EBADF);
    CHECK(close(-1) < 0 && errno == EBADF);
    CHECK(fcntl(999, F_GETFD) < 0 && errno == EBADF);
    int fd = open("same", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd);
    errno = 77;
    CHECK(write(fd, buffer, 5) == 5 && errno == 77);
    CHECK(pread(fd, buffer, 1, -1) < 0 && errno == EINVAL);
    CHECK(posix_fallocate(fd, -1, 5) == EINVAL);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 500);
    CHECK(high == 500 && fcntl(high, F_GETFD) == FD_CLOEXEC);
    CHECK(dup2(fd, 501) == 501 && dup3(fd, 502, O_CLOEXEC) == 502);
    CHECK(write(501, buffer, 1) == 1);
    CHECK(close_range(500, 502, 0) == 0 && write(501, buffer, 1) < 0 && errno == EBADF);
    // A thread that is cancelled in a call.
    pthread_t thread;
    void *gave;
    CHECK(!pthread_create(&thread, NULL, is_cancelled, (void *)(long)fd));
    usleep(20000);
    CHECK(!pthread_cancel(thread) && !pthread_join(thread, &gave) && gave == PTHREAD_CANCELED);
    // A call that a handler leaves by a jump.
    int pair[2];
    MUST(pipe(pair));
    signal(SIGALRM, leave);
    if (sigsetjmp(away, 1) == 0) {
        alarm(1);
        read(pair[0], buffer, 1);
        errx(1, "nobody wrote");
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    MUST(fcntl(fd, F_SETLK, &lock));
    pid_t child = fork();
    if (child == 0) {
        CHECK(fcntl(fd, F_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    MUST(close(fd));
    puts("as ever");
}

// Two processes write to one range at a time: each waits for the other one's lock of the inode.
static void contend(void) {
    static char large[1 << 20];
    int fd = open("both", O_RDWR | O_CREAT | O_TRUNC, 0644), pair[2];
    MUST(fd);
    CHECK(pwrite(fd, large, sizeof large, 0) == sizeof large);
    MUST(pipe(pair));
    pid_t child = fork();
    MUST(child);
    // They begin together.
    if (child == 0) CHECK(write(pair[1], "x", 1) == 1);
    else CHECK(read(pair[0], buffer, 1) == 1);
    struct timespec begun, now;
    MUST(clock_gettime(CLOCK_MONOTONIC, &begun));
    do {
        CHECK(pwrite(fd, large, sizeof large, 0) == sizeof large);
        MUST(clock_gettime(CLOCK_MONOTONIC, &now));
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < 700);
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%d %d\n", getpid(), child);
}

// A child waits 200 ms for a record lock of its parent's, and as long for a `flock`.
static void locked(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, unlock = lock;
    unlock.l_type = F_UNLCK;
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0644), pair[2], status;
    MUST(fd);
    for (int way = 0; way < 2; way++) {
        MUST(way ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLK, &lock));
        MUST(pipe(pair));
        pid_t child = fork();
        MUST(child);
        if (child == 0) {
            // Of its own: a description's lock is no other process's.
            int own = open("locked", O_RDWR);
            MUST(own);
            CHECK(write(pair[1], "x", 1) == 1);
            MUST(way ? flock(own, LOCK_EX) : fcntl(own, F_SETLKW, &lock));
            _exit(0);
        }
        CHECK(read(pair[0], buffer, 1) == 1);
        usleep(200000);
        MUST(way ? flock(fd, LOCK_UN) : fcntl(fd, F_SETLK, &unlock));
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    printf("%d\n", getpid());
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (!strcmp(words[1], "inherits")) {
        int fd = atoi(words[2]);
        for (int i = 0; i < 50; i++) CHECK(write(fd, buffer, 20) == 20);
        return 0;
    }
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    MUST(length);
    self[length] = 0;
    MUST(chdir(words[2]));
    if (!strcmp(words[1], "alone")) alone();
    if (!strcmp(words[1], "many")) many(self);
    if (!strcmp(words[1], "same")) same();
    if (!strcmp(words[1], "contend")) contend();
    if (!strcmp(words[1], "locked")) locked();
    return 0;
}
