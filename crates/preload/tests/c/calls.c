// Counts the system calls of a program: `calls PROGRAM [NAME=VALUE ...]`, which are its environment;
// with INHERITS it has this one's.
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>

int main(int argc, char **argv) {
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {argv[1], NULL};
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
#ifdef INHERITS
        execv(argv[1], arguments);
#else
        execve(argv[1], arguments, argv + 2);
#endif
        _exit(127);
    }
    int status, stops = 0;
    waitpid(pid, &status, 0);
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_TRACESYSGOOD);
    while (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
           !WIFEXITED(status) && !WIFSIGNALED(status))
        stops += WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80);
    printf("%d\n", stops / 2);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
