// Breaks free space up: files of 4 to 300 KiB, 600 MiB in all, of which every other one goes.
#include "say.h"

enum { FILES = 4000 };

static char bytes[300 << 10];

int main(int argc, char **argv) {
    enter(argc, argv);
    char name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "broken-%d", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        size_t size = 4096 + i * 7919L % (sizeof bytes - 4096);
        if (fd < 0 || write(fd, bytes, size) != size || close(fd) != 0) return 1;
    }
    for (int i = 0; i < FILES; i += 2) {
        snprintf(name, sizeof name, "broken-%d", i);
        if (unlink(name) != 0) return 1;
    }
    return 0;
}
