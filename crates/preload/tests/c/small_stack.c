// A program whose signal stack has the least size that there may be: no signal comes to it, so on a kernel
// file system it never notices that the stack is smaller than the kernel's own frame. A hole of a file
// of the volume raises one when it is touched, and the program died of it.
#include "say.h"
#include <pthread.h>
#include <sys/syscall.h>

static char *fenced(void) {
    // With nothing around it.
    char *all = mmap(NULL, 3 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + 65536, 4096, PROT_READ | PROT_WRITE);
    return all + 65536;
}

static void on_signal(int signal) {
    char here;
    (void)here;
    fprintf(results, "signal %d\n", signal);
    fflush(results);
    _exit(3);
}

static void handled(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static void fill(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(ftruncate(fd, 1 << 20));
    char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 1 << 20; i += 4096)
        at[i] = 1;
    // The kernel stores into a hole, and so does a read from a file.
    SAY(ftruncate(fd, 0) | ftruncate(fd, 1 << 20));
    int zeros = open("/dev/zero", O_RDONLY);
    SAY(read(zeros, at + 8192, 5000));
    SAY(pread(fd, at + 65536, 100, 0));
    SAY(munmap(at, 1 << 20) | close(fd) | close(zeros));
}

static void told(char *stack, int size) {
    stack_t is;
    SAY(sigaltstack(NULL, &is));
    SAY(is.ss_sp == stack);
    SAY(is.ss_size == size);
    SAY(is.ss_flags);
}

static void with(int size, int flags) {
    char *stack = fenced();
    stack_t new = {.ss_sp = stack, .ss_size = size, .ss_flags = flags}, old;
    SAY(sigaltstack(&new, NULL));
    told(stack, size);
    fill("holes");
    SAY(sigaltstack(&new, &old));
    SAY(old.ss_sp == stack && old.ss_size == size);
    SAY(syscall(SYS_sigaltstack, NULL, &old));
    SAY(old.ss_sp == stack && old.ss_size == size);
    if (fork() == 0) {
        told(stack, size);
        fill("child");
        _exit(0);
    }
    int status;
    wait(&status);
    SAY(status);
}

static volatile int is_there;

static void looks(int signal) {
    stack_t is;
    char here;
    syscall(SYS_sigaltstack, NULL, &is);
    char *start = is.ss_sp;
    is_there = &here >= start && &here < start + is.ss_size && is.ss_flags == SS_ONSTACK;
    // Calls work on it.
    fill("handler");
}

// A handler is told of the stack on which it runs, whichever that is: Go's runtime ends, or waits for
// ever, where it is another one. On CPUs whose frame is large that was so of each stack of 32 KiB.
static void in_a_handler(void) {
    stack_t new = {.ss_sp = mmap(NULL, 16384, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 16384}, is;
    SAY(sigaltstack(&new, NULL));
    struct sigaction action = {.sa_handler = looks, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 2; i++) {
        raise(SIGUSR1);
        SAY(is_there);
        SAY(sigaltstack(NULL, &is));
        SAY(is.ss_sp == new.ss_sp && is.ss_size == 16384 && is.ss_flags == 0);
    }
    new.ss_flags = SS_DISABLE;
    SAY(sigaltstack(&new, &is));
    SAY(is.ss_sp == new.ss_sp);
}

static void *thread(void *unused) {
    (void)unused;
    with(2048, 0);
    return NULL;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    handled();
    with(2048, 0);
    with(2500, 0);
    with(4096, 0);
    with(2048, 1 << 31);
    // The errors are the kernel's.
    stack_t new = {.ss_sp = fenced(), .ss_size = 2047};
    SAY(sigaltstack(&new, NULL));
    new.ss_size = 2048;
    new.ss_flags = 64;
    SAY(sigaltstack(&new, NULL));
    SAY(sigaltstack((void *)8, NULL));
    SAY(sigaltstack(NULL, (void *)8));
    new.ss_flags = SS_DISABLE;
    SAY(sigaltstack(&new, NULL));
    fill("without");
    in_a_handler();
    // More threads, one after another, than there are stacks of any table.
    for (int i = 0; i < 600; i++) {
        pthread_t one;
        pthread_create(&one, NULL, thread, NULL);
        pthread_join(one, NULL);
    }
    // A fault of the program's own is still its handler's.
    char *stack = fenced();
    new = (stack_t){.ss_sp = mmap(NULL, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536};
    SAY(sigaltstack(&new, NULL));
    if (fork() == 0)
        *(volatile char *)(stack + 65536) = 1;
    int status;
    wait(&status);
    SAY(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 0;
}
