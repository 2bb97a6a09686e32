// Two threads, each on a CPU of its own, make the same calls in turns; see tests/lines.rs.
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, ROUNDS = 8 };
#define MARK(name) __asm__ volatile("int3" : : "a"(name) : "memory")
#define MUST(call) \
    do { \
        if ((long)(call) < 0) err(1, "%s", #call); \
    } while (0)

static pthread_barrier_t turn;
static int both, cpus[2];

// Each round both threads have made the call before; the last round is followed.
#define CALL(name, ...) \
    for (int i = 0; i < ROUNDS; i++) \
        for (int who = 0; who < 2; who++) { \
            if (who == me) { \
                if (i == ROUNDS - 1) MARK(name); \
                __VA_ARGS__; \
                if (i == ROUNDS - 1) MARK(0); \
            } \
            pthread_barrier_wait(&turn); \
        }

// Inside CALL: what follows is another call's.
#define NEXT(name) \
    if (i == ROUNDS - 1) { \
        MARK(0); \
        MARK(name); \
    }

static void stay_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
}

static void *run(void *argument) {
    int me = *(int *)argument, fd = -1, same = -1;
    stay_on(cpus[me]);
    char *buffer = aligned_alloc(BLOCK, 64 * BLOCK);
    memset(buffer, 7, 64 * BLOCK);
    char dir[32], own[48], new[48], other[48];
    struct stat is;
    sprintf(dir, "dir%d", me);
    sprintf(own, "%s/own", dir);
    sprintf(new, "%s/new", dir);
    sprintf(other, "%s/other", dir);
    pthread_barrier_wait(&turn);
    // One after the other, so that neither finds what the other has just taken, and who gets which
    // chunk is no matter of chance.
    for (int who = 0; who < 2; who++) {
        if (who == me) {
            MUST(mkdir(dir, 0755));
            MUST(fd = open(own, O_RDWR | O_CREAT, 0644));
            MUST(same = open("same", O_RDONLY));
            for (int i = 0; i < 16; i++) MUST(write(fd, buffer, 64 * BLOCK));
            MUST(lseek(fd, 0, SEEK_SET));
        }
        pthread_barrier_wait(&turn);
    }
    CALL("read an own file", MUST(read(fd, buffer, BLOCK)));
    CALL("pread an own file", MUST(pread(fd, buffer, BLOCK, (i + 20) * BLOCK)));
    CALL("pread the same file", MUST(pread(same, buffer, BLOCK, i * BLOCK)));
    CALL("pread through the same descriptor", MUST(pread(both, buffer, BLOCK, i * BLOCK)));
    CALL("stat an own file", MUST(stat(own, &is)));
    CALL("stat the same file", MUST(stat("same", &is)));
    CALL("fstat of the same descriptor", MUST(fstat(both, &is)));
    CALL("overwrite an own file", MUST(pwrite(fd, buffer, BLOCK, i * BLOCK)));
    CALL("overwrite 24 B of an own file", MUST(pwrite(fd, buffer, 24, i * 100)));
    CALL("overwrite 5000 B of an own file", MUST(pwrite(fd, buffer, 5000, i * BLOCK + 100)));
    CALL("fdatasync an own file", MUST(fdatasync(fd)));
    CALL("append 64 B to an own file", MUST(pwrite(fd, buffer, 64, 16 * 64 * BLOCK + i * 64)));
    MUST(pwrite(fd, buffer, BLOCK - 64 * ROUNDS, 16 * 64 * BLOCK + 64 * ROUNDS));
    CALL("append 4 KiB to an own file",
         MUST(pwrite(fd, buffer, BLOCK, (16 * 64 + 1 + i) * BLOCK)));
    CALL("create in an own directory", int made = open(new, O_RDWR | O_CREAT | O_EXCL, 0644);
         MUST(made); NEXT("close what was created"); MUST(close(made));
         NEXT("rename in an own directory"); MUST(rename(new, other));
         NEXT("unlink in an own directory"); MUST(unlink(other)));
    CALL("mkdir in an own directory", MUST(mkdir(new, 0755));
         NEXT("rmdir in an own directory"); MUST(rmdir(new)));
    return 0;
}

int main(int count, char **words) {
    cpu_set_t all;
    MUST(sched_getaffinity(0, sizeof all, &all));
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) cpus[found++] = cpus[1] = cpu;
    stay_on(cpus[0]);
    MUST(chdir(words[1]));
    both = open("same", O_RDWR | O_CREAT, 0644);
    MUST(both);
    char *buffer = calloc(16, BLOCK);
    for (int i = 0; i < 4; i++) MUST(write(both, buffer, 16 * BLOCK));
    pthread_barrier_init(&turn, 0, 2);
    pthread_t threads[2];
    int who[2] = {0, 1};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, run, &who[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
