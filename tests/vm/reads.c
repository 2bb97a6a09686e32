/* Reads values of 1 KiB of a file, or of memory of its own, that is larger than what may lie here.
 *
 * reads fill FILE MIB          each value says which one it is
 * reads FILE|- MIB PATTERN HOW THREADS LOADS SEED
 *   -        memory of its own (anonymous), which it fills first
 *   PATTERN  seq: each thread its part in order, again and again; random; zipf: 0.99, scrambled
 *   HOW      map: memcpy from a mapping; advised: the same, madvise RANDOM; read: pread
 *
 * Looks at each value that it has read. Prints what it did, with the page faults that the kernel has
 * counted meanwhile, and the bytes that came and left by the interface "client". A line "begun" goes
 * out when the reads begin. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { VALUE = 1024, WORDS = VALUE / 8, THREADS_MAX = 64 };

static const char *pattern, *how;
static uint64_t values, loads, seed;
static unsigned threads;
static char *memory;
static int file = -1;
/* The part of all loads that goes to the wanted ones up to each. */
static float *shares;

static void fail(const char *what) {
    fprintf(stderr, "reads: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t mixed(uint64_t word) {
    word += 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

static void make(uint64_t *value, uint64_t number) {
    for (uint64_t word = 0; word < WORDS; word++) value[word] = number << 8 | word;
}

static void check(const uint64_t *value, uint64_t number) {
    for (uint64_t word = 0; word < WORDS; word++)
        if (value[word] != (number << 8 | word)) {
            fprintf(stderr, "reads: value %lu has %#lx in word %lu\n", number, value[word], word);
            exit(4);
        }
}

static void find_shares(void) {
    double sum = 0, whole = 0;
    shares = malloc(values * sizeof *shares);
    if (!shares) fail("malloc");
    for (uint64_t rank = 0; rank < values; rank++) whole += __builtin_pow(rank + 1, -0.99);
    for (uint64_t rank = 0; rank < values; rank++) {
        sum += __builtin_pow(rank + 1, -0.99);
        shares[rank] = sum / whole;
    }
}

static uint64_t by_zipf(uint64_t drawn) {
    float wanted = (drawn >> 40) / (float)(1 << 24);
    uint64_t low = 0, high = values - 1;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (shares[middle] > wanted) high = middle;
        else low = middle + 1;
    }
    /* Those that are wanted most lie apart: their number is a power of two. */
    return low * 0x9e3779b1u & (values - 1);
}

static void *reader(void *given) {
    uint64_t thread = (uintptr_t)given, part = values / threads, state = mixed(seed * 64 + thread);
    uint64_t value[WORDS];
    for (uint64_t done = 0; done < loads / threads; done++) {
        uint64_t number;
        state = mixed(state);
        if (*pattern == 's') number = thread * part + done % part;
        else if (*pattern == 'z') number = by_zipf(state);
        else number = state & (values - 1);
        if (*how != 'r') memcpy(value, memory + number * VALUE, VALUE);
        else if (pread(file, value, VALUE, number * VALUE) != VALUE) fail("pread");
        check(value, number);
    }
    return NULL;
}

/* The bytes that the interface "client" has counted; 0 where there is none. */
static uint64_t counted(const char *name) {
    char path[256], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/client/statistics/%s_bytes", name);
    int counter = open(path, O_RDONLY);
    if (counter < 0) return 0;
    if (read(counter, text, sizeof text - 1) < 0) fail(path);
    close(counter);
    return strtoull(text, NULL, 10);
}

static void fill(const char *path) {
    uint64_t value[WORDS];
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0) fail(path);
    for (uint64_t number = 0; number < values; number++) {
        make(value, number);
        if (write(file, value, VALUE) != VALUE) fail("write");
    }
    if (fsync(file) || close(file)) fail("fsync");
}

static void open_memory(const char *path) {
    int own = !strcmp(path, "-"), flags = own ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    file = own ? -1 : open(path, O_RDONLY);
    if (!own && file < 0) fail(path);
    if (*how == 'r') return;
    memory = mmap(NULL, values * VALUE, own ? PROT_READ | PROT_WRITE : PROT_READ, flags, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    if (*how == 'a' && madvise(memory, values * VALUE, MADV_RANDOM)) fail("madvise");
    for (uint64_t number = 0; own && number < values; number++)
        make((uint64_t *)(memory + number * VALUE), number);
}

int main(int count, char **words) {
    struct rusage before, after;
    struct timespec begun, ended;
    pthread_t readers[THREADS_MAX];
    if (count == 4 && !strcmp(words[1], "fill")) {
        values = strtoull(words[3], NULL, 10) << 10;
        fill(words[2]);
        return 0;
    }
    if (count != 8) return fprintf(stderr, "reads: see reads.c\n"), 2;
    values = strtoull(words[2], NULL, 10) << 10;
    pattern = words[3], how = words[4], threads = atoi(words[5]);
    loads = strtoull(words[6], NULL, 10), seed = strtoull(words[7], NULL, 10);
    if (threads < 1 || threads > THREADS_MAX || !values || values & (values - 1)) return 2;
    if (*pattern == 'z') find_shares();
    open_memory(words[1]);
    puts("begun");
    fflush(stdout);
    /* What left behind the filling has left. */
    sleep(1);
    uint64_t in = counted("rx"), out = counted("tx");
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (uintptr_t thread = 0; thread < threads; thread++)
        if ((errno = pthread_create(&readers[thread], NULL, reader, (void *)thread))) fail("thread");
    for (unsigned thread = 0; thread < threads; thread++) pthread_join(readers[thread], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    getrusage(RUSAGE_SELF, &after);
    sleep(1);
    printf("loads %lu in %lu out %lu major %ld minor %ld seconds %.1f\n", loads,
        counted("rx") - in, counted("tx") - out, after.ru_majflt - before.ru_majflt,
        after.ru_minflt - before.ru_minflt,
        ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}
