// Handlers that interrupt each other, forty deep, each of which uses a file: of a signal that is sent, of one
// that ends a wait, of one whose handler asks for a signal stack that the thread has not, of one that ends a
// wait and runs on a signal stack that is switched off meanwhile. In the first thread and in another.
#include "say.h"
#include <pthread.h>

enum { DEEP = 40, BYTES = 1000 };

static int file;
static volatile int depth, wrong, is_over, ends_wait;

static void on_signal(int signal) {
    (void)signal;
    // Half of what a handler with a buffer of its own needs.
    char bytes[BYTES], found[BYTES];
    int own = depth++;
    memset(bytes, 'a' + own % 26, BYTES);
    wrong += pwrite(file, bytes, BYTES, (off_t)own * BYTES) != BYTES;
    if (own + 1 < DEEP)
        pthread_kill(pthread_self(), SIGUSR1);
    wrong += pread(file, found, BYTES, (off_t)own * BYTES) != BYTES || memcmp(bytes, found, BYTES);
}

static void *interrupted(void *signal) {
    depth = 0;
    SAY(pthread_kill(pthread_self(), *(int *)signal));
    SAY(depth);
    SAY(wrong);
    return NULL;
}

static pthread_t waiter;

static void *interrupts(void *unused) {
    while (!is_over) {
        pthread_kill(waiter, ends_wait);
        usleep(100000);
    }
    return unused;
}

static void *waits(void *signal) {
    sigset_t one;
    pthread_t other;
    struct flock lock = {.l_type = F_WRLCK};
    depth = is_over = 0;
    ends_wait = *(int *)signal;
    waiter = pthread_self();
    // The other one's, in its calls: this one's only.
    sigemptyset(&one);
    sigaddset(&one, ends_wait);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    pthread_create(&other, NULL, interrupts, NULL);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    long waited = fcntl(file, F_SETLKW, &lock);
    int error = errno;
    is_over = 1;
    pthread_join(other, NULL);
    // What is said would be cut off by a signal.
    errno = error;
    SAY(waited);
    SAY(depth >= DEEP);
    SAY(wrong);
    return NULL;
}

static void *waits_disarmed(void *signal) {
    static char room[1 << 20];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room, .ss_flags = 1 << 31}, none = {.ss_flags = SS_DISABLE};
    SAY(sigaltstack(&stack, NULL));
    waits(signal);
    SAY(sigaltstack(&none, NULL));
    return NULL;
}

static void in_all_ways(void) {
    static int sent = SIGUSR1, on_stack = SIGUSR2;
    pthread_t other;
    void *(*const ways[])(void *) = {interrupted, interrupted, waits, waits_disarmed};
    void *const given[] = {&sent, &on_stack, &sent, &on_stack};
    for (int way = 0; way < 4; way++) {
        ways[way](given[way]);
        // What it says, the thread says meanwhile.
        int made = pthread_create(&other, NULL, ways[way], given[way]);
        SAY(pthread_join(other, NULL));
        SAY(made);
    }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    file = open("file", O_RDWR | O_CREAT, 0600);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    SAY(sigaction(SIGUSR1, &action, NULL));
    action.sa_flags |= SA_ONSTACK;
    SAY(sigaction(SIGUSR2, &action, NULL));
    int ends[2];
    char byte;
    SAY(pipe(ends));
    pid_t holder = fork();
    if (holder == 0) {
        alarm(60);
        struct flock lock = {.l_type = F_WRLCK};
        fcntl(file, F_SETLK, &lock);
        (void)!write(ends[1], "", 1);
        pause();
    }
    SAY(read(ends[0], &byte, 1));
    in_all_ways();
    SAY(kill(holder, SIGKILL));
    SAY(wait(NULL) == holder);
    return 0;
}
