// Threads that fork, and threads that have another program executed, all at once: each child is
// served, and ends as it wants.
#include "say.h"
#include <pthread.h>
#include <spawn.h>

enum { ROUNDS = 5, FORKS = 100, SPAWNS = 50, THREADS = 4 };

static int wrong;

static void ended(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void *forks(void *nothing) {
    for (int each = 0; each < FORKS; each++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(access("there", F_OK) != 0);
        ended(pid);
    }
    return nothing;
}

static void *spawns(void *nothing) {
    char *const arguments[] = {"true", NULL};
    for (int each = 0; each < SPAWNS; each++) {
        pid_t pid = -1;
        posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ);
        ended(pid);
    }
    return nothing;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("there", "x");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int at = 0; at < THREADS; at++)
            pthread_create(&threads[at], NULL, at % 2 ? forks : spawns, NULL);
        for (int at = 0; at < THREADS; at++)
            pthread_join(threads[at], NULL);
    }
    SAY(wrong);
    return 0;
}
