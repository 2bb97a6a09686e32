// What the library has put off at a program's start (runtime/relocation.rs): it is still put off when
// `main` runs, and is there before anything could miss it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long start, end;

// A gap between segments is shorter.
#define TABLES_MIN (64UL << 10)

// Whether pages of the library are closed.
static int closed(void) {
    char line[4096];
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    start = end = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, " ---p ") && strstr(line, "libsolera_preload.so"))
            if (sscanf(line, "%lx-%lx", &from, &to) == 2 && to - from >= TABLES_MIN)
                start = from, end = to;
    if (maps)
        fclose(maps);
    return start != 0;
}

// Every word there is an address within the library, a number, or text: here that it can be read.
static unsigned long sum(void) {
    unsigned long all = 0;
    for (volatile unsigned long *at = (void *)start; at < (unsigned long *)end; at++)
        all += *at;
    return all;
}

static void check(int line, int is) {
    if (!is) {
        printf("line %d\n", line);
        exit(1);
    }
}
#define CHECK(is) check(__LINE__, is)

static void *nothing(void *given) { return given; }

static sigjmp_buf back;
static volatile int faults;

static void handle(int number) {
    (void)number;
    faults++;
    siglongjmp(back, 1);
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[1], "unserved") == 0) {
        struct sigaction found;
        CHECK(!closed() && sigaction(SIGSEGV, NULL, &found) == 0);
        CHECK(found.sa_handler == SIG_DFL && open(words[2], O_RDONLY) < 0);
        puts("right");
        return 0;
    }
    CHECK(closed());
    sigset_t all;
    sigfillset(&all);
    const char *how = words[1];
    if (strcmp(how, "read") == 0) {
        // By nothing that the library knows of.
        unsigned long first = sum();
        CHECK(first != 0 && sum() == first);
    } else if (strcmp(how, "fault") == 0) {
        struct sigaction action = {.sa_handler = handle};
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && closed());
        sum();
        CHECK(faults == 0);
        if (!sigsetjmp(back, 1))
            *(volatile int *)16 = 1;
        CHECK(faults == 1);
    } else if (strcmp(how, "block") == 0) {
        CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    } else if (strcmp(how, "handler") == 0) {
        struct sigaction action = {.sa_handler = handle, .sa_mask = all};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    } else if (strcmp(how, "wait") == 0) {
        struct timespec none = {0, 0};
        CHECK(pselect(0, NULL, NULL, NULL, &none, &all) == 0);
    } else if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    } else if (strcmp(how, "open") == 0) {
        CHECK(open(words[2], O_RDONLY) >= 0);
    } else if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(sum() == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        sum();
    } else if (strcmp(how, "spawn") == 0) {
        char *arguments[] = {"/bin/true", NULL};
        pid_t child;
        int status;
        CHECK(posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(!closed());
    int fd = open(words[2], O_RDONLY);
    char text[8] = "";
    CHECK(fd >= 0 && read(fd, text, sizeof text) == 5 && strcmp(text, "text\n") == 0);
    puts("right");
    return 0;
}
