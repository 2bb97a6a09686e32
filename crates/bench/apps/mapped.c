// What programs do with a mapped file, timed: for crates/bench/scripts/mapped.py. Prints `name value` lines.
//
// usage: mapped copy DIR MIB     sequential and random memcpy of 4 KiB into and out of a new file
//        mapped tree DIR KEYS    random lookups in a persistent radix tree, after all of it was touched
//        mapped stores DIR COUNT random overwrites of 4 KiB by pwrite, in whole chunks and in single blocks
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE = 2 << 20, ROUNDS = 3, WAYS = 16, LEVELS = 8, LOOKUPS = 1000000 };

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

// The processor's counter of loads (or stores) that missed the data TLB; -1 where there is none.
static int tlb_counter(int operation) {
    struct perf_event_attr what = {
        .size = sizeof what,
        .type = PERF_TYPE_HW_CACHE,
        .config = PERF_COUNT_HW_CACHE_DTLB | operation << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return syscall(SYS_perf_event_open, &what, 0, -1, -1, 0);
}

static double counted(int counter) {
    uint64_t value;
    return counter >= 0 && read(counter, &value, sizeof value) == sizeof value ? value : -1;
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

// Of the bytes from `map` on, the part that the kernel maps by 2 MiB, in percent.
static double huge_part(const char *map, long bytes) {
    char line[512];
    unsigned long from = 0, to = 0, found = 0, kib;
    FILE *list = fopen("/proc/self/smaps", "r");
    while (list && fgets(line, sizeof line, list)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) from = start, to = end;
        if (from >= (unsigned long)map && to <= (unsigned long)map + bytes &&
            (sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1 || sscanf(line, "FilePmdMapped: %lu", &kib) == 1))
            found += kib << 10;
    }
    if (list) fclose(list);
    return 100.0 * found / bytes;
}

static unsigned long seed = 88172645463325252UL;

static unsigned long next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void copies(long bytes) {
    int fd, counter = tlb_counter(PERF_COUNT_HW_CACHE_OP_READ);
    char *map = new_file("mapped-copy", bytes, &fd), page[PAGE];
    long pages = bytes / PAGE, before = faults();
    memset(page, 'p', PAGE);
    double start = now();
    for (long at = 0; at < pages; at++) memcpy(map + at * PAGE, page, PAGE);
    printf("first_touch %.0f\n", bytes / 1048576.0 / (now() - start));
    printf("faults_first_touch %ld\n", faults() - before);
    printf("huge_pct %.1f\n", huge_part(map, bytes));
    const char *names[] = {"write_sequential", "write_random", "read_sequential", "read_random"};
    for (int kind = 0; kind < 4; kind++) {
        double best = 0, missed = counted(counter);
        before = faults();
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
        printf("%s %.0f\nfaults_%s %ld\n", names[kind], best, names[kind], faults() - before);
        double count = counted(counter);
        if (count >= 0) printf("tlb_%s %.3f\n", names[kind], (count - missed) / ROUNDS / pages);
    }
    munmap(map, bytes);
    close(fd);
    unlink("mapped-copy");
}

// A node names others by their place in the file; the last level holds values.
struct node {
    unsigned long below[WAYS];
};

static void persist(const void *from, size_t bytes) {
    for (const char *at = from; at < (const char *)from + bytes; at += 64)
        __asm__ volatile("clflush %0" : : "m"(*at) : "memory");
    __asm__ volatile("sfence" : : : "memory");
}

// The new node, zeros, is there already; its name makes it real.
static unsigned long insert(char *map, unsigned long key, unsigned long used) {
    unsigned long at = 0;
    for (int level = 0; level < LEVELS; level++) {
        unsigned long *below = &((struct node *)(map + at))->below[key >> 4 * level & 15];
        if (*below == 0) {
            *below = level == LEVELS - 1 ? key + 1 : used;
            persist(below, sizeof *below);
            if (level < LEVELS - 1) used += sizeof(struct node);
        }
        at = *below;
    }
    return used;
}

static void tree(long keys) {
    long bytes = (keys * (LEVELS - 4) * sizeof(struct node) + 2L * HUGE) / HUGE * HUGE;
    int fd, counter = tlb_counter(PERF_COUNT_HW_CACHE_OP_READ);
    char *map = new_file("mapped-tree", bytes, &fd);
    for (long at = 0; at < bytes; at += PAGE) map[at] = 0;
    unsigned long used = sizeof(struct node), *all = malloc(keys * sizeof *all);
    long filled = 0, wrong = 0;
    for (; filled < keys && used + LEVELS * sizeof(struct node) < bytes; filled++) {
        all[filled] = next_random() % (1UL << 4 * LEVELS);
        used = insert(map, all[filled], used);
    }
    // In units of 10 ns; the last is for all that took longer.
    enum { SLOTS = 1000 };
    static long slots[SLOTS];
    memset(slots, 0, sizeof slots);
    long before = faults();
    double missed = counted(counter);
    for (int n = 0; n < LOOKUPS; n++) {
        unsigned long key = all[next_random() % filled], at = 0;
        double start = now();
        for (int level = 0; level < LEVELS; level++)
            at = ((struct node *)(map + at))->below[key >> 4 * level & 15];
        long slot = (now() - start) * 1e8;
        slots[slot < SLOTS ? slot : SLOTS - 1]++;
        wrong += at != key + 1;
    }
    double count = counted(counter);
    printf("huge_pct %.1f\n", huge_part(map, bytes));
    printf("wrong %ld\nkeys %ld\nMiB %ld\nfaults %ld\n", wrong, filled, used >> 20, faults() - before);
    if (count >= 0) printf("tlb %.3f\n", (count - missed) / LOOKUPS);
    long below = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        below += slots[slot];
        if (slots[slot]) printf("ns_%d %.6f\n", slot * 10, (double)below / LOOKUPS);
    }
    munmap(map, bytes);
    close(fd);
    unlink("mapped-tree");
}

static void stores(long count) {
    enum { BYTES = 64 << 20 };
    static char page[PAGE];
    const char *names[] = {"whole", "single"};
    for (int kind = 0; kind < 2; kind++) {
        char name[32];
        sprintf(name, "stores-%s", names[kind]);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || (kind == 0 && posix_fallocate(fd, 0, BYTES) != 0)) exit(1);
        // From the end on, so that no block lies behind the one before it.
        for (long at = BYTES - PAGE; at >= 0; at -= PAGE) {
            memset(page, 'a' + at / PAGE % 26, PAGE);
            if (pwrite(fd, page, PAGE, at) != PAGE) exit(1);
        }
        double start = now();
        for (long n = 0; n < count; n++) {
            long at = next_random() % (BYTES / PAGE) * PAGE;
            memset(page, 'a' + at / PAGE % 26, 8);
            if (pwrite(fd, page, PAGE, at) != PAGE) exit(1);
        }
        printf("ns_%s %.0f\n", names[kind], (now() - start) * 1e9 / count);
        long wrong = 0;
        for (long at = 0; at < BYTES; at += PAGE)
            wrong += pread(fd, page, PAGE, at) != PAGE || *page != 'a' + at / PAGE % 26;
        printf("wrong_%s %ld\n", names[kind], wrong);
        close(fd);
    }
}

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[2]) != 0) return 2;
    long amount = atol(argv[3]);
    if (strcmp(argv[1], "copy") == 0) copies(amount << 20);
    else if (strcmp(argv[1], "tree") == 0) tree(amount);
    else stores(amount);
    return 0;
}
