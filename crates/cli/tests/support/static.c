// A small program that is also linked statically, and then cannot be preloaded.
//
//   say WORD...      prints the words, each on a line (without `say`: the arguments)
//   line, rest       copies one line, or all, of standard input
//   pwd              the working directory
//   seek N           reads descriptor N from its third byte on
//   hold KIND F [S]  locks F, says "held", and waits for a signal, or S seconds
//   try KIND F       says whether F could be locked
//   wait KIND F      waits for the lock
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int lock(const char *kind, const char *path, int wait) {
    int fd = open(path, O_RDWR);
    struct flock all = {.l_type = F_WRLCK};
    if (fd < 0) {
        return -1;
    }
    if (!strcmp(kind, "posix")) {
        return fcntl(fd, wait ? F_SETLKW : F_SETLK, &all);
    }
    if (!strcmp(kind, "ofd")) {
        return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &all);
    }
    return flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
}

static int copy(int lines) {
    char byte;
    while (read(0, &byte, 1) == 1) {
        write(1, &byte, 1);
        if (byte == '\n' && lines && --lines == 0) {
            break;
        }
    }
    return 0;
}

static int seek(int fd) {
    char byte;
    return lseek(fd, 2, SEEK_SET) != 2 || read(fd, &byte, 1) != 1 || lseek(fd, 0, SEEK_CUR) != 3;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "line")) {
        return copy(1);
    }
    if (!strcmp(what, "rest")) {
        return copy(0);
    }
    if (!strcmp(what, "pwd")) {
        char path[4096];
        return puts(getcwd(path, sizeof path) ? path : "?") < 0;
    }
    if (!strcmp(what, "seek")) {
        return seek(atoi(words[2]));
    }
    if (!strcmp(what, "hold")) {
        if (lock(words[2], words[3], 0) != 0) {
            return 1;
        }
        printf("held\n");
        fflush(stdout);
        close(1);
        sleep(count > 4 ? atoi(words[4]) : 100);
        return 0;
    }
    if (!strcmp(what, "try")) {
        puts(lock(words[2], words[3], 0) == 0 ? "free" : errno == EAGAIN ? "busy" : "failed");
        return 0;
    }
    if (!strcmp(what, "wait")) {
        puts(lock(words[2], words[3], 1) == 0 ? "got" : "failed");
        return 0;
    }
    for (int i = strcmp(what, "say") ? 1 : 2; i < count; i++) {
        puts(words[i]);
    }
    return 0;
}
