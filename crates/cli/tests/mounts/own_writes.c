// A program writes a file by calls and reads it through a shared mapping: it must read what it has
// written as soon as the call has returned.
//
// Some pages are read again and again, so that the processor knows where they are; the others make
// it long to take all of them out of the page table.
//
// usage: own_writes FILE ROUNDS
//
// Prints how many writes were not seen, which is 0.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 1024, PAGE = 4096, AROUND = 16, READ = 64, WRITES = 100 };

static volatile uint32_t *mapped;

static uint32_t at(long page) { return mapped[page * (PAGE / 4)]; }

static void write_page(int fd, long page, uint32_t value) {
    static uint32_t bytes[PAGE / 4];
    bytes[0] = value;
    if (pwrite(fd, bytes, PAGE, page * PAGE) != PAGE) {
        perror("pwrite");
        exit(2);
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int fd = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long page = 0; page < PAGES; page++) write_page(fd, page, 0);
    mapped = mmap(NULL, (long)PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || mapped == MAP_FAILED) return 2;
    uint32_t random = 1, value = 0, unseen = 0;
    for (int round = 0; round < atoi(arguments[2]); round++) {
        for (long page = 0; page < PAGES; page += AROUND) (void)at(page);
        for (int n = 0; n < WRITES; n++) {
            random = random * 1103515245 + 12345;
            long page = (random >> 8) % READ * (PAGES / READ);
            for (long read = 0; read < READ; read++) (void)at(read * (PAGES / READ));
            write_page(fd, page, ++value);
            unseen += at(page) != value;
        }
    }
    fprintf(stderr, "unseen: %u\n", unseen);
    return unseen > 0;
}
