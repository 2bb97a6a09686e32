// What programs do with a mapped file, timed: for scripts/mapped.py.
//
// usage: mapped copy DIR MIB     sequential and random memcpy of 4 KiB into and out of a new file
//        mapped tree DIR KEYS    lookups in a radix tree that lies in a new file, after all of it was touched
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 5, WAYS = 16, LEVELS = 6 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static char *new_file(const char *name, long bytes, int *fd) {
    *fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (*fd < 0 || posix_fallocate(*fd, 0, bytes) != 0) {
        perror(name);
        exit(1);
    }
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (map == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return map;
}

static int compare(const void *a, const void *b) {
    double left = *(double *)a, right = *(double *)b;
    return (left > right) - (left < right);
}

static unsigned long seed = 88172645463325252UL;

static unsigned long next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void copies(long bytes) {
    int fd;
    char *map = new_file("mapped-copy", bytes, &fd), page[PAGE];
    long pages = bytes / PAGE, before = faults();
    memset(page, 'p', PAGE);
    double start = now();
    for (long at = 0; at < pages; at++) memcpy(map + at * PAGE, page, PAGE);
    printf("first_touch %.0f\nfaults %ld\n", bytes / 1048576.0 / (now() - start), faults() - before);
    const char *names[] = {"write_sequential", "write_random", "read_sequential", "read_random"};
    for (int kind = 0; kind < 4; kind++) {
        double best = 0;
        for (int round = 0; round < ROUNDS; round++) {
            start = now();
            for (long n = 0; n < pages; n++) {
                char *at = map + (kind & 1 ? next_random() % pages : n) * PAGE;
                if (kind < 2) memcpy(at, page, PAGE);
                else memcpy(page, at, PAGE);
                __asm__ volatile("" : : "r"(page) : "memory");
            }
            double rate = bytes / 1048576.0 / (now() - start);
            if (rate > best) best = rate;
        }
        printf("%s %.0f\n", names[kind], best);
    }
    munmap(map, bytes);
    close(fd);
    unlink("mapped-copy");
}

// A node names others by their place in the file; the last level holds values.
struct node {
    unsigned long below[WAYS];
};

static void tree(long keys) {
    // Keys are spread over 16^LEVELS; the nodes of each are new at most.
    long bytes = keys * LEVELS * sizeof(struct node) / 2 + (1 << 20);
    bytes = (bytes + (2 << 20) - 1) & ~((2L << 20) - 1);
    int fd;
    char *map = new_file("mapped-tree", bytes, &fd);
    unsigned long used = sizeof(struct node), *all = malloc(keys * sizeof *all);
    for (long at = 0; at < bytes; at += PAGE) map[at] = 0;
    long filled = 0;
    for (; filled < keys && used + LEVELS * sizeof(struct node) < bytes; filled++) {
        unsigned long key = all[filled] = next_random() % (1UL << 4 * LEVELS), at = 0;
        for (int level = 0; level < LEVELS; level++) {
            unsigned long *below = &((struct node *)(map + at))->below[key >> 4 * level & 15];
            if (*below == 0) {
                *below = level == LEVELS - 1 ? key + 1 : used;
                if (level < LEVELS - 1) used += sizeof(struct node);
            }
            at = *below;
        }
    }
    enum { LOOKUPS = 200000 };
    static double times[LOOKUPS];
    long wrong = 0, before = faults();
    for (int n = 0; n < LOOKUPS; n++) {
        unsigned long key = all[next_random() % filled], at = 0;
        double start = now();
        for (int level = 0; level < LEVELS; level++)
            at = ((struct node *)(map + at))->below[key >> 4 * level & 15];
        times[n] = (now() - start) * 1e9;
        wrong += at != key + 1;
    }
    qsort(times, LOOKUPS, sizeof *times, compare);
    printf("wrong %ld\nfaults %ld\n", wrong, faults() - before);
    double parts[] = {50, 90, 99, 99.9};
    for (int n = 0; n < 4; n++) printf("p%g %.0f\n", parts[n], times[(int)(LOOKUPS * parts[n] / 100)]);
    munmap(map, bytes);
    close(fd);
    unlink("mapped-tree");
}

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[2]) != 0) return 2;
    long amount = atol(argv[3]);
    if (strcmp(argv[1], "copy") == 0) copies(amount << 20);
    else tree(amount);
    return 0;
}
