// One system call of a victim, before which, in the middle of which and after which it is killed, and
// those who survive it.
//
// deaths list
// deaths survive SHARED NUMBER DIRECTORY
// deaths die CASE DIRECTORY     stops at a breakpoint before and after the call
// deaths bare CASE DIRECTORY    the same, and holds nothing besides
// deaths beside HOW CASE DIRECTORY  a thread calls while another ends the process
// deaths attach DIRECTORY       does nothing
#include "survivor.h"
#include "victims.h"
#include <signal.h>

#define MARK() __asm__ volatile("int3" ::: "memory")

// What every victim holds besides, which must be gone with it.
static void hold(void) {
    char bytes[10000];
    int locked, held, gone, message[2];
    MUST(locked = open("t/f", O_RDWR));
    MUST(lock_bytes(locked, F_WRLCK, 200, 100, F_SETLK));
    MUST(held = open("t/held", O_RDWR));
    MUST(flock(held, LOCK_EX | LOCK_NB));
    MUST(gone = open("t/vgone", O_RDWR | O_CREAT | O_EXCL, 0644));
    fill(bytes, sizeof bytes, VICTIM, 1, 0);
    MUST(write(gone, bytes, sizeof bytes));
    MUST(unlink("t/vgone"));
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, message));
    send_descriptor(message[0], gone);
}

static void passed(int signal) { (void)signal; }

static void die(const struct victim_case *chosen) {
    make_fresh();
    chosen->prepare();
    // Who is traced is stopped there; who is no more goes on.
    signal(SIGTRAP, passed);
    MARK();
    chosen->call();
    MARK();
    puts("returned");
    fflush(stdout);
    // What returned is there though nothing closes.
    pause();
}

static void *call_beside(void *chosen) {
    MARK();
    ((const struct victim_case *)chosen)->call();
    MARK();
    pause();
    return NULL;
}

// The process ends while a thread of it is in the middle of a call.
static void end_beside(const char *how, const struct victim_case *chosen) {
    pthread_t thread;
    char number[12];
    make_fresh();
    chosen->prepare();
    snprintf(number, sizeof number, "%d", open("t/vother", O_WRONLY | O_CREAT, 0644));
    MARK();
    pthread_create(&thread, NULL, call_beside, (void *)chosen);
    MARK();
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "exit_at_once") == 0)
        _exit(0);
    if (strcmp(how, "exec") == 0)
        execl("/proc/self/exe", "deaths", "executed", number, NULL);
    abort();
}

static void look_at_case(unsigned number) {
    if (number >= cases_count)
        return;
    int state = cases[number].look();
    const char *states[] = {"before", "after", "torn", "either"};
    if (state == TORN && !may_tear())
        fail("%s: torn", cases[number].name);
    snprintf(shared->told[me], sizeof shared->told[me], "%s", states[state]);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "list") == 0) {
        for (unsigned each = 0; each < cases_count; each++)
            printf("%s\n", cases[each].name);
        return 0;
    }
    if (strcmp(what, "executed") == 0)
        return executed(atoi(arguments[2]));
    if (chdir(arguments[count - 1]) != 0)
        return 2;
    if (strcmp(what, "survive") == 0) {
        share(arguments[2]);
        survive(atoi(arguments[3]));
    }
    if (strcmp(what, "attach") == 0)
        return 0;
    me = VICTIM;
    if (strcmp(what, "bare") != 0)
        hold();
    for (unsigned each = 0; each < cases_count; each++) {
        if (strcmp(what, "beside") == 0 && strcmp(cases[each].name, arguments[3]) == 0)
            end_beside(arguments[2], &cases[each]);
        if (strcmp(cases[each].name, arguments[2]) == 0)
            die(&cases[each]);
    }
    return 1;
}
