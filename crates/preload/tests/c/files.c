// open, read, write, seek, dup, fcntl, ioctl, vectored and positioned calls, sendfile and copies.
#include "say.h"
#include <sys/sendfile.h>

static void opening(void) {
    SAY(open("none", O_RDONLY));
    SAY(open("none/none", O_RDWR | O_CREAT, 0644));
    SAY(open("", O_RDONLY));
    int fd = open("a", O_RDWR | O_CREAT | O_EXCL, 0640);
    SAY(fd);
    SAY(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    SAY(open("a", O_RDONLY | O_DIRECTORY));
    SAY(open("a/", O_RDONLY));
    SAY(open(".", O_WRONLY));
    SAY(open("a/b", O_RDONLY));
    int directory = open(".", O_RDONLY);
    SAY(directory);
    SAY(openat(directory, "a", O_RDONLY));
    SAY(openat(fd, "a", O_RDONLY));
    SAY(openat(77, "a", O_RDONLY));
    SAY(openat(77, "", O_RDONLY));
    SAY(creat("b", 0600));
    int path = open("a", O_PATH);
    char byte;
    SAY(read(path, &byte, 1));
    SAY(read(directory, &byte, 1));
    SAY(write(directory, "x", 1));
    SAY(close(fd));
    SAY(close(fd));
    SAY(close(-1));
    SAY(open("a", O_RDONLY));
    SAY(fcntl(fd, F_GETFL) & O_ACCMODE);
    SAY(write(fd, "x", 1));
    SAY(close_range(3, 50, 0));
    int temporary = open(".", O_TMPFILE | O_RDWR, 0600);
    SAY(temporary);
    SAY(write(temporary, "hidden", 6));
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", temporary);
    SAY(linkat(AT_FDCWD, name, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    SHOW("linked");
    close(temporary);
}

static void bytes(void) {
    char to[64] = {0};
    int fd = open("c", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, "0123456789", 10));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, -3, SEEK_END));
    SAY(read(fd, to, 10));
    SAY(read(fd, to, 10));
    SAY(lseek(fd, -11, SEEK_CUR));
    SAY(lseek(fd, 5, 77));
    SAY(lseek(fd, 100, SEEK_SET));
    SAY(read(fd, to, 1));
    SAY(write(fd, "far", 3));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pread(fd, to, 5, 98));
    SAY(pread(fd, to, 5, -1));
    SAY(pwrite(fd, "AB", 2, 1));
    SAY(lseek(fd, 0, SEEK_CUR));
    SHOW("c");
    SAY(read(fd, (void *)1, 0));
    lseek(fd, 0, SEEK_SET);
    SAY(read(fd, (void *)1, 10));
    SAY(write(fd, (void *)1, 10));
    struct iovec pieces[3] = {{to, 3}, {to + 10, 0}, {to + 20, 4}};
    lseek(fd, 0, SEEK_SET);
    SAY(readv(fd, pieces, 3));
    SAY_TEXT(to);
    SAY_TEXT(to + 20);
    SAY(writev(fd, pieces, 3));
    SAY(preadv(fd, pieces, 3, 101));
    SAY(pwritev(fd, pieces, 3, 0));
    SAY(preadv2(fd, pieces, 3, -1, 0));
    SAY(readv(fd, pieces, -1));
    SAY(writev(fd, pieces, 5000));
    SAY(ftruncate(fd, 5));
    SAY(ftruncate(fd, -1));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(truncate("c", 8));
    SAY(truncate("none", 8));
    SAY(truncate(".", 8));
    SHOW("c");
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(syncfs(fd));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    SAY(posix_fadvise(fd, 0, 0, 99));
    close(fd);
    fd = open("c", O_WRONLY | O_APPEND);
    SAY(write(fd, "end", 3));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "!", 1));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, to, 1));
    SHOW("c");
    close(fd);
}

static void copies(void) {
    int fd = open("d", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int second = dup(fd);
    SAY(second - fd);
    SAY(write(fd, "abc", 3));
    SAY(lseek(second, 0, SEEK_CUR));
    SAY(dup2(fd, 60));
    SAY(dup2(fd, fd) - fd);
    SAY(dup2(77, 61));
    SAY(dup3(fd, fd, 0));
    SAY(dup3(fd, 61, O_CLOEXEC));
    SAY(fcntl(61, F_GETFD));
    SAY(fcntl(60, F_GETFD));
    SAY(fcntl(fd, F_DUPFD, 40));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 40));
    SAY(fcntl(41, F_GETFD));
    SAY(fcntl(41, F_SETFD, 0));
    SAY(fcntl(41, F_GETFD));
    SAY(ioctl(41, FIOCLEX));
    SAY(fcntl(41, F_GETFD));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    SAY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    SAY(fcntl(second, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    close(fd);
    SAY(write(second, "def", 3));
    SAY(write(60, "ghi", 3));
    // A foreign descriptor takes a number of ours, and the other way round.
    int pipes[2];
    if (pipe(pipes) != 0)
        return;
    SAY(dup2(pipes[1], 60));
    SAY(write(60, "pipe", 4));
    char to[16] = {0};
    SAY(read(pipes[0], to, 16));
    SAY_TEXT(to);
    SAY(dup2(second, pipes[1]) - pipes[1]);
    SAY(write(pipes[1], "jkl", 3));
    SHOW("d");
    int left = -1;
    lseek(second, 4, SEEK_SET);
    SAY(ioctl(second, FIONREAD, &left));
    SAY(left);
    SAY(ioctl(second, TIOCGWINSZ, to));
    SAY(isatty(second));
    struct pollfd ready = {second, POLLIN | POLLOUT, 0};
    SAY(poll(&ready, 1, 0));
    SAY(ready.revents);
    close_range(3, 99, 0);
}

static void transfers(void) {
    put("from", "the quick brown fox");
    int from = open("from", O_RDONLY), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t at = 4, start = 0;
    SAY(sendfile(to, from, &at, 5));
    SAY(at);
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(sendfile(to, from, NULL, 4));
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(copy_file_range(from, &start, to, NULL, 9, 0));
    SAY(start);
    SAY(copy_file_range(from, NULL, to, NULL, 100, 0));
    SAY(copy_file_range(from, NULL, to, NULL, 100, 0));
    SAY(copy_file_range(to, NULL, from, NULL, 1, 0));
    SHOW("to");
    int pipes[2];
    if (pipe(pipes) != 0)
        return;
    at = 0;
    SAY(sendfile(pipes[1], from, &at, 3));
    char bytes[8] = {0};
    SAY(read(pipes[0], bytes, 8));
    SAY_TEXT(bytes);
    close_range(3, 99, 0);
}

static void space(void) {
    int fd = open("e", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct stat info;
    SAY(fallocate(fd, 0, 0, 10000));
    fstat(fd, &info);
    SAY(info.st_size);
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000));
    fstat(fd, &info);
    SAY(info.st_size);
    SAY(pwrite(fd, "xyz", 3, 5000));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
    char byte = 'x';
    SAY(pread(fd, &byte, 1, 5000));
    SAY(byte);
    SAY(fallocate(fd, 0, -1, 10));
    SAY(fallocate(fd, 0, 0, 0));
    SAY(posix_fallocate(fd, 0, 20000));
    SAY(posix_fallocate(fd, 0, 0));
    SAY(posix_fallocate(-1, 0, 10));
    close(fd);
    fd = open("e", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(pwrite(fd, "data", 4, 1 << 20));
    SAY(lseek(fd, 0, SEEK_DATA));
    SAY(lseek(fd, 0, SEEK_HOLE));
    SAY(lseek(fd, 1 << 20, SEEK_HOLE));
    SAY(lseek(fd, 1 << 22, SEEK_DATA));
    close(fd);
    fd = open("e", O_RDONLY);
    SAY(ftruncate(fd, 0));
    SAY(fallocate(fd, 0, 0, 10));
    close(fd);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    opening();
    bytes();
    copies();
    transfers();
    space();
    return 0;
}
