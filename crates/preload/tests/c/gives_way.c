// A thread holds a lock of the C library's that `fork` takes (the list of streams, in the midst of
// `fflush(NULL)`) and uses the volume, while another thread forks. Its changes are in the child.
#include "say.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

enum { ROUNDS = 10, OPENED = 8 };

static sem_t in_callback;
static int numbers[OPENED], failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            printf("failed: %s\n", #condition), failures++; \
    } while (0)

static ssize_t write_out(void *cookie, const char *bytes, size_t len) {
    (void)bytes;
    int round = *(int *)cookie;
    char name[32];
    sem_post(&in_callback);
    // The other thread is in fork by now, or will be: the result is the same.
    usleep(20000);
    for (int at = 0; at < OPENED; at++) {
        snprintf(name, sizeof name, "made-%d-%d", round, at);
        numbers[at] = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (write(numbers[at], name, sizeof name) != sizeof name)
            failures++;
    }
    // What the parent has closed the child must not have either.
    for (int at = 1; at < OPENED; at += 2)
        close(numbers[at]);
    if (mkdir(name, 0700) == 0 || chdir(round % 2 ? ".." : "even") != 0)
        failures++;
    return len;
}

static void *flush(void *cookie) {
    cookie_io_functions_t calls = {.write = write_out};
    FILE *stream = fopencookie(cookie, "w", calls);
    fputs("text", stream);
    fflush(NULL);
    fclose(stream);
    return NULL;
}

static int differ(sigset_t *one, sigset_t *other) {
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(one, signal) != sigismember(other, signal))
            return signal;
    return 0;
}

static int child(int round) {
    for (int at = 0; at < OPENED; at++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "made-%d-%d", round, at);
        ssize_t got = pread(numbers[at], text, sizeof text, 0);
        if (at % 2 ? got != -1 || errno != EBADF : got != sizeof text || strcmp(text, name))
            return 10 + at;
    }
    char path[PATH_MAX];
    int here = getcwd(path, sizeof path) && !strcmp(strrchr(path, '/'), "/even");
    int fd = open("by-child", O_RDWR | O_CREAT, 0600);
    if (here == round % 2 || fd < 0 || write(fd, "x", 1) != 1 || unlink("by-child") != 0)
        return 1;
    return 0;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    CHECK(mkdir("even", 0700) == 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    sem_init(&in_callback, 0, 0);
    // A thread that blocks everything gives way too, and has its mask afterwards.
    sigset_t all, before, after;
    sigfillset(&all);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        if (round == ROUNDS / 2)
            pthread_sigmask(SIG_BLOCK, &all, NULL);
        pthread_sigmask(SIG_BLOCK, NULL, &before);
        pthread_create(&thread, NULL, flush, &round);
        sem_wait(&in_callback);
        pid_t pid = fork();
        if (pid == 0) {
            pthread_sigmask(SIG_BLOCK, NULL, &after);
            _exit(differ(&before, &after) ? 2 : child(round));
        }
        pthread_sigmask(SIG_BLOCK, NULL, &after);
        CHECK(!differ(&before, &after));
        int status = -1;
        CHECK(waitpid(pid, &status, 0) == pid);
        SAY(WEXITSTATUS(status));
        SAY(WIFEXITED(status));
        pthread_join(thread, NULL);
        for (int at = 0; at < OPENED; at += 2)
            CHECK(close(numbers[at]) == 0);
    }
    SAY(failures);
    return 0;
}
