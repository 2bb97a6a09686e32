// A sparse file, larger than the file system it lies on, is mapped to be read: its holes are zeros. A
// file that a pipe fills grows under its mapping.
#include "say.h"

int main(int argc, char **argv) {
    enter(argc, argv);
    const off_t size = (off_t)4 << 30;
    int fd = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, size));
    SAY(pwrite(fd, "begins", 6, 0));
    SAY(pwrite(fd, "middle", 6, size / 2 - 3));
    SAY(pwrite(fd, "ends", 4, size - 4));
    char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    WORKS(map);
    SAY_TEXT(map);
    SAY_TEXT(map + size / 2 - 3);
    SAY(memcmp(map + size - 4, "ends", 4));
    SAY(map[1 << 20] + map[size - 4097]);
    SAY(pwrite(fd, "again", 5, size / 2 - 3));
    SAY_TEXT(map + size / 2 - 3);
    SAY(munmap(map, size));
    int other = open("sparse", O_RDONLY);
    map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, other, size / 2 - 4096);
    SAY_TEXT(map + 4093);
    SAY(mprotect(map, 4096, PROT_READ | PROT_WRITE));
    SAY(munmap(map, 8192));
    int ends[2], filled = open("filled", O_RDWR | O_CREAT | O_TRUNC, 0644);
    map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, filled, 0);
    SAY(pipe(ends));
    SAY(write(ends[1], "piped", 5));
    SAY(splice(ends[0], NULL, filled, NULL, 5, 0));
    SAY_TEXT(map);
    return 0;
}
