// Threads that take and give back large pieces of memory and flush all streams, while another forks again
// and again: each child finds the C library's locks free, and the library's. On standard error: the
// longest fork, in us. Usage: forks_beside DIRECTORY [FORKS].
#include "say.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 8 };

static volatile int ends;
static long worked[THREADS];

static void *works(void *argument) {
    long number = (long)argument;
    unsigned seed = number + 1;
    char name[20];
    snprintf(name, sizeof name, "stream-%ld", number);
    FILE *stream = fopen(name, "w+");
    for (; !ends; worked[number]++) {
        size_t size = (size_t)(1 + rand_r(&seed) % 64) << 20;
        char *piece = malloc(size);
        piece[0] = piece[size - 1] = 1;
        fprintf(stream, "%zu\n", size);
        fflush(NULL);
        free(piece);
        if (worked[number] % 100 == 99)
            rewind(stream), ftruncate(fileno(stream), 0);
    }
    fclose(stream);
    return NULL;
}

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    int forks = argc > 2 ? atoi(argv[2]) : 300, failures = 0;
    long longest = 0, all = 0;
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, works, (void *)at);
    for (int round = 0; round < forks; round++) {
        long begun = now_us();
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
        long took = now_us() - begun;
        longest = took > longest ? took : longest, all += took;
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
    fprintf(stderr, "the longest of %d forks took %ld us, all %ld us; idle threads: %d\n", forks,
            longest, all, idle);
    return 0;
}
