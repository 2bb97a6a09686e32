// A program that defines functions of the C library's names itself, by the system calls, as ksh and
// some runtimes do: it gets its own, and the calls behind them reach the volume.
#include "say.h"
#include <sys/syscall.h>

char *getcwd(char *to, size_t size) { return syscall(SYS_getcwd, to, size) < 0 ? NULL : to; }
int fsync(int fd) { return syscall(SYS_fsync, fd); }
int mkdir(const char *path, mode_t mode) { return syscall(SYS_mkdir, path, mode); }
ssize_t pread(int fd, void *to, size_t size, off_t at) { return syscall(SYS_pread64, fd, to, size, at); }
int ftruncate(int fd, off_t size) { return syscall(SYS_ftruncate, fd, size); }

int main(int argc, char **argv) {
    enter(argc, argv);
    char text[4096] = {0};
    SAY(mkdir("d", 0700));
    SAY(mkdir("d", 0700));
    SAY(chdir("d"));
    SAY_TEXT(getcwd(text, sizeof text) ? strrchr(text, '/') : "none");
    put("f", "content");
    int fd = open("f", O_RDWR);
    SAY(fsync(fd));
    SAY(pread(fd, text, 4, 3));
    SAY(ftruncate(fd, 3));
    SHOW("f");
    SAY(fsync(-1));
    return 0;
}
