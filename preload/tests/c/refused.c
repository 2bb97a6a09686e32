// What a volume does not serve fails loudly, each with its own error.
#include "say.h"
#include <fts.h>
#include <sys/inotify.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(inotify_add_watch(inotify_init(), ".", IN_CREATE));
    char *paths[] = {argv[1], NULL};
    WORKS(fts_open(paths, FTS_PHYSICAL, NULL) ? 0 : -1);
    int pair[2], fd = open("f", O_RDWR | O_CREAT, 0644);
    char byte = 'x', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(sendmsg(pair[0], &message, 0));
    fd = 0;
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    SAY(sendmsg(pair[0], &message, 0));
    return 0;
}
