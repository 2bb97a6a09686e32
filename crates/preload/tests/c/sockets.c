// Local sockets by path: streams and datagrams, names told, errors.
#include "say.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un named(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

static int bound(int kind, const char *path) {
    struct sockaddr_un address = named(path);
    int fd = socket(AF_UNIX, kind, 0);
    SAY(bind(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

static long reach(int fd, const char *path) {
    struct sockaddr_un address = named(path);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

static void tell(int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;
    SAY(ask(fd, (struct sockaddr *)&address, &len));
    SAY(len);
    SAY_TEXT(address.sun_path);
}

static void streams(void) {
    int listener = bound(SOCK_STREAM, "listen");
    struct stat stat;
    SAY(lstat("listen", &stat));
    SAY(stat.st_mode);
    tell(listener, getsockname);
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "listen"));
    SAY(listen(listener, 5));
    close(bound(SOCK_STREAM, "listen"));
    close(bound(SOCK_STREAM, "none/listen"));
    // Once bound it cannot be bound again, and leaves nothing.
    struct sockaddr_un again = named("again");
    SAY(bind(listener, (struct sockaddr *)&again, sizeof again));
    SAY(access("again", F_OK));
    SAY(rename("listen", "moved"));
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        SAY(reach(fd, "./moved"));
        SAY(write(fd, "hello", 5));
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    struct sockaddr_un peer;
    socklen_t len = sizeof peer;
    int fd = accept(listener, (struct sockaddr *)&peer, &len);
    SAY(len);
    char got[8] = {0};
    SAY(read(fd, got, sizeof got));
    SAY_TEXT(got);
    SAY(open("moved", O_RDWR));
    SAY(unlink("moved"));
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "moved"));
    put("file", "text");
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "file"));
    SAY(mknod("node", S_IFSOCK | 0600, 0));
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "node"));
    // A name whose server has gone can be taken again once it is removed.
    close(listener);
    close(bound(SOCK_STREAM, "second"));
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "second"));
    close(bound(SOCK_STREAM, "second"));
    SAY(unlink("second"));
    listener = bound(SOCK_STREAM, "second");
    SAY(listen(listener, 1));
    SAY(symlink("second", "link"));
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "link"));
}

static void datagrams(void) {
    int one = bound(SOCK_DGRAM, "one"), two = bound(SOCK_DGRAM, "./two");
    struct sockaddr_un address = named("two");
    SAY(sendto(one, "to", 2, 0, (struct sockaddr *)&address, sizeof address));
    char got[8] = {0};
    struct sockaddr_un from = {0};
    socklen_t len = sizeof from;
    SAY(recvfrom(two, got, sizeof got, 0, (struct sockaddr *)&from, &len));
    SAY_TEXT(got);
    SAY(len);
    SAY_TEXT(from.sun_path);
    struct iovec piece = {"back", 4};
    struct msghdr message = {
        .msg_name = &from, .msg_namelen = len, .msg_iov = &piece, .msg_iovlen = 1};
    SAY(sendmsg(two, &message, 0));
    SAY(recv(one, got, sizeof got, 0));
    SAY_TEXT(got);
    address = named("three");
    SAY(sendto(one, "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    SAY(reach(socket(AF_UNIX, SOCK_STREAM, 0), "one"));
    // Abstract names are the kernel's.
    struct sockaddr_un abstract = {.sun_family = AF_UNIX};
    snprintf(abstract.sun_path + 1, 40, "solera-test-%d", getpid());
    SAY(bind(socket(AF_UNIX, SOCK_DGRAM, 0), (struct sockaddr *)&abstract, sizeof abstract));
    SAY(unlink("one") || unlink("two"));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    streams();
    datagrams();
    return 0;
}
