// fcntl, ioctl, poll and their kin on descriptors of a file system.
#include "say.h"
#include <sys/epoll.h>
#include <sys/select.h>
#include <linux/fs.h>
#include <termios.h>

static void status_flags(void) {
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_NONBLOCK,
                                O_RDONLY | O_SYNC, O_WRONLY | O_DSYNC, O_RDONLY | O_NOFOLLOW,
                                O_RDONLY | O_NOCTTY | O_CLOEXEC, O_RDONLY | O_NOATIME, 3, O_PATH,
                                O_PATH | O_NOFOLLOW | O_RDWR, O_RDWR | O_ASYNC,
                                O_RDWR | O_TRUNC | O_CREAT};
    for (unsigned at = 0; at < sizeof modes / sizeof *modes; at++) {
        int fd = open("file", modes[at], 0600);
        SAY(modes[at]);
        SAY(fcntl(fd, F_GETFL));
        SAY(fcntl(fd, F_GETFD));
        SAY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK | O_RDWR | O_SYNC | O_TRUNC));
        SAY(fcntl(fd, F_GETFL));
        SAY(fcntl(fd, F_SETFL, O_NOATIME | O_ASYNC));
        SAY(fcntl(fd, F_GETFL));
        SAY(fcntl(fd, F_SETFL, 0));
        SAY(fcntl(fd, F_GETFL));
        SAY(fcntl(fd, F_SETFD, 7));
        SAY(fcntl(fd, F_GETFD));
        char byte;
        SAY(read(fd, &byte, 0));
        SAY(write(fd, "x", 1));
        SAY(lseek(fd, 0, SEEK_SET));
        SAY(fsync(fd));
        SAY(ftruncate(fd, 3));
        SAY(fchmod(fd, 0600));
        SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
        SAY(readahead(fd, 0, 1));
        SAY(flock(fd, LOCK_SH | LOCK_NB));
        SAY(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
        SAY(close(fd));
    }
    int dir = open(".", O_RDONLY);
    SAY(fcntl(dir, F_GETFL));
    SAY(fcntl(dir, F_SETFL, O_APPEND));
    SAY(fcntl(dir, F_GETFL));
    SAY(ftruncate(dir, 0));
    SAY(fsync(dir));
    char byte;
    SAY(read(dir, &byte, 1));
    SAY(write(dir, &byte, 1));
    SAY(pread(dir, &byte, 1, 0));
    SAY(posix_fallocate(dir, 0, 1));
    SAY(close(dir));
    SAY(open(".", O_RDONLY | O_DIRECT));
}

static void opening(void) {
    SAY(symlink("file", "link") | symlink("none", "dangling") | mkdir("dir", 0755));
    SAY(symlink("dir", "link-dir"));
    static const char *const names[] = {"file", "dir", "link", "link-dir", "dangling", "new", ".",
                                        "dir/", "file/", "link/", "link-dir/", "new/", "dangling/"};
    static const int modes[] = {
        O_DIRECTORY, O_DIRECTORY | O_RDWR, O_NOFOLLOW, O_NOFOLLOW | O_DIRECTORY, O_CREAT,
        O_CREAT | O_EXCL, O_CREAT | O_NOFOLLOW, O_CREAT | O_DIRECTORY, O_TRUNC | O_RDWR,
        O_PATH, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY, O_PATH | O_NOFOLLOW | O_DIRECTORY,
        O_PATH | O_CREAT, O_RDWR, O_TMPFILE | O_RDWR, O_TMPFILE, O_EXCL,
        O_CREAT | O_EXCL | O_DIRECTORY, O_DIRECTORY | O_TRUNC};
    for (unsigned name = 0; name < sizeof names / sizeof *names; name++)
        for (unsigned mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
            int fd = open(names[name], modes[mode], 0600);
            fprintf(results, "open %s %o: %s %o\n", names[name], modes[mode],
                    fd < 0 ? strerrorname_np(errno) : "works", fd < 0 ? 0 : fcntl(fd, F_GETFL));
            close(fd);
            unlink("new");
            unlink("none");
        }
}

static void commands(void) {
    int fd = open("commands", O_RDWR | O_CREAT, 0644);
    SAY(fcntl(fd, F_SETPIPE_SZ, 4096));
    SAY(fcntl(fd, F_GETPIPE_SZ));
    SAY(fcntl(fd, F_GETOWN));
    SAY(fcntl(fd, F_SETOWN, getpid()));
    SAY(fcntl(fd, F_GETOWN) == getpid());
    SAY(fcntl(fd, F_SETOWN, 0));
    SAY(fcntl(fd, F_GETSIG));
    SAY(fcntl(fd, F_SETSIG, SIGUSR1));
    SAY(fcntl(fd, F_GETSIG));
    SAY(fcntl(fd, F_SETSIG, 0));
    SAY(fcntl(fd, F_SETSIG, 1000));
    struct f_owner_ex owner = {F_OWNER_PID, 0};
    SAY(fcntl(fd, F_SETOWN_EX, &owner));
    SAY(fcntl(fd, F_GETOWN_EX, &owner));
    SAY(owner.type * 10 + owner.pid);
    SAY(fcntl(fd, F_GET_SEALS));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    SAY(fcntl(fd, 9999, 0));
    uint64_t hint = 0;
    SAY(fcntl(fd, F_GET_RW_HINT, &hint));
    SAY(fcntl(fd, F_GETLEASE));
    SAY(fcntl(-1, F_GETFD));
    int path = open("commands", O_PATH);
    SAY(fcntl(path, F_GETOWN));
    SAY(fcntl(path, F_GETLK, NULL));
    SAY(fcntl(path, F_DUPFD, 40));
    SAY(fcntl(path, F_SETFD, 1));
    SAY(ioctl(path, FIONREAD, &fd));
    close(path);
    close(40);
}

static void device_control(void) {
    int fd = open("file", O_RDWR), value = 0, dir = open(".", O_RDONLY);
    SAY(ftruncate(fd, 100));
    SAY(lseek(fd, 30, SEEK_SET));
    SAY(ioctl(fd, FIONREAD, &value));
    SAY(value);
    SAY(lseek(fd, 130, SEEK_SET));
    SAY(ioctl(fd, FIONREAD, &value));
    SAY(value);
    value = 1;
    SAY(ioctl(fd, FIONBIO, &value));
    SAY(fcntl(fd, F_GETFL));
    value = 0;
    SAY(ioctl(fd, FIONBIO, &value));
    SAY(fcntl(fd, F_GETFL));
    SAY(ioctl(fd, FIOCLEX));
    SAY(fcntl(fd, F_GETFD));
    SAY(ioctl(fd, FIONCLEX));
    SAY(fcntl(fd, F_GETFD));
    struct termios terminal;
    SAY(ioctl(fd, TCGETS, &terminal));
    SAY(isatty(fd));
    struct winsize size;
    SAY(ioctl(fd, TIOCGWINSZ, &size));
    SAY(ioctl(fd, TIOCGPGRP, &value));
    SAY(ioctl(fd, BLKGETSIZE64, &value));
    SAY(ioctl(fd, FIBMAP, NULL));
    SAY(ioctl(fd, 0x12345678, &value));
    SAY(ioctl(dir, FIONREAD, &value));
    SAY(ioctl(dir, TCGETS, &terminal));
    SAY(tcgetattr(fd, &terminal));
    SAY(close(fd) | close(dir));
}

static void readiness(void) {
    int fd = open("file", O_RDWR), dir = open(".", O_RDONLY);
    struct pollfd asked[3] = {{fd, POLLIN | POLLOUT | POLLPRI, 0},
                              {dir, POLLIN | POLLOUT, 0},
                              {-1, POLLIN, 0}};
    SAY(poll(asked, 3, 1000));
    for (int at = 0; at < 3; at++)
        SAY(asked[at].revents);
    struct timespec second = {1, 0};
    SAY(ppoll(asked, 2, &second, NULL));
    fd_set reads, writes, errors;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_ZERO(&errors);
    FD_SET(fd, &reads);
    FD_SET(fd, &writes);
    FD_SET(fd, &errors);
    struct timeval time = {1, 0};
    SAY(select(fd + 1, &reads, &writes, &errors, &time));
    SAY(FD_ISSET(fd, &reads) + FD_ISSET(fd, &writes) * 10 + FD_ISSET(fd, &errors) * 100);
    SAY(pselect(fd + 1, &reads, &writes, NULL, &second, NULL));
    int far = fcntl(fd, F_DUPFD, 1500), set = epoll_create1(0);
    if (far > 0) {
        fd_set *big = calloc(4, sizeof *big);
        ((unsigned long *)big)[far / 64] |= 1ul << far % 64;
        SAY(select(far + 1, big, NULL, NULL, &time));
        free(big);
        close(far);
    }
    struct epoll_event event = {.events = EPOLLIN};
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, dir, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, fd, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    SAY(epoll_ctl(fd, EPOLL_CTL_ADD, set, &event));
    SAY(epoll_wait(fd, &event, 1, 0));
    SAY(close(set) | close(fd) | close(dir));
}

static void path_only(void) {
    int fd = open("file", O_PATH), dir = open(".", O_PATH | O_DIRECTORY);
    int link = open("link", O_PATH | O_NOFOLLOW);
    char text[16] = {0};
    struct stat stat;
    SAY(read(fd, text, 1));
    SAY(write(fd, text, 1));
    SAY(pread(fd, text, 1, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(ftruncate(fd, 0));
    SAY(fchmod(fd, 0644));
    SAY(fchown(fd, -1, -1));
    SAY(fstat(fd, &stat));
    SAY(S_ISREG(stat.st_mode));
    SAY(fgetxattr(fd, "user.x", text, 1));
    SAY(futimens(fd, NULL));
    SAY(fallocate(fd, 0, 0, 1));
    SAY(fdatasync(fd));
    SAY(syncfs(fd));
    SAY(fstat(link, &stat));
    SAY(S_ISLNK(stat.st_mode));
    SAY(readlinkat(link, "", text, sizeof text));
    SAY_TEXT(text);
    SAY(readlinkat(fd, "", text, sizeof text));
    SAY(fstatat(fd, "", &stat, AT_EMPTY_PATH));
    SAY(fstatat(fd, "", &stat, 0));
    SAY(fstatat(dir, "file", &stat, 0));
    SAY(faccessat(dir, "file", R_OK, 0));
    SAY(close(openat(dir, "file", O_RDONLY)) < 0);
    SAY(openat(fd, "x", O_RDONLY));
    SAY(fchdir(dir));
    SAY(fchdir(fd));
    SAY(dup2(fd, 60));
    SAY(fcntl(60, F_GETFL));
    SAY(mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
    SAY(linkat(fd, "", AT_FDCWD, "linked", AT_EMPTY_PATH));
    SAY(unlink("linked"));
    SAY(close(60) | close(fd) | close(dir) | close(link));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "0123456789");
    status_flags();
    opening();
    commands();
    device_control();
    readiness();
    path_only();
    return 0;
}
