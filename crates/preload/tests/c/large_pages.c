// Shared mappings of a volume whose memory has pages of 2 MiB only: what programs do with files of any size,
// holes and ends, in pages of 4 KiB as far as they can tell.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, MIB = 1 << 20, RW = PROT_READ | PROT_WRITE };

static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    siglongjmp(back, signal * 100 + info->si_code);
}

static int touch(char *at, int value) {
    int caught = sigsetjmp(back, 1);
    if (caught) return caught;
    if (value >= 0) *(volatile char *)at = value;
    return *(volatile unsigned char *)at;
}

static int at_of(int fd, off_t at) {
    unsigned char byte = 0;
    return pread(fd, &byte, 1, at) == 1 ? byte : -1;
}

static char *map_at(int fd, off_t at, size_t size) {
    return mmap(NULL, size, RW, MAP_SHARED, fd, at);
}

static void small(void) {
    int fd = open("small", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, "a small file", 12));
    SAY(ftruncate(fd, 3 * PAGE));
    char *map = map_at(fd, 0, 3 * PAGE), *second = map_at(fd, PAGE, 2 * PAGE);
    WORKS(map);
    SAY_TEXT(map);
    SAY(touch(map + PAGE, 'x'));
    SAY(at_of(fd, PAGE));
    SAY(touch(second, -1));
    SAY(pwrite(fd, "by a call", 9, 2 * PAGE));
    SAY_TEXT(second + PAGE);
    SAY(munmap(map + PAGE, PAGE));
    SAY(touch(map, 'y'));
    SAY(touch(map + 2 * PAGE, 'z'));
    SAY(msync(map, PAGE, MS_SYNC));
    SAY(munmap(map, PAGE) + munmap(map + 2 * PAGE, PAGE));
    SAY(at_of(fd, 0) + at_of(fd, 2 * PAGE));
    SAY(munmap(second, 2 * PAGE));
    SAY(pwrite(fd, "again", 5, 0));
    map = map_at(fd, 0, PAGE);
    SAY_TEXT(map);
    close(fd);
    SAY(munmap(map, PAGE));
}

static void scattered(void) {
    int fd = open("scattered", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int other = open("other", O_RDWR | O_CREAT, 0644);
    char page[PAGE];
    for (int i = 0; i < 800; i++) {
        int at = i * 397 % 800;
        memset(page, at % 251, PAGE);
        if (pwrite(fd, page, PAGE, at * PAGE) != PAGE || write(other, page, PAGE) != PAGE) SAY(-1);
    }
    char *map = map_at(fd, 0, 800 * PAGE);
    long sum = 0, wrong = 0;
    for (int at = 0; at < 800; at++) {
        sum += map[at * PAGE + 7];
        wrong += (unsigned char)map[at * PAGE + 9] != at % 251;
    }
    SAY(sum);
    SAY(wrong);
    for (int at = 0; at < 800; at += 3) map[at * PAGE] = 's';
    for (int at = 0; at < 800; at += 3) {
        wrong += at_of(fd, at * PAGE) != 's';
        wrong += at_of(fd, at * PAGE + 1) != at % 251;
    }
    SAY(wrong);
    SAY(munmap(map, 800 * PAGE));
    close(fd);
    close(other);
}

static void sparse(void) {
    int fd = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644), ends[2];
    SAY(ftruncate(fd, 8 * MIB));
    SAY(pwrite(fd, "in a hole", 9, 3 * MIB));
    char *map = map_at(fd, 0, 16 * MIB);
    SAY_TEXT(map + 3 * MIB);
    SAY(touch(map + 5 * MIB, 'h'));
    SAY(at_of(fd, 5 * MIB));
    SAY(touch(map + 10 * MIB, 'h'));
    SAY(ftruncate(fd, 12 * MIB));
    SAY(touch(map + 10 * MIB, 'h'));
    SAY(pwrite(fd, "grown", 5, 13 * MIB));
    SAY_TEXT(map + 13 * MIB);
    SAY(pipe(ends));
    SAY(write(ends[1], "through a pipe", 15));
    SAY(read(ends[0], map + 7 * MIB, 15));
    SAY_TEXT(map + 7 * MIB);
    SAY(pread(fd, map + MIB, 15, 7 * MIB));
    SAY_TEXT(map + MIB);
    SAY(ftruncate(fd, 3 * MIB));
    SAY(touch(map + 5 * MIB, 'h'));
    SAY(ftruncate(fd, 16 * MIB));
    SAY(touch(map + 5 * MIB, -1) + touch(map + 3 * MIB, -1) + touch(map + 13 * MIB, -1));
    SAY_TEXT(map + MIB);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
    SAY(touch(map + MIB, -1));
    if (fork() == 0) {
        strcpy(map + MIB, "by the child");
        int own = open("sparse", O_RDWR);
        strcpy(map_at(own, 6 * MIB, PAGE) + 5, "by its own mapping");
        _exit(0);
    }
    wait(NULL);
    SAY_TEXT(map + MIB);
    SAY_TEXT(map + 6 * MIB + 5);
    SAY(msync(map, 16 * MIB, MS_SYNC));
    SAY(mprotect(map, 16 * MIB, PROT_READ));
    SAY(touch(map + MIB, 'n'));
    SAY(mprotect(map, 16 * MIB, RW));
    SAY(touch(map + MIB, 'n'));
    SAY(madvise(map + PAGE, PAGE, MADV_WILLNEED) + madvise(map, 16 * MIB, MADV_DONTNEED));
    char *moved = mremap(map, 16 * MIB, 20 * MIB, MREMAP_MAYMOVE);
    SAY_TEXT(moved + MIB);
    SAY(touch(moved + 17 * MIB, 1));
    SAY(mremap(moved, 20 * MIB, 7 * PAGE, 0) == moved);
    SAY(touch(moved + 6 * PAGE, 'k'));
    SAY(mremap(moved, 7 * PAGE, 9 * PAGE, 0) == moved);
    SAY(touch(moved + 8 * PAGE, 'l'));
    char *own = mmap(NULL, 3 * PAGE, RW, MAP_PRIVATE, fd, 7 * PAGE);
    SAY(touch(own + PAGE, -1));
    SAY(touch(own + PAGE, 'p'));
    SAY(touch(moved + 8 * PAGE, -1));
    char *ahead = mmap(NULL, 4 * MIB, RW, MAP_SHARED | MAP_POPULATE, fd, 9 * MIB);
    SAY(touch(ahead + MIB, 'q'));
    SAY(at_of(fd, 10 * MIB));
    SAY(munmap(moved, 9 * PAGE) + munmap(own, 3 * PAGE) + munmap(ahead, 4 * MIB));
    close(fd);
    fd = open("sparse", O_RDONLY);
    SAY(at_of(fd, 10 * MIB) * 1000 + at_of(fd, 8 * PAGE));
    map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, MIB);
    SAY_TEXT(map);
    SAY(touch(map, 'w'));
    close(fd);
}

// A private mapping, a copy, is none of its neighbour's business when a page of it is touched that the file
// did not have when it was made.
static void neighbours(void) {
    int fd = open("neighbours", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, PAGE));
    int none = MAP_PRIVATE | MAP_ANONYMOUS;
    char *map = mmap(NULL, 4 * MIB, RW, none, -1, 0);
    memset(map, 'n', 4 * MIB);
    SAY(mmap(map, 3 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == map);
    SAY(touch(map, 'o'));
    SAY(touch(map + PAGE, 'p'));
    SAY(ftruncate(fd, 2 * PAGE));
    SAY(pwrite(fd, "second", 6, PAGE));
    SAY_TEXT(map + PAGE);
    SAY(touch(map + PAGE, 'q'));
    SAY(touch(map + 2 * PAGE, -1));
    SAY(at_of(fd, 0));
    SAY(at_of(fd, PAGE));
    long wrong = 0;
    for (int at = 3 * PAGE; at < 4 * MIB; at++) wrong += map[at] != 'n';
    SAY(wrong);
    SAY(munmap(map, 4 * MIB));
    close(fd);
}

// What is not as with pages of 4 KiB: a part of a large page is neither protected nor replaced.
static void parts(void) {
    int fd = open("parts", O_RDWR | O_CREAT | O_TRUNC, 0644);
    ftruncate(fd, 3 * PAGE);
    char *map = map_at(fd, 0, 3 * PAGE);
    int none = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    SAY(mprotect(map + PAGE, PAGE, PROT_READ));
    SAY(mprotect(map + PAGE, PAGE, RW));
    SAY((long)mmap(map, PAGE, RW, none, -1, 0));
    SAY(touch(map + PAGE, 'w'));
    SAY((long)mmap(map, 3 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, PAGE));
    SAY(touch(map + PAGE, -1));
    SAY(mmap(map, 3 * PAGE, RW, none, -1, 0) == map);
    SAY(touch(map, 'z'));
    SAY(at_of(fd, 0));
    SAY(munmap(map, 3 * PAGE));
    map = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)map | (2 * MIB - 1)) + 1);
    SAY((long)mmap(at + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0));
    ftruncate(fd, 2 * MIB);
    SAY(mmap(at, 2 * MIB, RW, MAP_SHARED | MAP_FIXED, fd, 0) == at);
    SAY(touch(at + PAGE, -1));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
#ifdef PARTS
    parts();
#else
    small();
    scattered();
    sparse();
    neighbours();
#endif
    return 0;
}
