/* usage: steps OUT PROGRAM [ARGUMENTS]: runs a program one instruction at a time, and writes which
   of the preload library's it executes, as offsets from the library's start, each once and in the
   order of their first execution. Called by first-used.py. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY_MAX (64UL << 20)

/* Where the library was mapped; 0: not yet. */
static unsigned long library_of(pid_t process) {
    char name[64], line[4096];
    unsigned long start = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", process);
    FILE *maps = fopen(name, "r");
    while (maps && !start && fgets(line, sizeof line, maps))
        if (strstr(line, "libsolera_preload.so"))
            start = strtoul(line, NULL, 16);
    if (maps)
        fclose(maps);
    return start;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    pid_t process = fork();
    if (process == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execvp(words[2], words + 2);
        _exit(127);
    }
    int status, signal = 0;
    waitpid(process, &status, 0);
    ptrace(PTRACE_SETOPTIONS, process, 0, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    unsigned char *seen = calloc(1, LIBRARY_MAX);
    FILE *out = fopen(words[1], "w");
    if (!seen || !out)
        return 1;
    unsigned long start = 0;
    for (unsigned long steps = 1;; steps++) {
        if (ptrace(PTRACE_SINGLESTEP, process, 0, signal) < 0 || waitpid(process, &status, 0) < 0)
            break;
        if (!WIFSTOPPED(status) || status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            break;
        signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (!start && steps % 256 == 0)
            start = library_of(process);
        struct user_regs_struct registers;
        ptrace(PTRACE_GETREGS, process, 0, &registers);
        unsigned long offset = registers.rip - start;
        if (start && offset < LIBRARY_MAX && !seen[offset]) {
            seen[offset] = 1;
            fprintf(out, "%lx\n", offset);
        }
    }
    return fclose(out) != 0;
}
