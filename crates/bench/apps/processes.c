// What processes do beside each other, and an fsync behind each overwrite: processes DIRECTORY COUNT
// Tells nanoseconds of a step of one process, the mean of all that took part. And, as
// `processes --starts COUNT [NAME=VALUE...] PROGRAM`, nanoseconds from the start of a program to its
// end, with these variables in its environment.
#include <err.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, LINE = 100, FILE_BYTES = 512 << 20 };
static int count;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

// Shared by all processes of a measurement.
static struct {
    int ready, done;
    double took[2];
} *shared;

// A file made, renamed and removed in a directory: three calls on names, and a close.
static void names(const char *directory, int number) {
    char from[100], to[100];
    for (int i = 0; i < count; i++) {
        snprintf(from, sizeof from, "%s/a%d-%d", directory, number, i);
        snprintf(to, sizeof to, "%s/b%d-%d", directory, number, i);
        int fd = open(from, O_RDWR | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || close(fd) || rename(from, to) || unlink(to)) err(1, "%s", from);
    }
}

static void own_directory(int number) {
    char name[20];
    snprintf(name, sizeof name, "own%d", number);
    mkdir(name, 0755);
    names(name, number);
}

static void one_directory(int number) {
    mkdir("one", 0755);
    names("one", number);
}

static void one_log(int number) {
    char line[LINE];
    memset(line, 'a' + number, LINE);
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int i = 0; i < count; i++)
        if (write(fd, line, LINE) != LINE) err(1, "log");
    close(fd);
}

// Process 0 reads at random what process 1 overwrites.
static void reads(int number) {
    static char block[BLOCK];
    int fd = open("read", O_RDWR | O_CREAT, 0644);
    unsigned long seed = 88172645463325252UL + number;
    for (int i = 0; number == 0 ? i < count : !__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE); i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        long at = (long)(seed % 16384) * BLOCK;
        long moved = number ? pwrite(fd, block, BLOCK, at) : pread(fd, block, BLOCK, at);
        if (moved != BLOCK) err(1, "read");
    }
    if (number == 0) __atomic_store_n(&shared->done, 1, __ATOMIC_RELEASE);
    close(fd);
}

static void whole(const char *name, long bytes) {
    static char block[1 << 20];
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) err(1, "%s", name);
    for (long at = stat.st_size; at < bytes; at += sizeof block)
        if (write(fd, block, sizeof block) < 0) err(1, "%s", name);
    close(fd);
}

// `tells`: of how many processes the time counts.
static void measure(const char *name, int processes, int tells, void (*run)(int)) {
    memset(shared, 0, sizeof *shared);
    for (int number = 0; number < processes; number++) {
        pid_t pid = fork();
        if (pid < 0) err(1, "fork");
        if (pid) continue;
        __atomic_fetch_add(&shared->ready, 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < processes);
        double begun = now();
        run(number);
        shared->took[number] = (now() - begun) / count;
        _exit(0);
    }
    for (int number = 0, status; number < processes; number++)
        if (wait(&status) < 0 || status) errx(1, "%s: a process failed", name);
    double sum = 0;
    for (int number = 0; number < tells; number++) sum += shared->took[number];
    printf("%s\t%.1f\n", name, sum / tells);
}

static void overwrites(const char *name, int writes, int syncs) {
    static char block[BLOCK];
    int fd = open("large", O_RDWR);
    unsigned long seed = 88172645463325252UL;
    double begun = now();
    for (int i = 0; i < count; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        if (writes && pwrite(fd, block, BLOCK, (long)(seed % (FILE_BYTES / BLOCK)) * BLOCK) != BLOCK)
            err(1, "large");
        if (syncs && fsync(fd)) err(1, "large");
    }
    printf("%s\t%.1f\n", name, (now() - begun) / count);
    close(fd);
}

static int starts(int argc, char **argv) {
    double begun = now();
    char *program[] = {argv[argc - 1], 0};
    argv[argc - 1] = 0;
    for (int i = 0; i < count; i++) {
        pid_t pid;
        int status = posix_spawn(&pid, program[0], 0, 0, program, argv);
        if (status || waitpid(pid, &status, 0) < 0 || status) errx(1, "%s: %d", program[0], status);
    }
    printf("%.1f\n", (now() - begun) / count);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "--starts")) {
        count = atoi(argv[2]);
        return starts(argc - 3, argv + 3);
    }
    if (argc != 3 || chdir(argv[1])) return 2;
    count = atoi(argv[2]);
    setvbuf(stdout, 0, _IOLBF, 0);
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    measure("names in own directories, 1 process", 1, 1, own_directory);
    measure("names in own directories, 2 processes", 2, 2, own_directory);
    measure("names in one directory, 1 process", 1, 1, one_directory);
    measure("names in one directory, 2 processes", 2, 2, one_directory);
    measure("O_APPEND 100 B to one log, 1 process", 1, 1, one_log);
    measure("O_APPEND 100 B to one log, 2 processes", 2, 2, one_log);
    whole("read", 64 << 20);
    measure("pread 4K, alone", 1, 1, reads);
    measure("pread 4K beside a writer", 2, 1, reads);
    whole("large", FILE_BYTES);
    overwrites("overwrite 4K of 512M", 1, 0);
    overwrites("overwrite 4K of 512M, fsync", 1, 1);
    overwrites("fsync of nothing", 0, 1);
    return 0;
}
