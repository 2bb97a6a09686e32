// Appends numbered records to a file of each of two volumes and moves a file of each from name to name
// until it is killed; what returned is noted in a page that the test reads.
// Usage: on_both DIRECTORY DIRECTORY NOTES
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Of a volume: the last record, and the number in the last name.
struct note {
    uint64_t record, name;
};

static void named(char *path, const char *directory, uint64_t number) {
    snprintf(path, 4096, "%s/name-%lu", directory, (unsigned long)number);
}

static void step(const char *directory, int fd, volatile struct note *note, uint64_t number) {
    char record[65], from[4096], to[4096];
    snprintf(record, sizeof record, "%063lu\n", (unsigned long)number);
    if (write(fd, record, 64) != 64)
        _exit(3);
    note->record = number;
    named(from, directory, number - 1);
    named(to, directory, number);
    if (rename(from, to) != 0)
        _exit(4);
    note->name = number;
}

int main(int count, char **arguments) {
    // It ends with the thread of the test that started it and waits for it, and in any case.
    alarm(60);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = open(arguments[3], O_RDWR), fds[2];
    struct note *notes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int each = 0; each < 2; each++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/records", arguments[1 + each]);
        fds[each] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
        named(path, arguments[1 + each], 0);
        if (fds[each] < 0 || close(open(path, O_WRONLY | O_CREAT, 0644)) != 0)
            return 2;
    }
    if (write(1, "+", 1) != 1)
        return 6;
    // A child that is on both, too, and is left behind.
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // Killed before: no signal comes.
        if (getppid() != parent)
            raise(SIGKILL);
        for (;;)
            for (int each = 0; each < 2; each++) {
                char path[4096];
                snprintf(path, sizeof path, "%s/child", arguments[1 + each]);
                int fd = open(path, O_RDWR | O_CREAT, 0644);
                if (fd < 0 || write(fd, path, 100) != 100 || close(fd) || unlink(path))
                    _exit(5);
            }
    }
    for (uint64_t number = 1;; number++)
        for (int each = 0; each < 2; each++)
            step(arguments[1 + each], fds[each], &notes[each], number);
}
