// Threads that take and give back large pieces of memory and flush all streams, while another forks again
// and again: each child finds the C library's locks free, and the library's. On standard error: the
// longest fork, in us. With a third argument, instead, how often what took how long (see `tell`), for
// crates/bench/scripts/forks.py. Usage: forks_beside DIRECTORY [FORKS [times]].
#include "say.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 8, PARTS = 16, BUCKETS = 64 * PARTS };
// What is timed. Of each, how long it took, and how long without the time in which the thread could have
// run and had no processor.
enum { FORK, MALLOC, FLUSH, FREE, KINDS };
static const char *const names[] = {"fork", "malloc", "flush", "free"};

static volatile int ends;
static int times;
static long worked[THREADS], counts[THREADS + 1][KINDS][2][BUCKETS];

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

// A clock of one thread: what the time was, and how long it had waited for a processor.
struct watch {
    int number, waits;
    long time, waited;
};

static long waited_ns(struct watch *watch) {
    char text[80];
    ssize_t length = pread(watch->waits, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = 0;
    char *second = strchr(text, ' ');
    return second ? atol(second) : 0;
}

static struct watch new_watch(int number) {
    return (struct watch){.number = number, .waits = times ? open("/proc/thread-self/schedstat", O_RDONLY) : -1};
}

static void start(struct watch *watch) {
    if (times)
        watch->waited = waited_ns(watch), watch->time = now_ns();
}

// A bucket has a sixteenth of a power of two.
static int bucket(long ns) {
    if (ns < PARTS)
        return ns < 0 ? 0 : ns;
    int power = 63 - __builtin_clzl(ns);
    return (power - 3) * PARTS + (ns >> (power - 4)) % PARTS;
}

// What was begun with `start`, or behind the last of these, has ended.
static void took(struct watch *watch, int kind) {
    if (!times)
        return;
    long time = now_ns() - watch->time, waited = waited_ns(watch) - watch->waited;
    counts[watch->number][kind][0][bucket(time)]++;
    counts[watch->number][kind][1][bucket(time - waited)]++;
    start(watch);
}

// A line for each kind and measure: its name, then bucket:count.
static void tell(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        for (int measure = 0; measure < 2; measure++) {
            fprintf(stderr, "%s%s", names[kind], measure ? "-awake" : "");
            for (int at = 0; at < BUCKETS; at++) {
                long all = 0;
                for (int thread = 0; thread <= THREADS; thread++)
                    all += counts[thread][kind][measure][at];
                if (all)
                    fprintf(stderr, " %d:%ld", at, all);
            }
            fprintf(stderr, "\n");
        }
    }
}

static void *works(void *argument) {
    long number = (long)argument;
    unsigned seed = number + 1;
    char name[20];
    snprintf(name, sizeof name, "stream-%ld", number);
    FILE *stream = fopen(name, "w+");
    struct watch watch = new_watch(number);
    for (; !ends; worked[number]++) {
        size_t size = (size_t)(1 + rand_r(&seed) % 64) << 20;
        start(&watch);
        char *piece = malloc(size);
        piece[0] = piece[size - 1] = 1;
        took(&watch, MALLOC);
        fprintf(stream, "%zu\n", size);
        fflush(NULL);
        took(&watch, FLUSH);
        free(piece);
        took(&watch, FREE);
        if (worked[number] % 100 == 99)
            rewind(stream), ftruncate(fileno(stream), 0);
    }
    fclose(stream);
    return NULL;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    int forks = argc > 2 ? atoi(argv[2]) : 300, failures = 0;
    times = argc > 3;
    long longest = 0, all = 0;
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, works, (void *)at);
    struct watch watch = new_watch(THREADS);
    for (int round = 0; round < forks; round++) {
        long begun = now_ns();
        start(&watch);
        pid_t pid = fork();
        if (pid == 0) {
            // What the child may do, and what the C library lets it do besides.
            free(malloc(2 << 20));
            char name[20];
            snprintf(name, sizeof name, "child-%d", round);
            int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
            int good = fd >= 0 && write(fd, "x", 1) == 1 && unlink(name) == 0;
            _exit(good ? 0 : 1);
        }
        took(&watch, FORK);
        long took_us = (now_ns() - begun) / 1000;
        longest = took_us > longest ? took_us : longest, all += took_us;
        int status = -1;
        failures += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    }
    ends = 1;
    int idle = 0;
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        idle += worked[at] == 0;
    }
    SAY(failures);
    SAY(forks);
    if (times)
        tell();
    else
        fprintf(stderr, "the longest of %d forks took %ld us, all %ld us; idle threads: %d\n", forks,
                longest, all, idle);
    return 0;
}
