// Compiled with a program: SIGPROF comes a thousand times in each second that the program's threads run, first after
// HAZARD_US, but not in its children. The handler makes calls, and leaves `errno` as it was.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>

static void arrives(int signal, siginfo_t *info, void *context) {
    int before = errno;
    struct stat found;
    stat("content", &found);
    errno = before;
    (void)signal, (void)info, (void)context;
}

__attribute__((constructor)) static void profile(void) {
    struct sigaction action = {.sa_sigaction = arrives, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigaction(SIGPROF, &action, NULL);
    const char *first = getenv("HAZARD_US");
    struct itimerval timer = {{0, 1000}, {0, first ? atoi(first) : 1000}};
    setitimer(ITIMER_PROF, &timer, NULL);
}
