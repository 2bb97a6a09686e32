// A thread is there when the call that makes it returns, whether it has run or not: who makes it does
// not wait until it gets a processor. All run on one, in the order in which they became ready.
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static atomic_int runs, wrong;
static atomic_int number, told;

static void *begins(void *none) {
    runs++;
    return none;
}

// As libraries have it: what the maker was told is what the thread has.
static int of_clone(void *none) {
    (void)none;
    number = syscall(SYS_gettid);
    if (told != number)
        wrong++;
    return 0;
}

static void by_clone(void) {
    static char stack[16384] __attribute__((aligned(16)));
    static atomic_int cleared;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    told = number = 0;
    cleared = 1;
    int made = clone(of_clone, stack + sizeof stack, flags, NULL, &told, NULL, &cleared);
    if (made != told || number != 0 || syscall(SYS_tgkill, getpid(), made, 0) != 0)
        wrong++;
    while (cleared)
        syscall(SYS_futex, &cleared, 0, 1, NULL);
    if (number != made)
        wrong++;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    SAY(sched_setaffinity(0, sizeof one, &one));
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) {
        SAY_TEXT("no order is to be had");
        return 0;
    }
    int before = 0;
    for (int round = 0; round < 200; round++) {
        pthread_t thread;
        int already = runs;
        if (pthread_create(&thread, NULL, begins, NULL) != 0)
            wrong++;
        before += runs - already;
        pthread_join(thread, NULL);
        if (round % 4 == 0)
            by_clone();
    }
    SAY(runs);
    SAY(before);
    SAY(wrong);
    return 0;
}
