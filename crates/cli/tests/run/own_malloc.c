// An allocator that opens a file when it is first asked, as jemalloc does: own_malloc FILE
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char memory[1 << 22];
static size_t used;
static int begun, begins;

void *malloc(size_t bytes) {
    if (begins) abort();
    if (!begun) {
        begins = 1;
        char text[8];
        int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text) <= 0 || close(fd)) abort();
        begun = 1;
        begins = 0;
    }
    bytes = (bytes + 31) & ~(size_t)15;
    if (used + bytes > sizeof memory) return NULL;
    char *at = memory + used;
    used += bytes;
    *(size_t *)at = bytes - 16;
    return at + 16;
}

void free(void *at) { (void)at; }

void *calloc(size_t count, size_t bytes) {
    // It is never given again, and begins as zeros.
    return malloc(count * bytes);
}

void *realloc(void *old, size_t bytes) {
    char *at = malloc(bytes);
    size_t had = old ? *(size_t *)((char *)old - 16) : 0;
    if (at && old) memcpy(at, old, had < bytes ? had : bytes);
    return at;
}

int main(int count, char **words) {
    char *text = malloc(10);
    int fd = count == 2 && text ? open(words[1], O_WRONLY | O_CREAT, 0644) : -1;
    return write(fd, text, 10) == 10 ? 0 : 1;
}
