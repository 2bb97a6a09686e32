// Fifos and sockets whose names are taken over: the kernel's own node goes with the last name, and
// not before.
#include "say.h"
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static int bound(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    SAY(bind(fd, (void *)&name, sizeof name));
    SAY(listen(fd, 1));
    return fd;
}

static int connects(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), result = connect(fd, (void *)&name, sizeof name);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(mkfifo("fifo", 0600));
    int fifo = open("fifo", O_RDWR);
    SAY(rename("fifo", "fifo"));
    SAY(link("fifo", "second"));
    SAY(rename("fifo", "second"));
    int again = open("fifo", O_RDWR | O_NONBLOCK);
    SAY(write(fifo, "abc", 3));
    char text[8] = {0};
    SAY(read(again, text, 8));
    SAY(unlink("second"));
    put("file", "text");
    SAY(renameat2(AT_FDCWD, "file", AT_FDCWD, "fifo", RENAME_EXCHANGE));
    SAY(write(fifo, "abc", 3));
    SAY(read(again, text, 8));
    SAY(rename("fifo", "file"));
    SAY(write(fifo, "abc", 3));
    SAY(read(again, text, 8));
    SHOW("file");
    int server = bound("socket");
    SAY(connects("socket"));
    SAY(renameat(AT_FDCWD, "socket", AT_FDCWD, "moved"));
    SAY(connects("moved"));
    SAY(syscall(SYS_rename, "file", "moved"));
    SAY(connects("moved"));
    SHOW("moved");
    SAY(close(server) | close(fifo) | close(again));
    SAY(vmsplice(open("moved", O_RDONLY), &(struct iovec){text, 8}, 1, 0));
    SAY(syscall(SYS_vmsplice, open("moved", O_RDWR), &(struct iovec){text, 8}, 1, 0));
    // Who the process is, told to the kernel by number.
    if (getuid() == 0 && fork() == 0) {
        chmod(".", 0777);
        mkdir("private", 0700);
        SAY(syscall(SYS_setfsuid, 1));
        SAY(access("private", X_OK));
        SAY(open("private/none", O_RDONLY));
        SAY(syscall(SYS_setfsuid, 0));
        SAY(open("private/none", O_RDONLY));
        SAY(syscall(SYS_setgroups, 0, NULL));
        SAY(syscall(SYS_setresgid, 1, 1, 1));
        SAY(syscall(SYS_setresuid, 1, 1, 1));
        SAY(open("private/none", O_RDONLY));
        put("own", "");
        struct stat info;
        SAY(stat("own", &info));
        SAY(info.st_uid * 10 + info.st_gid);
        SAY(syscall(SYS_setuid, 0));
        SAY(open("private/none", O_RDONLY));
        _exit(0);
    }
    SAY(wait(NULL) > 0);
    return 0;
}
