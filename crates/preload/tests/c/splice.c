// splice between a file and a pipe, sendfile and copy_file_range: counts, positions, errors.
#include "say.h"
#include <sys/sendfile.h>
#include <sys/socket.h>

static char bytes[200000];

static void drain(int fd) {
    char room[4096];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (read(fd, room, sizeof room) > 0)
        ;
    fcntl(fd, F_SETFL, 0);
}

static void from_file(void) {
    int pipes[2], file = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (pipe(pipes) != 0)
        return;
    SAY(write(file, "0123456789", 10));
    SAY(lseek(file, 0, SEEK_SET));
    SAY(splice(file, NULL, pipes[1], NULL, 4, 0));
    SAY(lseek(file, 0, SEEK_CUR));
    char got[16] = {0};
    SAY(read(pipes[0], got, sizeof got - 1));
    SAY_TEXT(got);
    loff_t at = 7;
    SAY(splice(file, &at, pipes[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE));
    SAY(at);
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(splice(file, &at, pipes[1], NULL, 100, 0));
    SAY(splice(file, &at, pipes[1], NULL, 0, 0));
    SAY(splice(file, NULL, pipes[1], &at, 1, 0));
    SAY(splice(file, NULL, pipes[0], NULL, 1, 0));
    SAY(splice(file, NULL, pipes[1], NULL, 1, 0x80));
    SAY(splice(file, NULL, file, NULL, 1, 0));
    SAY(splice(file, NULL, -1, NULL, 1, 0));
    SAY(splice(open(".", O_RDONLY), NULL, pipes[1], NULL, 1, 0));
    SAY(splice(open("from", O_WRONLY), NULL, pipes[1], NULL, 1, 0));
    int pair[2];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(splice(file, NULL, pair[0], NULL, 1, 0));
    at = -1;
    SAY(splice(file, &at, pipes[1], NULL, 1, 0));
    // More than the pipe takes.
    drain(pipes[0]);
    SAY(pwrite(file, bytes, sizeof bytes, 0));
    at = 0;
    SAY(splice(file, &at, pipes[1], NULL, sizeof bytes, 0));
    SAY(at);
    SAY(splice(file, &at, pipes[1], NULL, 1, SPLICE_F_NONBLOCK));
    SAY(at);
    signal(SIGPIPE, SIG_IGN);
    close(pipes[0]);
    SAY(splice(file, &at, pipes[1], NULL, 1, 0));
}

static void to_file(void) {
    int pipes[2], file = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (pipe(pipes) != 0)
        return;
    SAY(splice(pipes[0], NULL, file, NULL, 1, SPLICE_F_NONBLOCK));
    SAY(write(pipes[1], "abcdefgh", 8));
    SAY(splice(pipes[0], NULL, file, NULL, 3, 0));
    SAY(lseek(file, 0, SEEK_CUR));
    loff_t at = 5;
    SAY(splice(pipes[0], NULL, file, &at, 100, 0));
    SAY(at);
    SAY(lseek(file, 0, SEEK_CUR));
    SHOW("to");
    SAY(splice(pipes[0], &at, file, NULL, 1, 0));
    SAY(splice(pipes[1], NULL, file, NULL, 1, 0));
    SAY(splice(pipes[0], NULL, open("to", O_RDONLY), NULL, 1, 0));
    SAY(splice(pipes[0], NULL, open("to", O_RDWR | O_APPEND), NULL, 1, 0));
    SAY(write(pipes[1], "end", 3));
    close(pipes[1]);
    SAY(splice(pipes[0], NULL, file, NULL, 100, SPLICE_F_NONBLOCK));
    SAY(splice(pipes[0], NULL, file, NULL, 100, 0));
    SHOW("to");
}

static void others(void) {
    int pipes[2], file = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (pipe(pipes) != 0)
        return;
    struct iovec piece = {"x", 1};
    SAY(tee(file, pipes[1], 1, 0));
    SAY(tee(pipes[0], file, 1, 0));
    SAY(vmsplice(file, &piece, 1, 0));
    SAY(write(file, "sent along", 10));
    off_t at = 5;
    SAY(sendfile(pipes[1], file, &at, 100));
    SAY(at);
    char got[16] = {0};
    SAY(read(pipes[0], got, sizeof got - 1));
    SAY_TEXT(got);
    int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(lseek(file, 0, SEEK_SET));
    SAY(sendfile(copy, file, NULL, 4));
    SAY(sendfile(copy, file, NULL, 100));
    SAY(sendfile(copy, file, NULL, 100));
    SHOW("copy");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    memset(bytes, 'b', sizeof bytes);
    from_file();
    to_file();
    others();
    return 0;
}
