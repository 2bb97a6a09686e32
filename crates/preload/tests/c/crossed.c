// Signals that come at the moment of a fault: bad pointers are given to calls in one thread while another sends it
// signals, and the program handles SIGSEGV. The thread's mask stays what it was.
#include "say.h"
#include <pthread.h>

enum { SENT = 30000 };
static volatile int over;
static long arrived, wrong;

static void counts(int signal) {
    (void)signal;
    arrived++;
}

static void *gives_bad_pointers(void *nothing) {
    int file = open("file", O_RDWR | O_CREAT, 0644);
    while (!over) {
        sigset_t mask;
        if (pwrite(file, (void *)8, 10, 0) != -1 || errno != EFAULT)
            wrong++;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        if (sigismember(&mask, SIGSEGV) || sigismember(&mask, SIGUSR2))
            wrong++;
    }
    return nothing;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_handler = counts}, found;
    sigaction(SIGUSR1, &action, NULL);
    sigaddset(&action.sa_mask, SIGUSR2);
    SAY(sigaction(SIGSEGV, &action, NULL));
    SAY(sigaction(SIGSEGV, NULL, &found));
    SAY((found.sa_flags & SA_NODEFER) != 0);
    SAY(sigismember(&found.sa_mask, SIGUSR2));
    pthread_t thread;
    pthread_create(&thread, NULL, gives_bad_pointers, NULL);
    for (int sent = 0; sent < SENT; sent++)
        pthread_kill(thread, SIGUSR1);
    over = 1;
    pthread_join(thread, NULL);
    SAY(arrived > 0);
    SAY(wrong);
    // The handler's mask is the program's.
    sigset_t mask;
    raise(SIGSEGV);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    SAY(sigismember(&mask, SIGSEGV));
    return 0;
}
