// Descriptors sent through sockets: within a process, between processes that fork, with names.
#include "say.h"
#include <sys/socket.h>
#include <sys/un.h>

union control {
    struct cmsghdr header;
    char room[256];
};

static long send_numbers(int socket, const int *numbers, int count) {
    char byte = 'x';
    struct iovec data = {&byte, 1};
    union control control = {0};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), numbers, sizeof(int) * count);
    return sendmsg(socket, &message, 0);
}

static long receive_numbers(int socket, int *numbers, int count, int flags) {
    char byte;
    struct iovec data = {&byte, 1};
    union control control = {0};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    for (int at = 0; at < count; at++)
        numbers[at] = -1;
    if (recvmsg(socket, &message, flags) != 1)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header)
        return 0;
    long got = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(numbers, CMSG_DATA(header), sizeof(int) * got);
    return got * 100 + (message.msg_flags & MSG_CTRUNC ? 1 : 0);
}

static void text_of(int fd) {
    char got[64] = {0};
    SAY(read(fd, got, sizeof got - 1));
    SAY_TEXT(got);
}

static void within(void) {
    int pair[2], numbers[3], got[3];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    put("file", "0123456789");
    numbers[0] = open("file", O_RDWR);
    numbers[1] = open("/dev/null", O_RDONLY);
    numbers[2] = open(".", O_RDONLY | O_DIRECTORY);
    SAY(lseek(numbers[0], 3, SEEK_SET));
    SAY(send_numbers(pair[0], numbers, 3));
    SAY(receive_numbers(pair[1], got, 3, 0));
    SAY(got[0] == numbers[2] + 1);
    SAY(fcntl(got[0], F_GETFD));
    // One description: position and status flags are shared.
    SAY(lseek(got[0], 0, SEEK_CUR));
    SAY(lseek(numbers[0], 5, SEEK_SET));
    text_of(got[0]);
    SAY(fcntl(numbers[0], F_SETFL, O_APPEND));
    SAY(fcntl(got[0], F_GETFL));
    SAY(write(got[0], "abc", 3));
    struct stat one, two;
    SAY(fstat(numbers[0], &one) | fstat(got[0], &two));
    SAY(one.st_ino == two.st_ino && one.st_dev == two.st_dev && one.st_size == 13);
    SAY(fstat(got[1], &one));
    SAY(S_ISCHR(one.st_mode));
    DIR *list = fdopendir(got[2]);
    SAY(readdir(list) != NULL);
    SAY(closedir(list));
    SAY(close(numbers[0]));
    SAY(lseek(got[0], 0, SEEK_SET));
    text_of(got[0]);
    // Close-on-exec, and room for one only.
    SAY(send_numbers(pair[0], got, 1));
    SAY(receive_numbers(pair[1], numbers, 1, MSG_CMSG_CLOEXEC));
    SAY(fcntl(numbers[0], F_GETFD));
    numbers[1] = got[1];
    SAY(send_numbers(pair[0], numbers, 2));
    SAY(receive_numbers(pair[1], got + 1, 1, 0));
    SAY(fcntl(got[1], F_GETFD));
    // Dead numbers, and none at all.
    int dead = 500;
    SAY(send_numbers(pair[0], &dead, 1));
    SAY(sendmsg(pair[0], NULL, 0));
    SAY(dup2(got[0], 60));
    SAY(close(got[0]));
    SAY(lseek(60, 2, SEEK_SET));
    text_of(60);
    SAY(close(60));
    SAY(lseek(numbers[0], 0, SEEK_CUR));
    close(pair[0]);
    close(pair[1]);
}

// The sender has gone before anybody looks; the file has no name.
static void between(int unlinked, int how) {
    int pair[2], status, got;
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        int fd = open("between", O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (write(fd, "from the child", 14) != 14 || lseek(fd, 5, SEEK_SET) != 5)
            _exit(1);
        if (unlinked)
            unlink("between");
        if (send_numbers(pair[1], &fd, 1) != 1)
            _exit(2);
        close(fd);
        if (how == 1)
            kill(getpid(), SIGKILL);
        _exit(how);
    }
    close(pair[1]);
    waitpid(pid, &status, 0);
    SAY(status);
    if (how == 2) {
        // Never received.
        SAY(close(pair[0]));
        return;
    }
    SAY(receive_numbers(pair[0], &got, 1, 0));
    text_of(got);
    struct stat stat;
    SAY(fstat(got, &stat));
    SAY(stat.st_nlink);
    SAY(pwrite(got, "FROM", 4, 0));
    SAY(lseek(got, 0, SEEK_SET));
    pid = fork();
    if (pid == 0) {
        text_of(got);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    SAY(lseek(got, 0, SEEK_CUR));
    SAY(close(got));
    SAY(close(pair[0]));
}

// A number that was received is inherited by exec.
static void executed(void) {
    int pair[2], got, status;
    SAY(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    int fd = open("file", O_RDONLY);
    SAY(send_numbers(pair[0], &fd, 1));
    SAY(close(fd));
    SAY(receive_numbers(pair[1], &got, 1, 0));
    fflush(results);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(got, 0);
        dup2(fileno(results), 1);
        execl("/bin/cat", "cat", NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    fprintf(results, "\n");
    SAY(status);
    SAY(lseek(got, 0, SEEK_CUR));
    SAY(close(got));
}

static void many(void) {
    int pair[2], file = open("many", O_RDWR | O_CREAT, 0600);
    SAY(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    char bytes[3][4] = {"one", "two", "thr"};
    struct iovec data[3];
    union control control[3];
    struct mmsghdr list[3];
    memset(list, 0, sizeof list);
    memset(control, 0, sizeof control);
    for (int at = 0; at < 3; at++) {
        data[at] = (struct iovec){bytes[at], 3};
        list[at].msg_hdr.msg_iov = &data[at];
        list[at].msg_hdr.msg_iovlen = 1;
        if (at == 1)
            continue;
        list[at].msg_hdr.msg_control = &control[at];
        list[at].msg_hdr.msg_controllen = CMSG_SPACE(sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&list[at].msg_hdr);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    SAY(sendmmsg(pair[0], list, 3, 0));
    SAY(list[0].msg_len + list[1].msg_len + list[2].msg_len);
    // The program's own message is as it was.
    int kept;
    memcpy(&kept, CMSG_DATA(CMSG_FIRSTHDR(&list[2].msg_hdr)), sizeof kept);
    SAY(kept == file);
    SAY(close(file));
    memset(bytes, 0, sizeof bytes);
    for (int at = 0; at < 3; at++) {
        list[at].msg_hdr.msg_control = &control[at];
        list[at].msg_hdr.msg_controllen = sizeof control[at];
    }
    SAY(recvmmsg(pair[1], list, 3, 0, NULL));
    SAY_TEXT(bytes[2]);
    SAY(list[1].msg_hdr.msg_controllen);
    int last;
    memcpy(&last, CMSG_DATA(CMSG_FIRSTHDR(&list[2].msg_hdr)), sizeof last);
    SAY(write(last, "through", 7));
    SHOW("many");
    close(last);
}

// A receiver learns the sender's name as the sender gave it.
static void names(void) {
    struct sockaddr_un one = {.sun_family = AF_UNIX, .sun_path = "one"}, from = {0};
    struct sockaddr_un two = {.sun_family = AF_UNIX, .sun_path = "two"};
    int first = socket(AF_UNIX, SOCK_DGRAM, 0), second = socket(AF_UNIX, SOCK_DGRAM, 0);
    SAY(bind(first, (struct sockaddr *)&one, sizeof one));
    SAY(bind(second, (struct sockaddr *)&two, sizeof two));
    char got[8] = {0};
    struct iovec data = {"text", 4};
    struct msghdr message = {
        .msg_name = &two, .msg_namelen = sizeof two, .msg_iov = &data, .msg_iovlen = 1};
    SAY(sendmsg(first, &message, 0));
    data.iov_base = got;
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    SAY(recvmsg(second, &message, 0));
    SAY_TEXT(got);
    SAY(message.msg_namelen);
    SAY_TEXT(from.sun_path);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    within();
    for (int unlinked = 0; unlinked < 2; unlinked++)
        for (int how = 0; how < 3; how++)
            between(unlinked, how);
    executed();
    many();
    names();
    return 0;
}
