// The number that was closed last is closed for every call that takes one.
#include "say.h"
#include <mqueue.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sendfile.h>
#include <sys/timerfd.h>
#include <termios.h>

// What every call says of the number that was closed last.
#define CLOSED(call) \
    do { \
        int fd = open("a", O_RDWR); \
        close(fd); \
        errno = 0; \
        long got = (long)(call); \
        fprintf(results, "%s = %ld %s\n", #call, got, strerrorname_np(errno)); \
        fflush(results); \
    } while (0)

static int selected(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    char text[8192];
    struct termios terminal = {0};
    struct sockaddr address = {0};
    struct epoll_event event = {0};
    struct itimerspec time = {0};
    struct mq_attr queue = {0};
    struct pollfd one;
    sigset_t none;
    struct iovec piece = {text, 1};
    struct mmsghdr messages[1] = {{.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}};
    // A length that the compiler does not know: the checked functions.
    volatile size_t many = 10;
    int value = 0;
    socklen_t size = sizeof value;
    sigemptyset(&none);
    WORKS(open("a", O_RDWR | O_CREAT, 0644));
    int watches = inotify_init(), list = epoll_create1(0);
    CLOSED(isatty(fd));
    CLOSED(ttyname(fd));
    CLOSED(ttyname_r(fd, text, sizeof text));
    CLOSED(ptsname(fd));
    CLOSED(ptsname_r(fd, text, sizeof text));
    CLOSED(grantpt(fd));
    CLOSED(unlockpt(fd));
    CLOSED(tcgetattr(fd, &terminal));
    CLOSED(tcsetattr(fd, TCSANOW, &terminal));
    CLOSED(tcdrain(fd));
    CLOSED(tcflow(fd, TCOON));
    CLOSED(tcflush(fd, TCIFLUSH));
    CLOSED(tcsendbreak(fd, 0));
    CLOSED(tcgetpgrp(fd));
    CLOSED(tcsetpgrp(fd, 1));
    CLOSED(tcgetsid(fd));
    CLOSED(sockatmark(fd));
    CLOSED(listen(fd, 1));
    CLOSED(shutdown(fd, SHUT_RD));
    CLOSED(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size));
    CLOSED(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, size));
    CLOSED(bind(fd, &address, sizeof address));
    CLOSED(connect(fd, &address, sizeof address));
    CLOSED(getsockname(fd, &address, &size));
    CLOSED(getpeername(fd, &address, &size));
    CLOSED(accept(fd, &address, &size));
    CLOSED(send(fd, text, 1, 0));
    CLOSED(recv(fd, text, 1, 0));
    CLOSED(recv(fd, text, many, 0));
    CLOSED(sendto(fd, text, 1, 0, &address, sizeof address));
    CLOSED(recvfrom(fd, text, many, 0, &address, &size));
    CLOSED(sendmsg(fd, &messages[0].msg_hdr, 0));
    CLOSED(recvmsg(fd, &messages[0].msg_hdr, 0));
    CLOSED(sendmmsg(fd, messages, 1, 0));
    CLOSED(recvmmsg(fd, messages, 1, 0, NULL));
    CLOSED(setns(fd, 0));
    CLOSED(epoll_wait(fd, &event, 1, 0));
    CLOSED(epoll_pwait(fd, &event, 1, 0, &none));
    CLOSED(epoll_pwait2(fd, &event, 1, NULL, &none));
    CLOSED(epoll_ctl(list, EPOLL_CTL_ADD, fd, &event));
    CLOSED(epoll_ctl(fd, EPOLL_CTL_ADD, 0, &event));
    CLOSED(timerfd_gettime(fd, &time));
    CLOSED(timerfd_settime(fd, 0, &time, NULL));
    CLOSED(inotify_rm_watch(fd, 1));
    CLOSED(inotify_add_watch(fd, "/", IN_CREATE));
    CLOSED(fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "/"));
    CLOSED(pidfd_send_signal(fd, 0, NULL, 0));
    CLOSED(process_madvise(fd, &piece, 1, MADV_COLD, 0));
    CLOSED(process_mrelease(fd, 0));
    CLOSED(signalfd(fd, &none, 0));
    CLOSED(mq_getattr(fd, &queue));
    CLOSED(mq_setattr(fd, &queue, NULL));
    CLOSED(mq_send(fd, text, 1, 0));
    CLOSED(mq_receive(fd, text, sizeof text, NULL));
    CLOSED(mq_timedsend(fd, text, 1, 0, &time.it_value));
    CLOSED(mq_timedreceive(fd, text, sizeof text, NULL, &time.it_value));
    CLOSED((one.fd = fd, one.events = POLLIN, poll(&one, 1, 0), one.revents));
    CLOSED(selected(fd));
    CLOSED(read(fd, text, 1));
    CLOSED(write(fd, text, 1));
    CLOSED(close(fd));
    CLOSED(dup(fd));
    CLOSED(dup2(fd, watches));
    CLOSED(fcntl(fd, F_GETFD));
    CLOSED(fcntl(fd, F_GETFL));
    CLOSED(ioctl(fd, FIONREAD, &value));
    CLOSED(fdopen(fd, "r"));
    CLOSED(fdopendir(fd));
    CLOSED(fchdir(fd));
    CLOSED(openat(fd, "x", O_RDONLY));
    CLOSED(lseek(fd, 0, SEEK_SET));
    CLOSED(fsync(fd));
    CLOSED(syncfs(fd));
    CLOSED(splice(fd, NULL, watches, NULL, 1, 0));
    CLOSED(tee(fd, watches, 1, 0));
    CLOSED(sendfile(watches, fd, NULL, 1));
    CLOSED(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    CLOSED(fexecve(fd, (char *[]){"x", NULL}, (char *[]){NULL}));
    return 0;
}
