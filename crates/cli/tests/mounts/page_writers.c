// One thread stores to each page of a file through a shared mapping; at the same moment another one
// changes other bytes of that page by a call. Neither change may be lost, in the mapping or in the
// file.
//
// usage: beside_stores FILE pwrite|copy|other ROUNDS
//
// pwrite and copy (copy_file_range) are calls of the second thread's. With `other` the calls are
// those of a second process: `beside_stores FILE writer ROUNDS`, which may see the file by another
// face. The two meet page by page, by the standard streams of the writer: the storing one says each
// page, the other answers when it has written it.
//
// Prints how many changes were lost, which is 0.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 256, PAGE = 4096, STORED = 8, WRITTEN = 1024 };

static int fd, source;
static volatile uint64_t *mapped;
static volatile int arrived[2];
static uint64_t value;
static int copies;

static void die(const char *what) {
    perror(what);
    exit(2);
}

static volatile uint64_t *word(int page, int byte) {
    return mapped + ((long)page * PAGE + byte) / 8;
}

// Waits until both threads have come as far. The one that waits may be alone on its processor.
static void meet(int who, int step) {
    __atomic_store_n(&arrived[who], step, __ATOMIC_SEQ_CST);
    for (int turns = 0; __atomic_load_n(&arrived[!who], __ATOMIC_SEQ_CST) < step; turns++) {
        if (turns > 2000) usleep(50);
    }
}

static void *store_all(void *unused) {
    for (int page = 0; page < PAGES; page++) {
        meet(0, page + 1);
        *word(page, STORED) = value;
    }
    return unused;
}

static void change(int page) {
    off_t at = (off_t)page * PAGE + WRITTEN;
    if (copies) {
        off_t from = 0;
        if (copy_file_range(source, &from, fd, &at, 8, 0) != 8) die("copy_file_range");
    } else if (pwrite(fd, &value, 8, at) != 8) {
        die("pwrite");
    }
}

static void *change_all(void *unused) {
    for (int page = 0; page < PAGES; page++) {
        meet(1, page + 1);
        for (volatile int turn = 0; turn < page % 16 * 100; turn++) {}
        change(page);
    }
    return unused;
}

static int lost_in_mapping(void) {
    int lost = 0;
    for (int page = 0; page < PAGES; page++) {
        lost += *word(page, STORED) != value;
        lost += *word(page, WRITTEN) != value;
    }
    return lost;
}

static int lost_in_file(const char *name) {
    int lost = 0, file = open(name, O_RDONLY);
    for (int page = 0; page < PAGES; page++) {
        uint64_t stored, written;
        off_t at = (off_t)page * PAGE;
        if (pread(file, &stored, 8, at + STORED) != 8) die("pread");
        if (pread(file, &written, 8, at + WRITTEN) != 8) die("pread");
        lost += (stored != value) + (written != value);
    }
    close(file);
    return lost;
}

static void begin(const char *name) {
    fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, PAGES * PAGE) < 0) die(name);
    mapped = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) die("mmap");
}

static int end(const char *name, int seen) {
    if (msync((void *)mapped, PAGES * PAGE, MS_SYNC) < 0) die("msync");
    munmap((void *)mapped, PAGES * PAGE);
    close(fd);
    return seen + lost_in_file(name);
}

static int threads(const char *name) {
    pthread_t one, other;
    begin(name);
    arrived[0] = arrived[1] = 0;
    if (copies && pwrite(source, &value, 8, 0) != 8) die("source");
    pthread_create(&one, 0, store_all, 0);
    pthread_create(&other, 0, change_all, 0);
    pthread_join(one, 0);
    pthread_join(other, 0);
    return end(name, lost_in_mapping());
}

// Stores while the other process writes what it is told: its page is dirty when the write comes.
static int processes(const char *name) {
    begin(name);
    for (int page = 0; page < PAGES; page++) {
        int told = page, answer;
        *word(page, STORED) = value;
        if (write(1, &told, sizeof told) != sizeof told) die("tell");
        *word(page, STORED) = value;
        if (read(0, &answer, sizeof answer) != sizeof answer) die("answer");
    }
    return end(name, 0);
}

static int writer(const char *name) {
    int page, file = -1;
    while (read(0, &page, sizeof page) == sizeof page) {
        if (page == 0) {
            close(file);
            file = open(name, O_RDWR);
            if (file < 0) die(name);
            value++;
        }
        if (pwrite(file, &value, 8, (off_t)page * PAGE + WRITTEN) != 8) die("pwrite");
        if (write(1, &page, sizeof page) != sizeof page) die("answer");
    }
    return 0;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    const char *name = words[1], *how = words[2];
    int rounds = atoi(words[3]), lost = 0;
    if (!strcmp(how, "writer")) return writer(name);
    copies = !strcmp(how, "copy");
    if (copies) {
        char other[512];
        snprintf(other, sizeof other, "%s.source", name);
        source = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (source < 0) die(other);
    }
    for (value = 1; value <= (uint64_t)rounds; value++) {
        lost += strcmp(how, "other") ? threads(name) : processes(name);
    }
    fprintf(stderr, "lost: %d\n", lost);
    return lost > 0;
}
