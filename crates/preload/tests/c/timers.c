// A timer that a thread tells of, in one process after another: the C library makes that thread with the
// first timer, and the signal that wakes it comes before it has run.
#include "say.h"
#include <pthread.h>
#include <time.h>

enum { PROCESSES = 60 };

static int ends[2];

static void by_timer(union sigval value) {
    struct stat found;
    char byte = stat("content", &found) == 0 ? 'y' : 'n';
    if (write(ends[1], &byte, 1) != 1)
        _exit(9);
    (void)value;
}

static int in_child(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_timer};
    struct itimerspec at_once = {{0, 0}, {0, 1}};
    timer_t timer;
    char byte = 0;
    if (pipe(ends) || timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &at_once, NULL))
        return 7;
    return read(ends[0], &byte, 1) == 1 && byte == 'y' ? 0 : 8;
}

int main(int argc, char **argv) {
    int wrong = 0, status;
    enter(argc, argv);
    close(open("content", O_WRONLY | O_CREAT, 0600));
    for (int at = 0; at < PROCESSES; at++) {
        pid_t child = fork();
        if (child == 0)
            _exit(in_child());
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    SAY(wrong);
    return 0;
}
