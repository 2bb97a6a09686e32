// Files mapped: shared and private, growing, forked, unmapped in pieces.
#include "say.h"

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    enter(argc, argv);
    int fd = open("m", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, 3 * PAGE + 100));
    char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WORKS(map);
    SAY(map[0] + map[PAGE] + map[3 * PAGE + 99] + map[3 * PAGE + 200]);
    strcpy(map + PAGE, "by store");
    char text[32] = {0};
    SAY(pread(fd, text, 8, PAGE));
    SAY_TEXT(text);
    SAY(pwrite(fd, "by write", 8, 2 * PAGE));
    SAY_TEXT(map + 2 * PAGE);
    SAY(msync(map, 4 * PAGE, MS_SYNC));
    char *other = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
    WORKS(other);
    SAY_TEXT(other);
    SAY(mprotect(other, PAGE, PROT_READ | PROT_WRITE));
    strcpy(other, "both see");
    SAY_TEXT(map + PAGE);
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    WORKS(own);
    strcpy(own, "only here");
    SAY_TEXT(map + PAGE);
    SAY(munmap(own, PAGE));
    // The descriptor may go; the mapping stays.
    int second = open("m", O_RDWR);
    close(fd);
    strcpy(map, "after close");
    SAY(pread(second, text, 11, 0));
    SAY_TEXT(text);
    if (fork() == 0) {
        strcpy(map + 20, "by the child");
        _exit(0);
    }
    wait(NULL);
    SAY_TEXT(map + 20);
    SAY(munmap(map + PAGE, PAGE));
    SAY_TEXT(map + 2 * PAGE);
    SAY(munmap(map, 4 * PAGE));
    SAY_TEXT(other);
    SAY(munmap(other, PAGE));
    // Mapped beyond the end, then grown.
    SAY(ftruncate(second, PAGE));
    map = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, second, 0);
    WORKS(map);
    SAY(ftruncate(second, 8 * PAGE));
    map[7 * PAGE] = 'z';
    SAY(pread(second, text, 1, 7 * PAGE));
    SAY(text[0]);
    // Grown by a write, as databases do that map more than they have.
    char *ahead = mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED, second, 0);
    SAY(pwrite(second, "written", 7, 20 * PAGE));
    SAY_TEXT(ahead + 20 * PAGE);
    SAY(ftruncate(second, 8 * PAGE));
    SAY(munmap(ahead, 64 * PAGE));
    char *moved = mremap(map, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
    WORKS(moved);
    SAY(moved[7 * PAGE]);
    SAY(munmap(moved, 16 * PAGE));
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, second, 100));
    SAY((long)mmap(NULL, 0, PROT_READ, MAP_SHARED, second, 0));
    int reader = open("m", O_RDONLY);
    SAY((long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0));
    map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
    SAY(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
    WORKS(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0));
    int writer = open("m", O_WRONLY);
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0));
    int dir = open(".", O_RDONLY);
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, dir, 0));
    // Reading into a mapping of the same file.
    map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, second, 0);
    SAY(pwrite(second, "source", 6, 0));
    SAY(pread(second, map + PAGE, 6, 0));
    SAY_TEXT(map + PAGE);
    SAY(pwrite(second, map, 6, 100));
    SAY_TEXT(map + 100);
    return 0;
}
