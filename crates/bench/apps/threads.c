// Private files, appended to and read at random by 1 and by 2 threads: threads DIRECTORY COUNT
// Tells nanoseconds per call and thread, the threads' mean.
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096 };
static int count;
static pthread_barrier_t start;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

struct work {
    int number, writes;
    double took;
};

static void *run(void *argument) {
    struct work *work = argument;
    char name[20], *buffer = aligned_alloc(BLOCK, BLOCK);
    memset(buffer, 7, BLOCK);
    sprintf(name, "file%d", work->number);
    if (work->writes) unlink(name);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) err(1, "%s", name);
    unsigned long seed = 88172645463325252UL + work->number;
    pthread_barrier_wait(&start);
    double begun = now();
    for (int i = 0; i < count; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        long done = work->writes ? write(fd, buffer, BLOCK)
                                 : pread(fd, buffer, BLOCK, (long)(seed % count) * BLOCK);
        if (done != BLOCK) err(1, "%s: %ld", name, done);
    }
    work->took = (now() - begun) / count;
    close(fd);
    return 0;
}

static void measure(const char *name, int threads, int writes) {
    pthread_t thread[2];
    struct work work[2];
    double sum = 0;
    pthread_barrier_init(&start, 0, threads);
    for (int i = 0; i < threads; i++) {
        work[i] = (struct work){i, writes, 0};
        pthread_create(&thread[i], 0, run, &work[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], 0);
        sum += work[i].took;
    }
    printf("%s, %d thread%s\t%.1f\n", name, threads, threads > 1 ? "s" : "", sum / threads);
}

int main(int argc, char **argv) {
    if (argc != 3 || chdir(argv[1])) return 2;
    count = atoi(argv[2]);
    for (int threads = 1; threads <= 2; threads++) measure("append 4K", threads, 1);
    for (int threads = 1; threads <= 2; threads++) measure("pread 4K", threads, 0);
    return 0;
}
