// A signal that comes within the first call that is looked at, of a process that has just begun: the child has
// ended before its parent comes out of fork. Exit code 0 if the handler has run.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int told;

static void on_child(int signal) {
    (void)signal;
    told++;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    while (waitpid(pid, 0, 0) < 0)
        ;
    return told != 1;
}
