// System calls by own instructions that cannot be served: `calls DIRECTORY LIBRARY` makes such calls in the program, in
// a library, in code made at run time; `seen DIRECTORY` says what the C library's calls and its own see in the main
// thread, another thread and a child; `behind DIRECTORY` the same of threads that begin behind a filter of its own; and
// `filtered ERROR COMMAND...` executes a command that may not switch the dispatch of system calls on.
#include "raw.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef OF_LIBRARY
long made_in_library(void) { return raw(SYS_io_uring_setup, 1, 0); }
#else
#include <dlfcn.h>

static void say(const char *what, long value) {
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

static long at_run_time(void) {
    // mov $425, %eax; xor %edi, %edi; xor %esi, %esi; syscall; ret
    static const unsigned char code[] = {0xb8, 0xa9, 1, 0, 0, 0x31, 0xff, 0x31, 0xf6, 0x0f, 5, 0xc3};
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    return ((long (*)(void))made)();
}

static int of_32_bits(void) {
    int answer;
    asm volatile("int $0x80" : "=a"(answer) : "a"(20) : "memory");
    return answer;
}

static void calls(const char *library) {
    say("program", raw(SYS_io_uring_setup, 1, 0));
    say("program", raw(SYS_io_uring_setup, 1, 0));
    say("run time", at_run_time());
    say("32 bits", of_32_bits());
    say("libc", syscall(SYS_io_uring_setup, 1, 0) == -1 ? -errno : 0);
    if (*library) {
        void *loaded = dlopen(library, RTLD_NOW);
        say("library", ((long (*)(void))dlsym(loaded, "made_in_library"))());
    }
}

static char path[4096];

static void *sees(void *who) {
    char line[64];
    snprintf(line, sizeof line, "%s: libc", (char *)who);
    say(line, access(path, F_OK) == -1 ? -errno : 0);
    snprintf(line, sizeof line, "%s: own", (char *)who);
    say(line, raw(SYS_access, path, F_OK));
    return who;
}

static void in_threads(int count) {
    for (int at = 0; at < count; at++) {
        pthread_t thread;
        pthread_create(&thread, NULL, sees, "thread");
        pthread_join(thread, NULL);
    }
}

static void filter(int error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 59, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        exit(77);
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "filtered")) {
        filter(atoi(argv[2]));
        execvp(argv[3], argv + 3);
        return 127;
    }
    mkdir(argv[2], 0755);
    snprintf(path, sizeof path, "%s/there", argv[2]);
    close(creat(path, 0644));
    if (!strcmp(argv[1], "calls"))
        calls(argv[3]);
    if (!strcmp(argv[1], "seen")) {
        sees("main");
        in_threads(2);
        if (fork() == 0) {
            sees("child");
            _exit(0);
        }
        wait(NULL);
    }
    if (!strcmp(argv[1], "behind")) {
        filter(EPERM);
        sees("main");
        in_threads(3);
        say("run time", at_run_time());
        say("program", raw(SYS_io_uring_setup, 1, 0));
    }
    return 0;
}
#endif
