// What blocks cost, with the library and without: the best of five, and the memory used at most.
//
//   cc -O1 -fno-builtin -o cost cost.c && for library in '' libsolera_align.so; do
//       LD_PRELOAD=$library ./cost random; done
//
//   small     malloc and free of 64 bytes
//   one       a block of 2 to 4 MiB is made, written and freed; the next one
//   random    16 such blocks, replaced at random
//   zeros     4 MiB are made, written and freed; calloc of 4 MiB, freed
//   untouched calloc of 64 MiB, freed
//   steps     realloc to 64 MiB in steps of 64 KiB, what is new written
//   steps2    two such blocks in turn
//   doubled   realloc to 256 MiB, each time twice the size
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static uint64_t state = 88172645463325252u;

static uint64_t random_below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static char *written(size_t size) {
    char *block = malloc(size);
    return memset(block, 1, size);
}

static int small(void) {
    for (int count = 0; count < 10000000; count++) {
        free(malloc(64));
    }
    return 10000000;
}

static int one(void) {
    for (int count = 0; count < 500; count++) {
        free(written(2 * MIB + random_below(2 * MIB)));
    }
    return 500;
}

static int at_random(void) {
    static char *blocks[16];
    for (int count = 0; count < 2000; count++) {
        char **block = &blocks[random_below(16)];
        free(*block);
        *block = written(2 * MIB + random_below(2 * MIB));
    }
    return 2000;
}

static int zeros(void) {
    for (int count = 0; count < 200; count++) {
        free(written(4 * MIB));
        free(calloc(4 * MIB, 1));
    }
    return 200;
}

static int untouched(void) {
    for (int count = 0; count < 200; count++) {
        free(calloc(64 * MIB, 1));
    }
    return 200;
}

static void grow(char **block, size_t from, size_t to) {
    *block = realloc(*block, to);
    memset(*block + from, 1, to - from);
}

static int steps(int count) {
    char *blocks[2] = {NULL, NULL};
    for (size_t size = 0; size < 64 * MIB; size += MIB / 16) {
        for (int at = 0; at < count; at++) {
            grow(&blocks[at], size, size + MIB / 16);
        }
    }
    free(blocks[0]);
    free(blocks[1]);
    return 1;
}

static int doubled(void) {
    char *block = NULL;
    for (size_t from = 0, to = MIB / 16; to <= 256 * MIB; from = to, to *= 2) {
        grow(&block, from, to);
    }
    free(block);
    return 1;
}

static int times(const char *what) {
    return !strcmp(what, "small")      ? small()
           : !strcmp(what, "one")      ? one()
           : !strcmp(what, "random")   ? at_random()
           : !strcmp(what, "zeros")    ? zeros()
           : !strcmp(what, "untouched") ? untouched()
           : !strcmp(what, "doubled")  ? doubled()
                                       : steps(!strcmp(what, "steps2") ? 2 : 1);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "random";
    double best = 1e18;
    for (int round = 0; round < 5; round++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        int done = times(what);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        double took = (ended.tv_sec - begun.tv_sec) * 1e6 + (ended.tv_nsec - begun.tv_nsec) / 1e3;
        best = took / done < best ? took / done : best;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%-9s %11.3f us, %ld MiB\n", what, best, used.ru_maxrss >> 10);
}
