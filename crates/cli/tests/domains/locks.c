// Locks of several processes in a small mapped file, while another file, which is larger than its
// node, is stored to: so all pages leave that may.
// `robust FILE BIG MIB`: a process that has a robust mutex is killed, for the next one to be told.
// `wait FILE BIG MIB`: processes that wait are stopped and go on: the kernel looks at the word again.
// `rounds FILE BIG MIB TIMES`: two processes in turns, by a mutex and a condition of each page; they
// are stopped now and then.
// `many FOLDER BIG MIB COUNT`: a semaphore in each of many files; all are waited for and posted.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, PATIENCE = 5 };

// What is in a page of the small file.
struct shared {
    pthread_mutex_t robust, mutex;
    pthread_cond_t condition;
    sem_t semaphore;
    int turn;
};

static void fail(const char *what, int error) {
    fprintf(stderr, "%s: %s\n", what, strerror(error));
    _exit(1);
}

static void *map(const char *path, size_t bytes) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes)) fail(path, errno);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) fail("mmap", errno);
    close(file);
    return at;
}

static struct shared *at(char *memory, size_t page) {
    return (struct shared *)(memory + page % PAGES * PAGE);
}

static char *map_locks(const char *path) {
    char *memory = map(path, PAGES * PAGE);
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    for (size_t page = 0; page < PAGES; page++) {
        struct shared *shared = at(memory, page);
        pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_STALLED);
        pthread_mutex_init(&shared->mutex, &mutex);
        pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&shared->robust, &mutex);
        pthread_cond_init(&shared->condition, &condition);
        sem_init(&shared->semaphore, 1, 0);
        shared->turn = 0;
    }
    return memory;
}

// Stores to all pages of the large file, some times.
static void stream(char *big, size_t mib, int times) {
    for (int time = 0; time < times; time++) {
        for (size_t page = 0; page < mib << 8; page++) *(uint64_t *)(big + page * PAGE) = page + 1;
    }
}

static struct timespec soon(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    return until;
}

static void end(pid_t child, int wanted) {
    int status;
    if (waitpid(child, &status, 0) != child) fail("waitpid", errno);
    if (status != wanted) {
        fprintf(stderr, "a process ended by %#x, not %#x\n", status, wanted);
        _exit(1);
    }
}

static void robust(char *locks, char *big, size_t mib) {
    int ends[2];
    char byte;
    if (pipe(ends)) fail("pipe", errno);
    pid_t child = fork();
    if (child == 0) {
        for (size_t page = 0; page < PAGES; page++) {
            int error = pthread_mutex_lock(&at(locks, page)->robust);
            if (error) fail("the first lock", error);
        }
        if (write(ends[1], "l", 1) != 1) fail("write", errno);
        for (;;) pause();
    }
    if (read(ends[0], &byte, 1) != 1) fail("read", errno);
    stream(big, mib, 3);
    kill(child, SIGKILL);
    end(child, SIGKILL);
    for (size_t page = 0; page < PAGES; page++) {
        struct timespec until = soon();
        int error = pthread_mutex_timedlock(&at(locks, page)->robust, &until);
        if (error != EOWNERDEAD) fail("a dead owner's lock", error);
        error = pthread_mutex_consistent(&at(locks, page)->robust);
        if (error) fail("making it consistent", error);
        pthread_mutex_unlock(&at(locks, page)->robust);
    }
    puts("locks of the dead are given back");
}

// Each in a page of its own: a semaphore, a condition, a mutex.
static void wait_at(char *locks, int which) {
    struct shared *shared = at(locks, (size_t)which);
    if (which == 0) {
        while (sem_wait(&shared->semaphore)) {
            if (errno != EINTR) fail("sem_wait", errno);
        }
    } else {
        int error = pthread_mutex_lock(&shared->mutex);
        while (which == 1 && !error && !shared->turn) {
            error = pthread_cond_wait(&shared->condition, &shared->mutex);
        }
        if (error) fail("waiting", error);
        pthread_mutex_unlock(&shared->mutex);
    }
    _exit(0);
}

static void waits(char *locks, char *big, size_t mib) {
    pid_t waiting[3];
    pthread_mutex_lock(&at(locks, 2)->mutex);
    for (int which = 0; which < 3; which++) {
        waiting[which] = fork();
        if (waiting[which] == 0) wait_at(locks, which);
    }
    sleep(1);
    for (int round = 0; round < 3; round++) {
        stream(big, mib, 2);
        for (int which = 0; which < 3; which++) {
            int status;
            kill(waiting[which], SIGSTOP);
            if (waitpid(waiting[which], &status, WUNTRACED) < 0 || !WIFSTOPPED(status)) {
                fail("what waits has ended", 0);
            }
            kill(waiting[which], SIGCONT);
        }
    }
    sem_post(&at(locks, 0)->semaphore);
    pthread_mutex_lock(&at(locks, 1)->mutex);
    at(locks, 1)->turn = 1;
    pthread_cond_broadcast(&at(locks, 1)->condition);
    pthread_mutex_unlock(&at(locks, 1)->mutex);
    pthread_mutex_unlock(&at(locks, 2)->mutex);
    for (int which = 0; which < 3; which++) end(waiting[which], 0);
    puts("all have waited to the end");
}

static void take_turns(char *locks, int who, int times) {
    for (int round = 0; round < times; round++) {
        struct shared *shared = at(locks, (size_t)round);
        struct timespec until = soon();
        int error = pthread_mutex_lock(&shared->mutex);
        while (!error && shared->turn % 2 != who) {
            error = pthread_cond_timedwait(&shared->condition, &shared->mutex, &until);
        }
        if (error) fail("a turn", error);
        shared->turn++;
        pthread_cond_signal(&shared->condition);
        pthread_mutex_unlock(&shared->mutex);
    }
    _exit(0);
}

// Both are stopped again and again: a wait goes on with a page that would have left.
static void rounds(char *locks, char *big, size_t mib, int times) {
    pid_t players[2], streaming = fork();
    for (int who = 0; who < 2 && streaming; who++) {
        players[who] = fork();
        if (players[who] == 0) take_turns(locks, who, times);
    }
    if (streaming == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (streaming == 0) stream(big, mib, 1);
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)players[0], &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !ended.si_pid) {
        for (int who = 0; who < 2; who++) kill(players[who], SIGSTOP);
        usleep(30000);
        for (int who = 0; who < 2; who++) kill(players[who], SIGCONT);
        usleep(10000);
    }
    for (int who = 0; who < 2; who++) end(players[who], 0);
    kill(streaming, SIGKILL);
    end(streaming, SIGKILL);
    int turns = 0;
    for (size_t page = 0; page < PAGES; page++) turns += at(locks, page)->turn;
    printf("%d of %d turns\n", turns, 2 * times);
}

static void many(const char *folder, char *big, size_t mib, int count) {
    struct shared **all = calloc((size_t)count, sizeof *all);
    char path[4096];
    for (int file = 0; file < count; file++) {
        snprintf(path, sizeof path, "%s/%d", folder, file);
        all[file] = map(path, PAGE);
        sem_init(&all[file]->semaphore, 1, 0);
    }
    pid_t child = fork();
    if (child == 0) {
        for (int file = 0; file < count; file++) {
            while (sem_wait(&all[file]->semaphore)) {
                if (errno != EINTR) fail("sem_wait", errno);
            }
        }
        _exit(0);
    }
    for (int file = 0; file < count; file++) {
        if (file % (count / 8) == 0) {
            stream(big, mib, 1);
            kill(child, SIGSTOP);
            kill(child, SIGCONT);
        }
        sem_post(&all[file]->semaphore);
    }
    end(child, 0);
    for (int file = 0; file < count; file += 2) munmap(all[file], PAGE);
    stream(big, mib, 1);
    printf("%d semaphores\n", count);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    size_t mib = strtoul(argv[4], NULL, 10);
    char *big = map(argv[3], mib << 20);
    int times = argc > 5 ? atoi(argv[5]) : 0;
    if (strcmp(argv[1], "many") == 0) {
        many(argv[2], big, mib, times);
        return 0;
    }
    char *locks = map_locks(argv[2]);
    if (strcmp(argv[1], "robust") == 0) {
        robust(locks, big, mib);
    } else if (strcmp(argv[1], "wait") == 0) {
        waits(locks, big, mib);
    } else if (strcmp(argv[1], "rounds") == 0) {
        rounds(locks, big, mib, times);
    } else {
        return 2;
    }
    return 0;
}
