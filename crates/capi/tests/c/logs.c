/* Logs: usage logs DIRECTORY. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
/* Of each thread; an emulated machine takes fewer. */
#ifndef RECORDS
#define RECORDS 2000
#endif

static solera_log *shared;

static void *thread(void *number) {
    uint64_t position;
    char record[40];
    for (int at = 0; at < RECORDS; at++) {
        int length = snprintf(record, sizeof record, "%d %d", *(int *)number, at);
        CHECK(solera_log_put(shared, record, length, &position) == 0);
        if (at % 8 == 7)
            CHECK(solera_log_commit(shared, position) == 0);
        CHECK(solera_log_append(shared, record, length, NULL) == 0);
    }
    return NULL;
}

static void many_threads(solera_place *place) {
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    pthread_t threads[THREADS];
    int numbers[THREADS], seen[THREADS] = {0};
    options.create = 1;
    options.capacity = 1 << 20;
    CHECK(solera_log_open(place, "threads", &options, &shared) == 0);
    for (int at = 0; at < THREADS; at++) {
        numbers[at] = at;
        pthread_create(&threads[at], NULL, thread, &numbers[at]);
    }
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    uint64_t position = SOLERA_OLDEST;
    char record[40];
    ssize_t length;
    while ((length = solera_log_read(shared, &position, record, sizeof record - 1)) > 0) {
        int number, at;
        record[length] = 0;
        CHECK(sscanf(record, "%d %d", &number, &at) == 2 && at == seen[number] / 2);
        seen[number]++;
    }
    CHECK(length == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(seen[at] == 2 * RECORDS);
    CHECK(solera_log_close(shared) == 0);
}

/* What is cut is told: no append is lost. */
static void cut(solera_place *place, const char *directory) {
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    solera_log *log, *reader;
    uint64_t position = SOLERA_OLDEST;
    char back[16];
    options.create = 1;
    options.capacity = 65536;
    CHECK(solera_log_open(place, "cut", &options, &log) == 0);
    options.create = 0;
    options.readonly = 1;
    CHECK(solera_log_open(place, "cut", &options, &reader) == 0);
    CHECK(solera_log_append(log, "one", 3, NULL) == 0);
    CHECK(solera_log_read(reader, &position, back, sizeof back) == 3);
    beside(directory, "truncate -s 0 cut");
    FAILS(solera_log_append(log, "two", 3, NULL), EIO);
    FAILS(solera_log_append(log, "three", 5, NULL), EIO);
    FAILS(solera_log_read(reader, &position, back, sizeof back), EIO);
    CHECK(solera_log_close(log) == 0 && solera_log_close(reader) == 0);
    beside(directory, "rm cut");
}

/* A record is damaged that was committed: it is told, and nothing behind it is lost by an append. */
static void damaged(solera_place *place, const char *directory) {
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    solera_log *log;
    uint64_t first, position = SOLERA_OLDEST;
    char does[256], back[16];
    options.create = 1;
    options.capacity = 65536;
    CHECK(solera_log_open(place, "damaged", &options, &log) == 0);
    CHECK(solera_log_append(log, "one", 3, &first) == 0);
    CHECK(solera_log_append(log, "two", 3, NULL) == 0 && solera_log_close(log) == 0);
    snprintf(does, sizeof does, "printf x | dd of=damaged bs=1 seek=%ld conv=notrunc status=none",
             4096 + (long)first + 64 + 17);
    beside(directory, does);
    FAILS(solera_log_open(place, "damaged", &options, &log), EUCLEAN);
    options.create = 0;
    options.readonly = 1;
    CHECK(solera_log_open(place, "damaged", &options, &log) == 0);
    CHECK(solera_log_read(log, &position, back, sizeof back) == 3 && memcmp(back, "one", 3) == 0);
    FAILS(solera_log_read(log, &position, back, sizeof back), EUCLEAN);
    CHECK(solera_log_close(log) == 0);
}

static void *opener(void *place) {
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    solera_log *log = NULL;
    options.create = 1;
    options.capacity = 65536;
    int made = solera_log_open((solera_place *)place, "raced", &options, &log);
    CHECK(made == 0 || errno == EBUSY);
    return made == 0 ? log : NULL;
}

/* Threads that make one log: one of them has it. */
static void many_openers(solera_place *place) {
    pthread_t threads[THREADS];
    void *logs[THREADS];
    int open = 0;
    for (int at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, opener, place);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], &logs[at]);
    for (int at = 0; at < THREADS; at++) {
        open += logs[at] != NULL;
        CHECK(!logs[at] || solera_log_close((solera_log *)logs[at]) == 0);
    }
    CHECK(open == 1);
}

int main(int argc, char **argv) {
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    solera_place *place;
    solera_log *log, *other;
    uint64_t first, second, third, position;
    const void *record;
    size_t length;
    char back[2000];
    (void)argc;
    CHECK(solera_open_place(argv[1], SOLERA_PAGE, &place) == 0);
    FAILS(solera_log_open(place, "log", NULL, &log), ENOENT);
    options.create = 1;
    options.capacity = 4095;
    FAILS(solera_log_open(place, "log", &options, &log), EINVAL);
    options.capacity = 4096;
    CHECK(solera_log_open(place, "log", &options, &log) == 0);
    FAILS(solera_log_open(place, "log", &options, &other), EBUSY);
    CHECK(solera_log_append(log, "one", 3, &first) == 0);
    struct iovec pieces[2] = {{(void *)"tw", 2}, {(void *)"o", 1}};
    CHECK(solera_log_appendv(log, pieces, 2, &second) == 0 && second > first);
    CHECK(solera_log_put(log, "three", 5, &third) == 0);

    /* A reader sees what is committed. */
    options.readonly = 1;
    FAILS(solera_log_open(place, "log", &options, &other), EINVAL);
    options.create = 0;
    CHECK(solera_log_open(place, "log", &options, &other) == 0);
    position = SOLERA_OLDEST;
    CHECK(solera_log_read(other, &position, back, sizeof back) == 3 && memcmp(back, "one", 3) == 0);
    CHECK(solera_log_read(other, &position, back, 2) == -1 && errno == EMSGSIZE);
    CHECK(solera_log_read(other, &position, back, 3) == 3 && memcmp(back, "two", 3) == 0);
    CHECK(solera_log_read(other, &position, back, sizeof back) == 0);
    CHECK(solera_log_commit(log, third) == 0);
    CHECK(solera_log_read(other, &position, back, sizeof back) == 5 && memcmp(back, "three", 5) == 0);
    FAILS(solera_log_append(other, "x", 1, NULL), EBADF);
    FAILS(solera_log_put(other, "x", 1, NULL), EBADF);
    FAILS(solera_log_commit(other, first), EBADF);
    FAILS(solera_log_trim(other, second), EBADF);
    position = first;
    FAILS(solera_log_next(other, &position, &record, &length), EPERM);
    FAILS(solera_log_read(other, &position, (void *)4096, 8), EFAULT);

    /* In place, and trimmed. */
    position = SOLERA_OLDEST;
    CHECK(solera_log_next(log, &position, &record, &length) == 1 && length == 3);
    CHECK(memcmp(record, "one", 3) == 0 && position == second);
    CHECK(solera_log_next(log, &position, &record, &length) == 1 && memcmp(record, "two", 3) == 0);
    CHECK(solera_log_next(log, &position, &record, &length) == 1 && length == 5);
    CHECK(solera_log_next(log, &position, &record, &length) == 0);
    CHECK(solera_log_trim(log, second) == 0);
    position = first;
    FAILS(solera_log_read(log, &position, back, sizeof back), ESTALE);
    CHECK(position == second);
    position = first;
    FAILS(solera_log_read(other, &position, back, sizeof back), ESTALE);
    CHECK(position == second && solera_log_read(other, &position, back, 3) == 3);

    /* What makes no sense, and what finds no room. */
    FAILS(solera_log_append(log, "", 0, NULL), EINVAL);
    FAILS(solera_log_append(log, NULL, 1, NULL), EINVAL);
    FAILS(solera_log_append(log, back, 1025, NULL), EMSGSIZE);
    FAILS(solera_log_append(log, back, (size_t)1 << 63, NULL), EINVAL);
    FAILS(solera_log_append(log, (void *)4096, 8, NULL), EFAULT);
    FAILS(solera_log_appendv(log, NULL, 1, NULL), EINVAL);
    FAILS(solera_log_appendv(log, (struct iovec *)4096, 1, NULL), EFAULT);
    FAILS(solera_log_appendv(log, pieces, -1, NULL), EINVAL);
    FAILS(solera_log_commit(log, 1 << 30), EINVAL);
    FAILS(solera_log_trim(log, first), EINVAL);
    FAILS(solera_log_trim(log, second + 1), EINVAL);
    FAILS(solera_log_append(NULL, "x", 1, NULL), EINVAL);
    FAILS(solera_log_append((solera_log *)place, "x", 1, NULL), EINVAL);
    FAILS(solera_log_read(log, NULL, back, 1), EINVAL);
    FAILS(solera_log_open(place, "log", &options, NULL), EINVAL);
    memset(back, 7, sizeof back);
    while (solera_log_append(log, back, 900, NULL) == 0)
        ;
    FAILS(solera_log_append(log, back, 900, NULL), ENOSPC);
    CHECK(solera_log_append(log, "small", 5, &first) == 0);
    position = first;
    CHECK(solera_log_read(log, &position, back, sizeof back) == 5 && memcmp(back, "small", 5) == 0);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        FAILS(solera_log_append(log, "child", 5, NULL), ESTALE);
        FAILS(solera_log_read(other, &position, back, sizeof back), ESTALE);
        fflush(stdout);
        _exit(failures);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(solera_log_close(log) == 0 && solera_log_close(other) == 0);
    FAILS(solera_log_close(log), EINVAL);

    /* No log, and a damaged one. */
    beside(argv[1], "truncate -s 1000 log");
    options.readonly = 0;
    FAILS(solera_log_open(place, "log", &options, &log), EUCLEAN);

    FAILS(solera_log_open(place, ".", &options, &log), EISDIR);
    options.create = 1;
    options.capacity = UINT64_MAX;
    FAILS(solera_log_open(place, "none", &options, &log), EINVAL);

    damaged(place, argv[1]);
    cut(place, argv[1]);
    many_openers(place);
    many_threads(place);
    CHECK(solera_close_place(place) == 0);
    return failures != 0;
}
