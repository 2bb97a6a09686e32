// A file that one process has mapped is shortened, punched and removed by another, which fills files of its own with
// what becomes free: usage shortened DIRECTORY ROUNDS. The first sees its own bytes, zeros or SIGBUS, never the
// other's bytes.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, MIB = 1 << 20, SIZE = 6 * MIB };

static sigjmp_buf back;

static void on_bus(int signal) { siglongjmp(back, signal); }

static void fill(int fd, int byte, off_t size) {
    static char bytes[64 * PAGE];
    memset(bytes, byte, sizeof bytes);
    for (off_t at = 0; at < size; at += sizeof bytes)
        if (pwrite(fd, bytes, sizeof bytes, at) != sizeof bytes) return;
}

static void shortens(int round) {
    int fd = open("mapped", O_RDWR);
    off_t cut = round * 7919L % SIZE;
    if (round % 3 == 1) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, cut, SIZE);
    else if (ftruncate(fd, cut)) _exit(1);
    if (round % 4 == 3) unlink("mapped");
    for (int i = 0; i < 12; i++) {
        char name[32];
        sprintf(name, "other-%d", i);
        int other = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        fill(other, 'o', 3 * MIB);
        close(other);
    }
    if (round % 2 && ftruncate(fd, SIZE)) _exit(1);
    _exit(0);
}

// How many bytes are neither those of the file nor zeros.
static long foreign(volatile char *map) {
    volatile long found = 0;
    for (volatile long at = 0; at < SIZE; at += 1024) {
        if (sigsetjmp(back, 1)) {
            at = at / PAGE * PAGE + PAGE - 1024;
            continue;
        }
        char byte = map[at];
        found += byte != 'm' && byte != 0;
    }
    return found;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_handler = on_bus};
    sigaction(SIGBUS, &action, NULL);
    long wrong = 0, left = 0;
    for (int round = 0; round < atoi(argv[2]); round++) {
        int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
        fill(fd, 'm', SIZE);
        int flags = round % 5 == 4 ? MAP_PRIVATE : MAP_SHARED;
        char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
        close(fd);
        pid_t pid = fork();
        if (pid == 0) shortens(round);
        int status = 1;
        while (waitpid(pid, &status, WNOHANG) == 0) wrong += foreign(map);
        wrong += foreign(map);
        left += status != 0;
        munmap(map, SIZE);
    }
    SAY(wrong);
    SAY(left);
    return 0;
}
