// Threads that append and overwrite until the process is killed or leaves; what returned is noted in a
// page that the test reads.
// Usage: acts DIRECTORY NOTES FIRST THREADS MICROSECONDS (0: until it is killed)
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { WORDS = 2560, BLOCK = WORDS * 8 };

// What an actor has done; every call of the same round has a number of its own.
struct note {
    uint64_t together, alone, block;
};

static struct note *notes;
static int first;
static _Atomic int begun;

static void put(int fd, int actor, uint64_t number) {
    // None lies in two pages, which the kernel would write one after the other.
    char record[129];
    snprintf(record, sizeof record, "%03d %0123lu\n", actor, (unsigned long)number);
    if (write(fd, record, 128) != 128)
        _exit(3);
}

static void *act(void *argument) {
    int actor = first + (int)(intptr_t)argument;
    struct note *note = notes + actor;
    char name[20];
    snprintf(name, sizeof name, "alone-%d", actor);
    int together = open("together", O_WRONLY | O_APPEND | O_CREAT, 0644);
    int alone = open(name, O_WRONLY | O_APPEND | O_CREAT, 0644);
    int blocks = open("blocks", O_RDWR);
    if (together < 0 || alone < 0 || blocks < 0)
        _exit(2);
    // What was under way when its forerunner was killed may be there, or not.
    uint64_t number = note->together > note->alone ? note->together : note->alone;
    number = (note->block > number ? note->block : number) + 2;
    static __thread uint64_t words[WORDS];
    for (int round = 0;; number++, round++) {
        put(together, actor, number);
        note->together = number;
        put(alone, actor, number);
        note->alone = number;
        for (int word = 0; word < WORDS; word++)
            words[word] = number;
        if (pwrite(blocks, words, BLOCK, (off_t)actor * BLOCK) != BLOCK)
            _exit(4);
        note->block = number;
        if (number % 37 == 0 && fsync(actor & 1 ? together : alone) != 0)
            _exit(5);
        if (number % 101 == 0) {
            close(alone);
            alone = open(name, O_WRONLY | O_APPEND);
        }
        if (round == 0)
            begun++;
    }
}

int main(int count, char **arguments) {
    // It ends with the thread of the test that started it and waits for it, and in any case.
    alarm(120);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = open(arguments[2], O_RDWR);
    notes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    first = atoi(arguments[3]);
    int threads = atoi(arguments[4]), lasts = atoi(arguments[5]);
    if (notes == MAP_FAILED || chdir(arguments[1]) != 0)
        return 2;
    pthread_t thread;
    for (int each = 0; each < threads; each++)
        pthread_create(&thread, NULL, act, (void *)(intptr_t)each);
    while (begun < threads)
        usleep(50);
    if (write(1, "+", 1) != 1)
        return 6;
    if (lasts == 0)
        pause();
    usleep(lasts);
    exit(0);
}
