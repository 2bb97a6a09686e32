// A block of 3 MiB, read into, grown and given back; then the same in a child that is executed with
// an empty environment, and in one that is executed with an LD_PRELOAD of its own. Each says what
// came of it: `aligned`, or where in 2 MiB the block lies.
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)

static int is_right(const unsigned char *block, size_t size) {
    for (size_t place = 0; place < size; place++) {
        if (block[place] != 'x') {
            return 0;
        }
    }
    return 1;
}

static int look(const char *who, const char *path) {
    size_t size = 3 << 20;
    unsigned char *block = malloc(size);
    int fd = open(path, O_RDONLY);
    if (!block || fd < 0 || pread(fd, block, size, 0) != (ssize_t)size || !is_right(block, size)) {
        return 1;
    }
    size_t first = (uintptr_t)block % HUGE;
    block = realloc(block, 4 * size);
    size_t grown = (uintptr_t)block % HUGE;
    if (!block || !is_right(block, size)) {
        return 1;
    }
    printf(first || grown ? "%s: at %zu and %zu\n" : "%s: aligned\n", who, first, grown);
    fflush(stdout);
    free(block);
    return 0;
}

static int wait_for(pid_t child) {
    int status = 1;
    waitpid(child, &status, 0);
    return status;
}

int main(int count, char **words) {
    if (count > 2) {
        return look(words[1], words[2]);
    }
    char *nothing[] = {NULL}, *other[] = {"LD_PRELOAD=libm.so.6", NULL};
    char *bare[] = {words[0], "bare", words[1], NULL}, *own[] = {words[0], "own", words[1], NULL};
    int failed = look("itself", words[1]);
    pid_t child = vfork();
    if (child == 0) {
        execve(words[0], bare, nothing);
        _exit(127);
    }
    failed |= wait_for(child);
    if (posix_spawn(&child, words[0], NULL, NULL, own, other)) {
        return 1;
    }
    return failed | wait_for(child);
}
