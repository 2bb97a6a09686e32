// How many page faults touching a freshly mapped file takes: written, allocated ahead, and sparse. Its size is
// the second argument, in MiB.
#include "say.h"
#include <sys/resource.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static long size = 256L * MIB;

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static long touched(int fd) {
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    long before = faults();
    for (long at = 0; at < size; at += PAGE) map[at]++;
    long count = faults() - before;
    munmap(map, size);
    close(fd);
    return count;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    if (argc > 2) size = atol(argv[2]) * MIB;
    static char bytes[MIB];
    int fd = open("written", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < size / MIB; i++)
        if (write(fd, bytes, MIB) != MIB) return 1;
    printf("written %ld\n", touched(fd));
    unlink("written");
    fd = open("ahead", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (posix_fallocate(fd, 0, size)) return 1;
    printf("ahead %ld\n", touched(fd));
    unlink("ahead");
    fd = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (ftruncate(fd, size)) return 1;
    printf("sparse %ld\n", touched(fd));
    unlink("sparse");
    return 0;
}
