// Many mappings of one page, of two files in turns, so that no two neighbours are one mapping: all are made,
// found, changed and unmapped one by one. A walk over all of them for each call would not end.
#include "say.h"

enum { PAGE = 4096, MANY = 50000, PAGES = 64, HOLE = 500 };

static char *maps[MANY];

static int show_their_page(int from, int step) {
    int right = 0;
    for (int i = from; i < MANY; i += step) {
        right += maps[i][1] == "ab"[i & 1] && maps[i][0] == i / 2 % PAGES;
    }
    return right;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    int files[2] = {open("a", O_RDWR | O_CREAT, 0644), open("b", O_RDWR | O_CREAT, 0644)};
    char page[PAGE] = {0};
    for (int i = 0; i < 2 * PAGES; i++) {
        page[0] = i / 2;
        page[1] = "ab"[i & 1];
        pwrite(files[i & 1], page, PAGE, i / 2 * PAGE);
    }
    SAY(ftruncate(files[0], (PAGES + HOLE) * PAGE));
    int made = 0;
    for (int i = 0; i < MANY; i++) {
        int fd = files[i & 1], protection = PROT_READ | PROT_WRITE;
        maps[i] = mmap(NULL, PAGE, protection, MAP_SHARED, fd, i / 2 % PAGES * PAGE);
        made += maps[i] != MAP_FAILED;
    }
    SAY(made);
    SAY(show_their_page(0, 1));
    // Holes, each touched through a mapping of its own.
    char *hole[HOLE];
    int zeros = 0;
    for (int i = 0; i < HOLE; i++) {
        hole[i] = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, files[0], (PAGES + i) * PAGE);
        zeros += hole[i][i] == 0;
    }
    SAY(zeros);
    // Another file changes its size, is opened and closed, while there are so many.
    int other = open("c", O_RDWR | O_CREAT, 0644), kept = 0;
    for (int i = 0; i < 20000; i++) {
        int again = open("c", O_RDWR | O_TRUNC);
        kept += ftruncate(other, i % 3 * PAGE) == 0 && close(again) == 0;
    }
    SAY(kept);
    int changed = 0;
    for (int i = 0; i < MANY; i += 2) {
        changed += mprotect(maps[i], PAGE, i % 4 ? PROT_READ : PROT_READ | PROT_WRITE) == 0;
    }
    SAY(changed);
    int moved = 0;
    for (int i = 1; i < MANY; i += 2) {
        char *to = mremap(maps[i], PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, maps[i - 1]);
        moved += to == maps[i - 1];
    }
    SAY(moved);
    for (int i = 1; i < MANY; i += 2) {
        maps[i] = maps[i - 1];
    }
    SAY(show_their_page(1, 2));
    // The last mappings hold the files.
    SAY(unlink("b"));
    SAY(close(files[0]));
    SAY(close(files[1]));
    SAY(show_their_page(1, 2));
    int gone = 0;
    for (int i = 1; i < MANY; i += 2) {
        gone += munmap(maps[i], PAGE) == 0;
    }
    SAY(gone);
    for (int i = 0; i < HOLE; i++) {
        gone += munmap(hole[i], PAGE) == 0;
    }
    SAY(gone);
    return 0;
}
