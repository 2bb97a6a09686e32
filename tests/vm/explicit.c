/* The explicit library where a file lies in the page cache, through power cuts: a wait that has returned
 * survives.
 *   explicit load DIRECTORY ACKS    appends to a log and to a file, and overwrites blocks of another; behind
 *                                   each wait the number is stored to ACKS, a file that no cut reaches
 *   explicit judge DIRECTORY ACKS   says what is there, fails if less is there than was acknowledged
 * Record, piece and block number N consist of the number N, eight bytes each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <solera.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 75, BLOCKS = 16, BLOCK_WORDS = 512 };

struct acks {
    uint64_t begun, logged, appended, overwritten;
};

static void need(int holds, const char *what) {
    if (holds)
        return;
    printf("explicit: %s: %s\n", what, solera_error());
    exit(1);
}

static struct acks *acks_at(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    need(fd >= 0 && ftruncate(fd, 4096) == 0, path);
    return (struct acks *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void fill(uint64_t *words, size_t count, uint64_t number) {
    for (size_t at = 0; at < count; at++)
        words[at] = number;
}

static int is_filled(const uint64_t *words, size_t count, uint64_t number) {
    for (size_t at = 0; at < count; at++)
        if (words[at] != number)
            return 0;
    return 1;
}

static void load(solera_place *place, volatile struct acks *acks) {
    struct solera_log_options log_options = SOLERA_LOG_OPTIONS;
    struct solera_options options = SOLERA_OPTIONS;
    solera_log *log;
    solera_file *file, *blocks;
    uint64_t words[BLOCK_WORDS];
    solera_ticket ticket;
    log_options.create = 1;
    log_options.capacity = 8 << 20;
    options.flags = SOLERA_CREATE;
    options.step = 65536;
    need(solera_log_open(place, "log", &log_options, &log) == 0, "log");
    need(solera_open(place, "file", &options, &file) == 0, "file");
    need(solera_open(place, "blocks", &options, &blocks) == 0, "blocks");
    need(solera_truncate(blocks, BLOCKS * BLOCK_WORDS * 8) == 0 && solera_sync_len(blocks) == 0, "length");
    acks->begun = 1;
    for (uint64_t number = 1; number < 12000; number++) {
        fill(words, BLOCK_WORDS, number);
        need(solera_log_append(log, words, WORDS * 8, NULL) == 0, "append to the log");
        acks->logged = number;
        need(solera_append(file, words, WORDS * 8, &ticket) == WORDS * 8, "append");
        need(solera_wait(file, ticket) == 0, "wait");
        acks->appended = number;
        off_t at = (off_t)(number % BLOCKS) * BLOCK_WORDS * 8;
        uint64_t *view = (uint64_t *)solera_view(blocks, at, BLOCK_WORDS * 8);
        need(view != NULL, "view");
        fill(view, BLOCK_WORDS, number);
        need(solera_persist(blocks, view, BLOCK_WORDS * 8) == 0, "persist");
        acks->overwritten = number;
    }
}

static void judge(solera_place *place, const struct acks *acks) {
    struct solera_log_options log_options = SOLERA_LOG_OPTIONS;
    solera_log *log;
    solera_file *file, *blocks;
    uint64_t words[BLOCK_WORDS], position = SOLERA_OLDEST, number = 0, piece = 0;
    ssize_t got;
    need(acks->begun, "nothing was done before the cut");
    log_options.readonly = 1;
    need(solera_log_open(place, "log", &log_options, &log) == 0, "log");
    while ((got = solera_log_read(log, &position, words, sizeof words)) > 0)
        need(got == WORDS * 8 && is_filled(words, WORDS, ++number), "a record");
    need(got == 0, "the log's end");
    if (number < acks->logged) {
        printf("explicit: %llu records are there, %llu were acknowledged, %llu appends\n", (unsigned long long)number,
               (unsigned long long)acks->logged, (unsigned long long)acks->appended);
        exit(1);
    }
    need(solera_open(place, "file", NULL, &file) == 0, "file");
    for (; piece < acks->appended; piece++)
        need(solera_pread(file, words, WORDS * 8, (off_t)piece * WORDS * 8) == WORDS * 8 &&
                 is_filled(words, WORDS, piece + 1),
             "an append is missing that was acknowledged");
    need(solera_open(place, "blocks", NULL, &blocks) == 0, "blocks");
    uint64_t last = acks->overwritten, first = last < BLOCKS ? 1 : last - BLOCKS + 1;
    for (uint64_t block = first; block <= last; block++) {
        need(solera_pread(blocks, words, sizeof words, (off_t)(block % BLOCKS) * BLOCK_WORDS * 8) ==
                 sizeof words, "a block");
        /* The one that comes next may have begun. */
        need(is_filled(words, BLOCK_WORDS, block) || block + BLOCKS == last + 1,
             "an overwrite is missing that was acknowledged");
    }
    printf("%llu records (%llu acknowledged), %llu appends, %llu overwrites\n", (unsigned long long)number,
           (unsigned long long)acks->logged, (unsigned long long)acks->appended, (unsigned long long)last);
}

int main(int argc, char **argv) {
    solera_place *place;
    const char *why;
    if (argc != 4)
        return 2;
    struct acks *acks = acks_at(argv[3]);
    need(solera_open_place(argv[2], 0, &place) == -1 && errno == EOPNOTSUPP, "class page is not taken unasked");
    need(solera_open_place(argv[2], SOLERA_PAGE, &place) == 0, "place");
    need(solera_place_class(place, &why) == SOLERA_CLASS_PAGE, "the class is page");
    if (strcmp(argv[1], "load") == 0)
        load(place, acks);
    else
        judge(place, acks);
    return 0;
}
