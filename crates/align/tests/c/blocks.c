// Asks the functions of malloc's kin for blocks, and checks what they promise. The first word says
// what is expected of blocks of at least 2 MiB:
//
//   aligned   they lie at multiples of 2 MiB
//   any       they need not
//   few       as any; only functions that every allocator has are called
//
// The second word, if there is one: `limit` (memory for the block, not for its alignment), `locked`
// (memory is locked: it cannot be given back), `faults` (page faults are counted), `short` (what
// takes long is left out), or `failing`: only what is printed, how requests fail, to be compared.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)
#define MIB ((size_t)1 << 20)
#define COUNT(list) (sizeof(list) / sizeof *(list))

static int aligned, few;
static void *(*volatile take)(size_t);
static void (*volatile give_back)(void *);

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("%s:%d: %s, errno %d\n", __func__, __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static int lies_right(const void *block, size_t size) {
    return !aligned || size < HUGE || (uintptr_t)block % HUGE == 0;
}

// Bytes that depend on the place and on a seed, eight at a time.
static uint64_t word_at(size_t place, unsigned seed) {
    return (place / 8 + 1) * 0x9e3779b97f4a7c15u ^ seed * 0x0101010101010101u;
}

static unsigned char byte_at(size_t place, unsigned seed) {
    return (unsigned char)(word_at(place, seed) >> place % 8 * 8);
}

static void fill_from(unsigned char *block, size_t place, size_t size, unsigned seed) {
    for (; place % 8 != 0 && place < size; place++) {
        block[place] = byte_at(place, seed);
    }
    for (; place + 8 <= size; place += 8) {
        *(uint64_t *)(block + place) = word_at(place, seed);
    }
    for (; place < size; place++) {
        block[place] = byte_at(place, seed);
    }
}

static void fill(unsigned char *block, size_t size, unsigned seed) {
    fill_from(block, 0, size, seed);
}

// Every so many words, and the last bytes.
static int holds(const unsigned char *block, size_t size, unsigned seed, size_t words) {
    size_t place = 0;
    for (; place + 8 <= size; place += 8 * words) {
        if (*(const uint64_t *)(block + place) != word_at(place, seed)) {
            return 0;
        }
    }
    for (place = size < 8 ? 0 : size - 8; place < size; place++) {
        if (block[place] != byte_at(place, seed)) {
            return 0;
        }
    }
    return 1;
}

static int is_zero(const unsigned char *block, size_t size) {
    return size == 0 || (block[0] == 0 && memcmp(block, block + 1, size - 1) == 0);
}

enum { MALLOC, CALLOC, CALLOC_OF_BYTES, REALLOC, REALLOCARRAY, FEW,
       MEMALIGN = FEW, ALIGNED_ALLOC, POSIX_MEMALIGN, VALLOC, PVALLOC, ALL };

static void *get(int way, size_t size) {
    void *block = NULL;
    switch (way) {
    case MALLOC: return take(size);
    case CALLOC: return calloc(1, size);
    case CALLOC_OF_BYTES: return calloc(size, 1);
    case REALLOC: return realloc(NULL, size);
    case REALLOCARRAY: return reallocarray(NULL, size, 1);
    case MEMALIGN: return memalign(64, size);
    case ALIGNED_ALLOC: return aligned_alloc(4096, size);
    case POSIX_MEMALIGN: return posix_memalign(&block, 256, size) ? NULL : block;
    case VALLOC: return valloc(size);
    default: return pvalloc(size);
    }
}

static int ways(void) {
    return few ? FEW : ALL;
}

// jemalloc has no pvalloc: glibc's gives what jemalloc's free does not take. A large one is right.
static int is_foreign(int way, size_t size) {
    return way == PVALLOC && !(aligned && size >= HUGE);
}

static const size_t SIZES[] = {1, 100000, HUGE - 1, HUGE, HUGE + 1, 3 * MIB, 64 * MIB};

static void each_function_at_each_size(void) {
    for (size_t at = 0; at < COUNT(SIZES); at++) {
        size_t size = SIZES[at];
        for (int way = 0; way < ways(); way++) {
            if (is_foreign(way, size)) {
                continue;
            }
            unsigned char *block = get(way, size), *other = get(way, size < MIB * 8 ? size : HUGE);
            CHECK(block && other && block != other);
            CHECK(lies_right(block, size));
            CHECK(malloc_usable_size(block) >= size);
            CHECK(way != PVALLOC || malloc_usable_size(block) >= (size + 4095) / 4096 * 4096);
            CHECK((way != VALLOC && way != PVALLOC && way != ALIGNED_ALLOC) ||
                  (uintptr_t)block % 4096 == 0);
            CHECK((way != CALLOC && way != CALLOC_OF_BYTES) || is_zero(block, size));
            fill(block, size, 1);
            memset(other, 2, 1000 < size ? 1000 : size);
            CHECK(holds(block, size, 1, 1));
            give_back(block);
            CHECK(other[0] == 2 && other[size < 1000 ? size - 1 : 999] == 2);
            free(other);
        }
    }
}

// More than 2 MiB is the program's own wish, and kept.
static void larger_alignments(void) {
    for (size_t alignment = HUGE; alignment <= 16 * MIB; alignment *= 2) {
        void *block = NULL;
        CHECK(posix_memalign(&block, alignment, 3 * MIB) == 0);
        CHECK((uintptr_t)block % alignment == 0);
        free(block);
        block = memalign(alignment, 100);
        CHECK(block && (uintptr_t)block % alignment == 0);
        free(block);
        block = aligned_alloc(alignment, 16 * MIB);
        CHECK(block && (uintptr_t)block % alignment == 0);
        free(block);
    }
}

static void *resized(void *block, size_t size, int array) {
    return array ? reallocarray(block, size / 4, 4) : realloc(block, size);
}

static void contents_survive_realloc(void) {
    static const size_t sizes[] = {100, MIB, HUGE, 3 * MIB, 64 * MIB, 63 * MIB, 5 * MIB, HUGE - 4,
                                   3 * MIB, 1000, HUGE, 24, 20 * MIB, HUGE + 4, 4, 7 * MIB};
    for (int array = 0; array < 2; array++) {
        for (int way = 0; way < (array ? 1 : ways()); way++) {
            size_t size = is_foreign(way, 4) ? 3 * MIB : 4;
            if (is_foreign(way, size)) {
                continue;
            }
            unsigned char *block = get(way, size);
            CHECK(block);
            fill(block, size, 3);
            for (size_t at = 0; at < COUNT(sizes); at++) {
                size_t kept = size < sizes[at] ? size : sizes[at];
                block = resized(block, sizes[at], array);
                size = sizes[at];
                CHECK(block && lies_right(block, size) && malloc_usable_size(block) >= size);
                CHECK(holds(block, kept, 3, 1));
                fill(block, size, 3);
            }
            CHECK(!aligned || resized(block, size, array) == block);
            free(block);
        }
    }
}

static void grows_by_small_steps(void) {
    unsigned char *block = NULL;
    size_t step = 68 << 10;
    for (size_t size = step; size < 24 * MIB; size += step) {
        block = realloc(block, size);
        CHECK(block && lies_right(block, size));
        CHECK(holds(block, size - step, 4, 511));
        fill_from(block, size - step, size, 4);
    }
    CHECK(holds(block, 20 * MIB, 4, 1));
    free(block);
}

// What was freed is not zero.
static void calloc_gives_zeros(void) {
    static const size_t sizes[] = {HUGE, HUGE + 1, 3 * MIB + 4095, 17 * MIB + 17};
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < COUNT(sizes); at++) {
            unsigned char *blocks[4];
            for (size_t number = 0; number < COUNT(blocks); number++) {
                blocks[number] = malloc(sizes[at]);
                CHECK(blocks[number]);
                memset(blocks[number], 0xff, sizes[at]);
            }
            for (size_t number = 0; number < COUNT(blocks); number++) {
                free(blocks[number]);
            }
            for (size_t number = 0; number < COUNT(blocks); number++) {
                errno = 77;
                blocks[number] = calloc(sizes[at] - number, 1);
                CHECK(blocks[number] && errno == 77 && lies_right(blocks[number], sizes[at] - number));
                CHECK(is_zero(blocks[number], sizes[at] - number));
                memset(blocks[number], 0xff, sizes[at] - number);
            }
            for (size_t number = 0; number < COUNT(blocks); number++) {
                free(blocks[number]);
            }
        }
    }
}

// A request that fails: printed, to be compared with the allocator's own.
static void tell(const char *name, size_t at, const void *block) {
    printf("%s %zu: %s, errno %d\n", name, at, block ? "a block" : "null", errno);
}

static void requests_that_fail(void) {
    // The compiler knows what it sees of such requests.
    volatile size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4096, SIZE_MAX - HUGE,
                               SIZE_MAX - HUGE - 1, SIZE_MAX / 2 + 1, SIZE_MAX / 2,
                               SIZE_MAX / 2 - HUGE, SIZE_MAX / 2 - HUGE - 1, (size_t)1 << 50};
    unsigned char *block = malloc(3 * MIB);
    CHECK(block);
    fill(block, 3 * MIB, 5);
    for (size_t at = 0; at < COUNT(sizes); at++) {
        for (int way = 0; way < ways(); way++) {
            errno = 0;
            void *given = get(way, sizes[at]);
            // jemalloc's valloc and posix_memalign: the latter's errno is nobody's.
            errno = way == POSIX_MEMALIGN ? 0 : errno;
            printf("%d: ", way);
            tell("size", at, given);
        }
        errno = 0;
        tell("realloc", at, realloc(block, sizes[at]));
        errno = 0;
        tell("reallocarray", at, reallocarray(block, sizes[at], 1));
        errno = 0;
        tell("reallocarray of 3", at, reallocarray(block, sizes[at], 3));
        errno = 0;
        tell("calloc of 3", at, calloc(sizes[at], 3));
        errno = 0;
        tell("calloc of 1 << 43", at, calloc(sizes[at] - sizes[at] % 8, (size_t)1 << 43));
    }
    errno = 0;
    tell("reallocarray to", 0, reallocarray(block, (size_t)1 << 33, ((size_t)1 << 31) + 1));
    CHECK(holds(block, 3 * MIB, 5, 1));
    free(block);
    void *none = malloc(0);
    tell("malloc of", 0, none);
    free(none);
    none = calloc(0, 4 * MIB);
    tell("calloc of", 0, none);
    free(none);
    none = realloc(NULL, 0);
    tell("realloc of", 0, none);
    none = realloc(none, 3 * MIB);
    CHECK(none && lies_right(none, 3 * MIB));
    none = realloc(none, 0);
    tell("realloc to", 0, none);
    free(none);
}

static void alignments_that_fail(void) {
    volatile size_t alignments[] = {0, 1, 2, 3, 4, 12, 24, 4097, HUGE - 8, HUGE + 8, 3 * MIB};
    size_t sizes[] = {100, HUGE, 5 * MIB, SIZE_MAX};
    for (size_t at = 0; at < COUNT(alignments); at++) {
        for (size_t size = 0; size < COUNT(sizes); size++) {
            void *block = &block;
            int code = posix_memalign(&block, alignments[at], sizes[size]);
            printf("posix_memalign %zu, %zu: %d%s\n", at, size, code,
                   block == &block ? ", nothing given" : "");
            if (code == 0) {
                free(block);
            }
        }
    }
}

#define SLOTS 24

static struct slot {
    pthread_mutex_t mutex;
    unsigned char *block;
    size_t size;
    unsigned seed;
} slots[SLOTS];

static uint64_t random_below(uint64_t *state, uint64_t limit) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % limit;
}

static void *allocates_and_frees(void *number) {
    uint64_t state = 88172645463325252u + (uintptr_t)number;
    for (int round = 0; round < 200; round++) {
        struct slot *slot = &slots[random_below(&state, SLOTS)];
        size_t size = 8 + random_below(&state, random_below(&state, 2) ? 6 * MIB : 8192);
        int way = (int)random_below(&state, (unsigned)ways());
        way = is_foreign(way, size) ? CALLOC : way;
        pthread_mutex_lock(&slot->mutex);
        CHECK(holds(slot->block, slot->size, slot->seed, 13));
        if (slot->block && random_below(&state, 3) == 0) {
            size_t kept = slot->size < size ? slot->size : size;
            slot->block = realloc(slot->block, size);
            CHECK(slot->block && holds(slot->block, kept, slot->seed, 13));
        } else {
            free(slot->block);
            slot->block = get(way, size);
            CHECK(slot->block && (way != CALLOC || is_zero(slot->block, size)));
        }
        CHECK(lies_right(slot->block, size));
        slot->size = size;
        slot->seed = (unsigned)random_below(&state, 256);
        fill(slot->block, size, slot->seed);
        pthread_mutex_unlock(&slot->mutex);
    }
    return NULL;
}

static void threads(void) {
    pthread_t threads[4];
    for (size_t at = 0; at < SLOTS; at++) {
        pthread_mutex_init(&slots[at].mutex, NULL);
    }
    for (size_t at = 0; at < COUNT(threads); at++) {
        CHECK(pthread_create(&threads[at], NULL, allocates_and_frees, (void *)at) == 0);
    }
    for (size_t at = 0; at < COUNT(threads); at++) {
        pthread_join(threads[at], NULL);
    }
    for (size_t at = 0; at < SLOTS; at++) {
        CHECK(holds(slots[at].block, slots[at].size, slots[at].seed, 1));
        free(slots[at].block);
    }
}

// There is room for the block, not for what aligning it takes: it is given all the same.
static void limit(void) {
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    struct rlimit limit = {pages * 4096 + 65 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (int way = MALLOC; way < FEW; way++) {
        errno = 77;
        unsigned char *block = get(way, 64 * MIB);
        CHECK(block && errno == 77);
        fill(block, 64 * MIB, 6);
        free(block);
    }
    unsigned char *block = malloc(MIB);
    block = realloc(block, 63 * MIB);
    CHECK(block);
    free(block);
}

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

// Blocks that come and go stay in memory, and what nobody touches takes none.
static void few_faults(void) {
    for (int count = 0; count < 20; count++) {
        free(memset(malloc(3 * MIB), 1, 3 * MIB));
        free(calloc(3 * MIB, 1));
    }
    long before = faults();
    for (int count = 0; count < 20; count++) {
        unsigned char *block = memset(malloc(3 * MIB), 1, 3 * MIB);
        CHECK(lies_right(block, 3 * MIB));
        free(block);
        block = calloc(3 * MIB, 1);
        CHECK(is_zero(block, 3 * MIB));
        free(block);
    }
    CHECK(faults() - before < 1000);
    before = faults();
    unsigned char *block = calloc(512 * MIB, 1);
    CHECK(block && lies_right(block, 512 * MIB) && block[0] == 0 && block[500 * MIB] == 0);
    CHECK(faults() - before < 1000);
    free(block);
}

int main(int count, char **words) {
    CHECK(count > 1);
    // A program that is linked to a fixed address then has symbols of its own of these names.
    take = malloc;
    give_back = free;
    aligned = !strcmp(words[1], "aligned");
    few = !strcmp(words[1], "few");
    if (count > 2 && !strcmp(words[2], "limit")) {
        limit();
        return 0;
    }
    if (count > 2 && !strcmp(words[2], "faults")) {
        few_faults();
        return 0;
    }
    if (count > 2 && !strcmp(words[2], "locked")) {
        CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
        calloc_gives_zeros();
        return 0;
    }
    requests_that_fail();
    if (!few) {
        larger_alignments();
        alignments_that_fail();
    }
    if (count > 2 && !strcmp(words[2], "failing")) {
        return 0;
    }
    each_function_at_each_size();
    contents_survive_realloc();
    calloc_gives_zeros();
    if (count == 2) {
        grows_by_small_steps();
        threads();
    }
    return 0;
}
