// Every way in which a process can end, in the middle of what its threads do: each ends as the
// kernel's, never hangs, and leaves what had returned.
#include "say.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static const char *name;
static atomic_int ready;

static void *busy(void *argument) {
    char path[64], block[4096];
    memset(block, 'b', sizeof block);
    for (int round = 0;; round++) {
        snprintf(path, sizeof path, "busy-%s-%ld", name, (long)argument);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        for (int at = 0; at < 8; at++)
            write(fd, block, sizeof block);
        flock(fd, LOCK_EX);
        close(fd);
        FILE *stream = fopen(path, "r");
        if (stream) {
            fgets(block, sizeof block, stream);
            fclose(stream);
        }
        unlink(path);
        ready++;
    }
    return NULL;
}

static void *waiting(void *argument) {
    int fd = open("contended", O_RDWR | O_CREAT, 0644);
    flock(fd, LOCK_EX);
    return NULL;
}

static void *ends(void *argument) {
    if (strcmp(argument, "thread _exit") == 0)
        _exit(4);
    exit(5);
}

static void at_exit(void) {
    int fd = open("at-exit", O_RDWR | O_CREAT | O_APPEND, 0644);
    write(fd, name, 1);
    close(fd);
}

static void at_quick_exit_too(void) { at_exit(); }

__attribute__((destructor)) static void destructor(void) {
    if (name)
        at_exit();
}

static int ending(void) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atexit(at_exit);
    at_quick_exit(at_quick_exit_too);
    pthread_create(&thread, &attr, waiting, NULL);
    for (long at = 0; at < 3; at++)
        pthread_create(&thread, &attr, busy, (void *)at);
    while (ready < 3)
        usleep(100);
    FILE *stream = fopen(name, "w");
    fputs("buffered", stream);
    alarm(20);
    if (strcmp(name, "return") == 0)
        return 1;
    if (strcmp(name, "exit") == 0)
        exit(2);
    if (strcmp(name, "_exit") == 0)
        _exit(3);
    if (strncmp(name, "thread", 6) == 0) {
        pthread_create(&thread, NULL, ends, (void *)name);
        pause();
    }
    if (strcmp(name, "quick_exit") == 0)
        quick_exit(6);
    if (strcmp(name, "abort") == 0)
        abort();
    if (strcmp(name, "raw exit") == 0)
        syscall(SYS_exit_group, 7);
    if (strcmp(name, "killed") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(name, "main thread") == 0) {
        pthread_create(&thread, NULL, ends, "exit");
        pthread_exit(NULL);
    }
    return 99;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    const char *ways[] = {"return", "exit", "_exit", "thread _exit", "thread exit", "quick_exit",
                          "abort", "raw exit", "killed", "main thread"};
    int contended = open("contended", O_RDWR | O_CREAT, 0644);
    SAY(flock(contended, LOCK_EX));
    for (int way = 0; way < 10; way++) {
        int status;
        unlink("at-exit");
        pid_t pid = fork();
        if (pid == 0) {
            name = ways[way];
            return ending();
        }
        waitpid(pid, &status, 0);
        SAY_TEXT(ways[way]);
        SAY(WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status));
        SHOW("at-exit");
        SHOW(ways[way]);
    }
    // Nothing of them is locked any more, and the volume works.
    for (int way = 0; way < 10; way++)
        for (int at = 0; at < 3; at++) {
            char path[64];
            snprintf(path, sizeof path, "busy-%s-%d", ways[way], at);
            int fd = open(path, O_RDWR | O_CREAT, 0644);
            if (flock(fd, LOCK_EX | LOCK_NB) != 0 || unlink(path) != 0)
                SAY(-1);
            close(fd);
        }
    return 0;
}
