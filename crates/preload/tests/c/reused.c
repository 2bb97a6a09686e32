// A number is closed and opened again for another file while other threads read and write through
// it. Each file has its own bytes: none may ever show up in another one's file or reader, and who
// uses the number in between is told so.
#include "say.h"
#include <pthread.h>
#include <sched.h>

enum { FILES = 8, BLOCK = 512, ROUNDS = 4000, USERS = 3, NUMBER = 60, WRITES_MAX = 1 << 20 };
enum { WORDS = BLOCK / sizeof(long) };

static volatile int over, closes;
static long wrong, unknown_error;
static volatile long calls;

static void wronged(long *count) {
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

// While the number is only ever replaced, never closed, no call may fail. (Where it is closed, a
// read in that very moment may say EISDIR on a volume.)
static void failed_call(ssize_t result) {
    if (result != -1 || !closes || errno != EBADF && errno != EISDIR)
        wronged(&unknown_error);
}

static char mark_of(int file) {
    return (char)('a' + file);
}

// Which file a number stood for before and after a call tells which it may have met: the number's
// holder counts up before each change and after it.
static volatile long turn;

static int file_of(long turn) {
    return (int)(turn / 2 % FILES);
}

// Whether a file was open under the number in one of these turns.
static int fits(int file, long before, long after) {
    for (long when = before; when <= after; when++)
        if (file == file_of(when) || when % 2 && file == file_of(when + 1))
            return 1;
    return 0;
}

// Reads whole blocks: all of one file's bytes, and that file was open under the number meanwhile.
static void read_some(unsigned at) {
    char bytes[BLOCK];
    long before = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
    ssize_t got = pread(NUMBER, bytes, BLOCK, (off_t)(at % 16) * BLOCK);
    long after = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
    if (got != BLOCK) {
        failed_call(got);
        return;
    }
    for (int byte = 1; byte < BLOCK; byte++)
        if (bytes[byte] != bytes[0])
            wronged(&wrong);
    if (!fits(bytes[0] - 'a', before, after))
        wronged(&wrong);
}

// The turns before and after each write.
static long began[WRITES_MAX], ended[WRITES_MAX], writes;

// Writes beyond what readers look at; the number of the write stands in every word.
static void write_some(unsigned at) {
    long words[BLOCK / sizeof(long)], number = __atomic_add_fetch(&writes, 1, __ATOMIC_RELAXED);
    if (number >= WRITES_MAX)
        return;
    for (int word = 0; word < WORDS; word++)
        words[word] = number;
    began[number] = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
    ssize_t done = pwrite(NUMBER, words, BLOCK, (off_t)(16 + at % 16) * BLOCK);
    ended[number] = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
    if (done != BLOCK)
        failed_call(done);
}

static void *uses(void *argument) {
    unsigned state = (unsigned)(long)argument * 77 + 1;
    while (!over) {
        state = state * 1103515245 + 12345;
        __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
        if (state >> 16 & 1)
            read_some(state >> 20);
        else
            write_some(state >> 20);
    }
    return NULL;
}

// A file's last blocks hold whole writes only, made while it was open.
static void check(int file) {
    char name[16];
    long words[WORDS];
    snprintf(name, sizeof name, "file-%d", file);
    int fd = open(name, O_RDONLY);
    for (int at = 0; at < 32; at++) {
        if (pread(fd, words, BLOCK, (off_t)at * BLOCK) != BLOCK)
            wronged(&wrong);
        for (int word = 1; word < WORDS; word++)
            if (words[word] != words[0])
                wronged(&wrong);
        if (at < 16 ? *(char *)words != mark_of(file)
                    : words[0] && !fits(file, began[words[0]], ended[words[0]]))
            wronged(&wrong);
    }
    close(fd);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    char block[BLOCK];
    for (int file = 0; file < FILES; file++) {
        char name[16];
        snprintf(name, sizeof name, "file-%d", file);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        memset(block, mark_of(file), BLOCK);
        for (int at = 0; at < 32; at++) {
            if (at == 16)
                memset(block, 0, BLOCK);
            if (write(fd, block, BLOCK) != BLOCK)
                return 1;
        }
        close(fd);
    }
    int first = open("file-0", O_RDWR);
    if (dup2(first, NUMBER) != NUMBER || close(first) != 0)
        return 1;
    pthread_t users[USERS];
    for (long user = 0; user < USERS; user++)
        pthread_create(&users[user], NULL, uses, (void *)user);
    long failed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char name[16];
        if (round == ROUNDS / 2)
            closes = 1;
        snprintf(name, sizeof name, "file-%d", file_of(turn + 2));
        // Odd: it is changing.
        __atomic_fetch_add(&turn, 1, __ATOMIC_SEQ_CST);
        int low = open(name, O_RDWR);
        if (closes && round % 2)
            failed += close(NUMBER) != 0;
        failed += dup2(low, NUMBER) != NUMBER;
        failed += close(low) != 0;
        __atomic_fetch_add(&turn, 1, __ATOMIC_SEQ_CST);
        if (round % 8 == 0)
            while (calls < round * 4)
                sched_yield();
    }
    over = 1;
    for (int user = 0; user < USERS; user++)
        pthread_join(users[user], NULL);
    for (int file = 0; file < FILES; file++)
        check(file);
    SAY(failed);
    SAY(unknown_error);
    SAY(wrong);
    return 0;
}
