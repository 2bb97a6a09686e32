// A number that was closed just now is free for whatever comes next: each call that makes a number
// gets it, each call on it says EBADF, and nobody inherits it.
#define _GNU_SOURCE
#include "say.h"
#include <aio.h>
#include <dlfcn.h>
#include <fts.h>
#include <mntent.h>
#include <mqueue.h>
#include <netdb.h>
#include <pthread.h>
#include <pty.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <time.h>

extern char **environ;
FILE *__setmntent(const char *path, const char *mode);

// Opens and closes a file of the volume: gives the number that is free now.
static int leave(int flags) {
    int fd = open("f", O_RDWR | flags);
    close(fd);
    return fd;
}

// What the kernel says of a number, past the library.
static long raw(int fd) {
    long answer;
    asm volatile("syscall"
                 : "=a"(answer)
                 : "a"(SYS_fcntl), "D"((long)fd), "S"((long)F_GETFD)
                 : "rcx", "r11", "memory");
    return answer;
}

// The number is closed when the call begins.
#define FREE(expression) \
    do { \
        int left = leave(0); \
        SAY(expression); \
        SAY(raw(left)); \
    } while (0)

// What a call makes, and what it makes once more beside it.
#define MADE(expression) \
    do { \
        leave(0); \
        int made_now = (expression); \
        SAY(made_now); \
        int beside = open("f", O_RDONLY); \
        SAY(beside); \
        close(beside); \
        SAY(close(made_now)); \
        SAY(close(made_now)); \
    } while (0)

static int both(int result, int *pair) {
    if (result < 0)
        return -1;
    SAY(pair[0] * 100 + pair[1]);
    close(pair[1]);
    return pair[0];
}

static int first_of(FILE *stream) {
    int fd = fileno(stream);
    int copy = dup(fd);
    fclose(stream);
    close(copy);
    return open("/dev/null", O_RDONLY) == fd ? fd : -2;
}

static int pushed(int kind) {
    int pair[2], from = open("/dev/null", O_RDONLY);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &from, sizeof from);
    SAY(sendmsg(pair[0], &message, 0));
    memset(room, 0, sizeof room);
    leave(0);
    struct mmsghdr many = {.msg_hdr = message};
    SAY(kind ? recvmmsg(pair[1], &many, 1, 0, NULL) : recvmsg(pair[1], &message, 0));
    int got;
    memcpy(&got, CMSG_DATA(head), sizeof got);
    close(from), close(pair[0]), close(pair[1]);
    return got;
}

static void makers(void) {
    int pair[2];
    char name[] = "/tmp/solera-parked-XXXXXX", here[] = "madeXXXXXX";
    sigset_t none;
    sigemptyset(&none);
    MADE(open("f", O_RDONLY));
    MADE(open("f", O_RDONLY | O_CLOEXEC));
    MADE(open("new", O_RDWR | O_CREAT, 0600));
    MADE(open("/dev/null", O_RDONLY));
    MADE(openat(AT_FDCWD, "/dev/null", O_RDONLY));
    MADE(creat("/dev/null", 0600));
    MADE(dup(0));
    MADE(dup2(0, 20));
    MADE(fcntl(0, F_DUPFD, 0));
    MADE(fcntl(0, F_DUPFD_CLOEXEC, 3));
    MADE(socket(AF_UNIX, SOCK_STREAM, 0));
    MADE(both(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), pair));
    MADE(both(pipe(pair), pair));
    MADE(both(pipe2(pair, O_CLOEXEC), pair));
    MADE(eventfd(0, 0));
    MADE(epoll_create(1));
    MADE(epoll_create1(0));
    MADE(timerfd_create(CLOCK_MONOTONIC, 0));
    MADE(signalfd(-1, &none, 0));
    MADE(inotify_init());
    MADE(inotify_init1(0));
    MADE(memfd_create("x", 0));
    MADE(syscall(SYS_memfd_create, "x", 0));
    MADE(syscall(SYS_eventfd2, 0, 0));
    MADE(syscall(SYS_pidfd_open, getpid(), 0));
    MADE(posix_openpt(O_RDWR | O_NOCTTY));
    MADE(both(openpty(&pair[0], &pair[1], NULL, NULL, NULL), pair));
    MADE(mkstemp(name));
    unlink(name);
    MADE(mkstemp(here));
    unlink(here);
    MADE(first_of(fopen("/dev/null", "r")));
    MADE(first_of(fopen("f", "r")));
    MADE(first_of(tmpfile()));
    MADE(first_of(setmntent("/proc/mounts", "r")));
    MADE(first_of(__setmntent("/proc/mounts", "r")));
    MADE(first_of(popen("true", "r")));
    MADE(dirfd(opendir("/")));
    MADE(dirfd(opendir(".")));
    MADE(pushed(0));
    MADE(pushed(1));
    while (wait(NULL) > 0) {}
}

static int leaves(const struct dirent *unused) {
    leave(0);
    return !unused;
}

// Lower numbers become free between the open and the close, or after it.
static void lower(void) {
    int low = open("/dev/null", O_RDONLY), high = open("f", O_RDONLY);
    SAY(close(low) | close(high));
    SAY(open("f", O_RDONLY));
    SAY(open("f", O_RDONLY));
    SAY(close(high) | close(low));
    SAY(open("f", O_RDONLY));
    SAY(open("f", O_RDONLY));
    SAY(open("f", O_RDONLY));
    SAY(close(low) | close(low + 2) | close(high));
    SAY(open("f", O_RDONLY));
    SAY(open("/dev/null", O_RDONLY));
    SAY(open("f", O_RDONLY));
    SAY(close_range(3, 50, 0));
    // Closed inside glibc.
    FILE *stream = fopen("/dev/null", "r");
    high = open("f", O_RDONLY);
    SAY(close(high) | fclose(stream));
    SAY(open("f", O_RDONLY));
    SAY(close(low));
    DIR *list = opendir("/");
    high = open("f", O_RDONLY);
    SAY(close(high) | closedir(list));
    SAY(open("f", O_RDONLY));
    SAY(close(low));
    struct dirent **names;
    SAY(scandir("/", &names, leaves, NULL));
    SAY(open("f", O_RDONLY));
    SAY(close(low));
    char *paths[] = {"/", NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL, NULL);
    high = open("f", O_RDONLY);
    SAY(close(high) | fts_close(tree));
    SAY(open("f", O_RDONLY));
    SAY(close(low) | close(dup(0)));
    setpwent();
    SAY(!getpwent());
    high = open("f", O_RDONLY);
    SAY(close(high));
    endpwent();
    SAY(open("f", O_RDONLY));
    SAY(close(low));
    // Standard numbers.
    leave(0);
    SAY(close(0));
    SAY(open("f", O_RDONLY));
    SAY(close(0));
    SAY(socket(AF_UNIX, SOCK_STREAM, 0));
    SAY(dup2(1, 0));
}

// To every call the number is closed.
static void closed(void) {
    struct stat stat;
    char byte;
    int fd = leave(0), epoll;
    struct epoll_event event = {.events = EPOLLIN};
#define CLOSED(expression) \
    do { \
        leave(0); \
        SAY(expression); \
    } while (0)
    CLOSED(close(fd));
    CLOSED(read(fd, &byte, 1));
    CLOSED(write(fd, "x", 1));
    CLOSED(pread(fd, &byte, 1, 0));
    CLOSED(lseek(fd, 0, SEEK_SET));
    CLOSED(fstat(fd, &stat));
    CLOSED(fstatat(fd, "f", &stat, 0));
    CLOSED(fstatat(fd, "", &stat, AT_EMPTY_PATH));
    CLOSED(openat(fd, "f", O_RDONLY));
    CLOSED(fchdir(fd));
    CLOSED(fsync(fd));
    CLOSED(ftruncate(fd, 1));
    CLOSED(dup(fd));
    CLOSED(dup2(fd, fd));
    CLOSED(dup2(fd, 30));
    CLOSED(dup3(fd, 30, 0));
    CLOSED(fcntl(fd, F_GETFD));
    CLOSED(fcntl(fd, F_GETFL));
    CLOSED(fcntl(fd, F_DUPFD, 0));
    CLOSED(ioctl(fd, FIOCLEX));
    CLOSED(flock(fd, LOCK_SH));
    CLOSED((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    CLOSED(sendfile(1, fd, NULL, 1));
    CLOSED(syscall(SYS_fstat, fd, &stat));
    CLOSED(syscall(SYS_read, fd, &byte, 1));
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    CLOSED(poll(&asked, 1, 0));
    SAY(asked.revents);
    asked.revents = 0;
    CLOSED(ppoll(&asked, 1, &(struct timespec){0}, NULL));
    SAY(asked.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CLOSED(select(fd + 1, &set, NULL, NULL, &(struct timeval){0}));
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CLOSED(pselect(fd + 1, &set, NULL, NULL, &(struct timespec){0}, NULL));
    epoll = fcntl(epoll_create1(0), F_DUPFD, 40);
    close(fd);
    CLOSED(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    close(epoll);
    // What stands at it afterwards is not touched.
    leave(0);
    SAY(dup2(1, fd));
    SAY(close(leave(0)));
    SAY(fcntl(fd, F_GETFD));
    SAY(close(fd));
    leave(0);
    SAY(close_range(fd, fd, 0));
    SAY(open("f", O_RDONLY));
    SAY(fcntl(fd, F_GETFD));
    SAY(close(fd));
    leave(0);
    SAY(close_range(fd, fd + 5, CLOSE_RANGE_CLOEXEC));
    SAY(open("f", O_RDONLY));
    SAY(fcntl(fd, F_GETFD));
    SAY(close(fd));
}

// The flag is the one that the open asks for.
static void flags(void) {
    int fd = leave(O_CLOEXEC);
    SAY(fcntl(open("f", O_RDONLY), F_GETFD));
    close(fd);
    leave(0);
    SAY(fcntl(open("f", O_RDONLY | O_CLOEXEC), F_GETFD));
    close(fd);
    leave(O_CLOEXEC);
    SAY(fcntl(open("f", O_RDONLY | O_CLOEXEC), F_GETFD));
    SAY(fcntl(fd, F_SETFD, 0));
    close(fd);
    SAY(fcntl(open("f", O_RDONLY | O_CLOEXEC), F_GETFD));
    close(fd);
    open("f", O_RDONLY);
    SAY(ioctl(fd, FIOCLEX));
    close(fd);
    SAY(fcntl(open("f", O_RDONLY), F_GETFD));
    close(fd);
}

// Says in a child what is open.
static void listed(const char *what) {
    SAY_TEXT(what);
    for (int fd = 3; fd < 8; fd++)
        SAY(fcntl(fd, F_GETFD));
    leave(0);
    SAY(socket(AF_UNIX, SOCK_STREAM, 0));
    SAY(open("f", O_RDONLY));
}

static void children(char *self) {
    leave(0);
    pid_t child = fork();
    if (child == 0) {
        listed("fork");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    leave(0);
    child = vfork();
    if (child == 0) {
        execl(self, self, "listed", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    char *arguments[] = {self, "listed", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int fd = leave(0), failed;
    failed = posix_spawn(&child, self, NULL, NULL, arguments, environ);
    waitpid(child, NULL, 0);
    SAY(failed);
    leave(0);
    posix_spawn_file_actions_adddup2(&actions, 1, fd);
    failed = posix_spawn(&child, self, &actions, NULL, arguments, environ);
    waitpid(child, NULL, 0);
    SAY(failed);
    posix_spawn_file_actions_destroy(&actions);
    leave(0);
    SAY(open("f", O_RDONLY));
    close(fd);
    leave(0);
    SAY(system("exec 2>&1; ls /proc/self/fd | grep -c '^[3-9]$'"));
    leave(0);
    SAY(execl("/no/such/program", "x", NULL));
    SAY(open("f", O_RDONLY));
    close(fd);
}

static void limits(void) {
    struct rlimit before, now;
    int fd = leave(0);
    getrlimit(RLIMIT_NOFILE, &before);
    now = before;
    now.rlim_cur = fd;
    SAY(setrlimit(RLIMIT_NOFILE, &now));
    SAY(open("f", O_RDONLY));
    now.rlim_cur = fd + 1;
    SAY(setrlimit(RLIMIT_NOFILE, &now));
    leave(0);
    SAY(open("/dev/null", O_RDONLY));
    SAY(open("f", O_RDONLY));
    SAY(close(fd));
    leave(0);
    SAY(open("f", O_RDONLY));
    SAY(close(fd));
    leave(0);
    SAY(fcntl(0, F_DUPFD, 0));
    SAY(close(fd));
    SAY(setrlimit(RLIMIT_NOFILE, &before));
}

static void *beside(void *unused) {
    SAY(socket(AF_UNIX, SOCK_STREAM, 0));
    SAY(leave(0));
    SAY(eventfd(0, 0));
    return unused;
}

static void threads(void) {
    pthread_t thread;
    leave(0);
    int failed = pthread_create(&thread, NULL, beside, NULL);
    pthread_join(thread, NULL);
    SAY(failed);
    int fd = leave(0);
    SAY(fcntl(fd, F_GETFD));
    SAY(open("f", O_RDONLY));
}

static void *none(void *unused) {
    return unused;
}

static int nothing(void *unused) {
    return !!unused;
}

static void tell(union sigval unused) {
    (void)unused;
}

static void *makes(void *unused) {
    eventfd(0, 0);
    return unused;
}

// A thread that the library does not see begin: nobody closes what the other one puts there.
static void unseen(void) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(dlopen("libc.so.6", RTLD_NOW), "pthread_create");
    pthread_t thread;
    int left = leave(0);
    SAY(create(&thread, NULL, makes, NULL));
    // The other one may be between taking the number and putting its file there: the kernel says
    // EBUSY then.
    int put;
    do
        put = dup2(1, left);
    while (put == -1 && errno == EBUSY);
    SAY(put);
    pthread_join(thread, NULL);
    SAY(fcntl(left, F_GETFD));
}

// What begins a thread, and what may forbid to close.
static void begin(int which) {
    pthread_t thread;
    thrd_t other;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tell};
    // A thread of glibc looks at it after this function has returned.
    static struct aiocb request = {.aio_fildes = -1, .aio_sigevent.sigev_notify = SIGEV_NONE};
    struct gaicb *list[1] = {NULL};
    sigset_t all;
    int bytes;
    sigfillset(&all);
    switch (which) {
    case 0:
        FREE(pthread_create(&thread, NULL, none, NULL));
        break;
    case 1:
        pthread_sigmask(SIG_SETMASK, &all, NULL);
        FREE(pthread_create(&thread, NULL, none, NULL));
        break;
    case 2:
        pthread_sigmask(SIG_SETMASK, &all, NULL);
        threads();
        break;
    case 3:
        FREE(thrd_create(&other, nothing, NULL));
        break;
    case 4:
        FREE(timer_create(CLOCK_MONOTONIC, &event, &timer));
        break;
    case 5:
        FREE(mq_notify((mqd_t)-1, &event));
        break;
    case 6:
        FREE(aio_read(&request));
        break;
    case 7:
        FREE(ioctl(-1, FIONREAD, &bytes));
        break;
    case 8:
        unseen();
        break;
    default:
        FREE(prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L));
    }
}

static void beginners(void) {
    for (int which = 0; which < 10; which++) {
        pid_t child = fork();
        if (child == 0) {
            begin(which);
            _exit(0);
        }
        int status = 0;
        SAY(waitpid(child, &status, 0) == child);
        SAY(which * 1000 + status);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "listed") == 0) {
        results = fdopen(fcntl(1, F_DUPFD_CLOEXEC, 100), "w");
        listed("executed");
        return 0;
    }
    enter(argc, argv);
    close(open("f", O_RDWR | O_CREAT, 0644));
    makers();
    lower();
    closed();
    flags();
    children(argv[0]);
    limits();
    beginners();
    threads();
    return 0;
}
