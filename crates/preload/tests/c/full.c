// Mapped files with holes where there is little room, on a volume of 256 MiB: what does not fit is SIGBUS
// at the touch, and what is touched here and there does not eat the volume up.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    siglongjmp(back, signal * 100 + info->si_code);
}

static int touch(char *at, int writes) {
    int ended = sigsetjmp(back, 1);
    if (ended) return ended;
    if (writes) *(volatile char *)at = 'w';
    else (void)*(volatile char *)at;
    return 0;
}

static long blocks(int fd) {
    struct stat stat;
    fstat(fd, &stat);
    return stat.st_blocks;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    const off_t size = (off_t)16 << 30;
    int beside = open("beside", O_RDWR | O_CREAT, 0644);
    SAY(ftruncate(beside, 8 * PAGE));
    char *partly = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, beside, 0);
    WORKS(partly);
    SAY(pwrite(beside, "b", 1, 4 * PAGE));
    int fd = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, size));
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WORKS(map);
    SAY(blocks(fd));
    // Here and there: far less than a chunk each.
    long seed = 1, failed = 0;
    for (int i = 0; i < 500; i++) {
        seed = (seed * 1103515245 + 12345) & 0x7fffffff;
        failed += touch(map + (seed % (size / PAGE / 8)) * 8 * PAGE, 1) != 0;
    }
    SAY(failed);
    SAY(blocks(fd) <= 500 * 64 * 2);
    SAY(ftruncate(fd, 0));
    SAY(munmap(map, size));
    close(fd);
    SAY(unlink("sparse"));
    // From the beginning on: whole chunks.
    fd = open("grows", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, size));
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WORKS(map);
    for (long at = 0; at < 20 * MIB; at += PAGE) failed += touch(map + at, 1) != 0;
    SAY(failed);
    SAY(blocks(fd) == 20 * MIB / 512);
    // Until nothing is left.
    long at = 20 * MIB;
    int ended = 0;
    while (at < size && (ended = touch(map + at, 1)) == 0) at += PAGE;
    SAY(ended);
    SAY(at > 200 * MIB && at < 256 * MIB);
    SAY(touch(map + size - PAGE, 0));
    char byte;
    int ends[2];
    pipe(ends);
    write(ends[1], "x", 1);
    SAY(read(ends[0], map + size - PAGE, 1));
    SAY(read(ends[0], &byte, 1));
    // Only read: zeros. To be written they must have a place.
    char *reader = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, size - MIB);
    WORKS(reader);
    SAY(touch(reader, 0) || reader[5 * PAGE] != 0);
    // No zeros over what was written since it was mapped, nor behind the end.
    SAY(touch(partly, 0) || partly[0] != 0);
    SAY(touch(partly + 4 * PAGE, 0) || partly[4 * PAGE] != 'b');
    SAY(touch(partly + 8 * PAGE, 0));
    SAY(mprotect(reader, MIB, PROT_READ | PROT_WRITE));
    SAY(touch(reader, 1));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
    SAY(touch(reader, 1));
    int small = open("small", O_RDWR | O_CREAT, 0644);
    SAY(ftruncate(small, PAGE));
    char *one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, small, 0);
    WORKS(one);
    SAY(touch(one, 1));
    // Room again: the last close gives what was cut off.
    SAY(munmap(map, size));
    SAY(munmap(reader, MIB));
    SAY(close(fd));
    SAY(unlink("grows"));
    SAY(touch(one, 1));
    SAY(pread(small, &byte, 1, 0) == 1 && byte == 'w');
    return 0;
}
