// One system call of a victim, before which, in the middle of which and after which it is killed, and
// those who survive it.
//
// deaths list
// deaths survive SHARED NUMBER DIRECTORY
// deaths die CASE DIRECTORY     stops at a breakpoint before and after the call
// deaths attach DIRECTORY       does nothing
#include "survivor.h"
#include "victims.h"

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

static void die(const struct victim_case *chosen) {
    me = VICTIM;
    hold();
    chosen->prepare();
    MARK();
    chosen->call();
    MARK();
    // What returned is there though nothing closes.
    pause();
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
    for (unsigned each = 0; strcmp(what, "die") == 0 && each < cases_count; each++)
        if (strcmp(cases[each].name, arguments[2]) == 0)
            die(&cases[each]);
    return strcmp(what, "attach") != 0;
}
