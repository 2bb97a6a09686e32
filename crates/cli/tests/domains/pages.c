// Maps a file that is larger than its node, and looks whether every page is what was stored there:
// `map FILE MIB`: in order, at random, in a child, privately, by the kernel's own accesses.
// `count FILE MIB PROCESSES TIMES [gives-up]`: processes of two threads each add to counters at
// random; a third thread of each says that it needs shared pages no more.
// `receive FILE MIB TIMES`: the kernel stores into pages that leave meanwhile.
// `lines FILE MIB TIMES`: processes read words by `pread` while one stores them and pages leave.
// `hints FILE MIB`: says what it wants soon, and what is to stay; then touches that.
// `idle FILE MIB`: does nothing while others want room; forks for each `f` on standard input.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *memory;
static size_t pages;

static void fail(const char *what, size_t page) {
    fprintf(stderr, "%s, page %zu: %s\n", what, page, strerror(errno));
    _exit(1);
}

static uint64_t *word(size_t page, size_t at) { return (uint64_t *)(memory + page * PAGE) + at; }

static void expect(const char *what, size_t page, size_t at, uint64_t value) {
    uint64_t found = *word(page, at);
    if (found != value) {
        fprintf(stderr, "%s, page %zu, word %zu: %lu, not %lu\n", what, page, at, found, value);
        _exit(1);
    }
}

static uint64_t drawn(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static int open_file(const char *path, size_t mib) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    pages = mib << 8;
    if (file < 0 || ftruncate(file, (off_t)(pages * PAGE))) fail("making the file", 0);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mapping it", 0);
    return file;
}

static void child_and_parent(void) {
    uint64_t seed = 7;
    pid_t child = fork();
    for (int round = 0; round < 3000; round++) {
        size_t page = drawn(&seed) % pages;
        expect(child ? "parent" : "child", page, 0, page + 1);
        *word(page, child ? 2 : 3) = page;
    }
    if (child == 0) _exit(0);
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the child", (size_t)status);
    seed = 7;
    for (int round = 0; round < 3000; round++) {
        size_t page = drawn(&seed) % pages;
        expect("of the parent", page, 2, page);
        expect("of the child", page, 3, page);
    }
}

static void privately(int file) {
    char *own = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (own == MAP_FAILED) fail("mapping it privately", 0);
    for (size_t page = 0; page < pages; page += 10) {
        uint64_t *at = (uint64_t *)(own + page * PAGE);
        if (*at != page + 1) fail("a private page", page);
        *at = 99;
    }
    pid_t child = fork();
    for (size_t page = 0; page < pages; page += 5) {
        uint64_t value = *(uint64_t *)(own + page * PAGE);
        if (value != (page % 10 ? page + 1 : 99)) fail("a private page, again", page);
        expect("the file behind a private page", page, 0, page + 1);
    }
    if (child == 0) _exit(0);
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the child", (size_t)status);
    munmap(own, pages * PAGE);
}

static void by_the_kernel(void) {
    int ends[2];
    if (pipe(ends)) fail("a pipe", 0);
    for (size_t page = 0; page + 2 < pages; page += 100) {
        struct iovec two[2] = {{word(page, 0), 64}, {word(page + 2, 0), 64}};
        uint64_t got[16];
        if (writev(ends[1], two, 2) != 128) fail("writev", page);
        if (read(ends[0], got, 128) != 128) fail("read", page);
        if (got[0] != page + 1 || got[8] != page + 3) fail("what writev has read", page);
        got[0] = ~page;
        if (write(ends[1], got, 8) != 8) fail("write", page);
        if (read(ends[0], word(page + 1, 5), 8) != 8) fail("read into a page", page);
        expect("what read has stored", page + 1, 5, ~page);
    }
}

static void map(const char *path, size_t mib) {
    int file = open_file(path, mib);
    for (size_t page = 0; page < pages; page++) *word(page, 0) = page + 1;
    for (size_t page = 0; page < pages; page++) expect("in order", page, 0, page + 1);
    child_and_parent();
    privately(file);
    by_the_kernel();
    for (size_t page = 0; page < pages; page += 64) {
        uint64_t found;
        if (pread(file, &found, 8, (off_t)(page * PAGE)) != 8) fail("pread", page);
        if (found != page + 1) fail("what pread gives", page);
    }
    puts("all pages are what was stored");
}

static size_t times;

static void *add(void *seed_at) {
    uint64_t seed = (uint64_t)(uintptr_t)seed_at;
    for (size_t round = 0; round < times; round++) {
        size_t page = drawn(&seed) % pages;
        __atomic_fetch_add(word(page, 1 + drawn(&seed) % 500), 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static volatile int is_over;

// What is stored there stays: the file has it.
static void *give_up(void *seed_at) {
    uint64_t seed = (uint64_t)(uintptr_t)seed_at;
    while (!is_over) {
        size_t page = drawn(&seed) % (pages - 16), some = 1 + drawn(&seed) % 16;
        if (madvise(word(page, 0), some * PAGE, MADV_DONTNEED)) fail("MADV_DONTNEED", page);
    }
    return NULL;
}

static void count(const char *path, size_t mib, size_t processes, int gives_up) {
    open_file(path, mib);
    for (size_t process = 0; process < processes; process++) {
        if (fork() == 0) {
            pthread_t second, third;
            pthread_create(&second, NULL, add, (void *)(uintptr_t)(2 * process + 1));
            if (gives_up) pthread_create(&third, NULL, give_up, (void *)(uintptr_t)(process + 77));
            add((void *)(uintptr_t)(2 * process + 2));
            pthread_join(second, NULL);
            is_over = 1;
            if (gives_up) pthread_join(third, NULL);
            _exit(0);
        }
    }
    int status;
    while (wait(&status) > 0) {
        if (status) fail("a process", (size_t)status);
    }
    uint64_t sum = 0;
    for (size_t page = 0; page < pages; page++) {
        for (size_t at = 0; at < 512; at++) sum += *word(page, at);
    }
    printf("%lu of %lu\n", sum, 2 * processes * times);
}

static int socket_of[2];
static size_t rounds;

// Sends numbered datagrams, each of which is whole or not there.
static void *send_numbered(void *unused) {
    (void)unused;
    static uint64_t message[4 * PAGE / 8];
    for (size_t round = 1; round <= rounds; round++) {
        for (size_t at = 0; at < sizeof message / 8; at++) message[at] = round * 10000 + at;
        if (send(socket_of[0], message, sizeof message, 0) != sizeof message) fail("send", round);
    }
    return NULL;
}

static void *hammer(void *seed_at) {
    uint64_t seed = (uint64_t)(uintptr_t)seed_at;
    while (!is_over) (*word(drawn(&seed) % pages, 500))++;
    return NULL;
}

// Datagrams are received into pages that leave: what the kernel cannot store is lost for ever.
// Meanwhile bytes go from such pages into a pipe, and come back.
static void receive(const char *path, size_t mib) {
    int ends[2];
    pthread_t sender, hammering;
    open_file(path, mib);
    for (size_t page = 0; page < pages; page++) *word(page, 0) = page + 1;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, socket_of) || pipe(ends)) fail("a socket", 0);
    pthread_create(&sender, NULL, send_numbered, NULL);
    pthread_create(&hammering, NULL, hammer, (void *)5);
    uint64_t seed = 11;
    for (size_t round = 1; round <= rounds; round++) {
        size_t page = drawn(&seed) % (pages - 5);
        ssize_t got = recv(socket_of[1], word(page, 1), 4 * PAGE, 0);
        if (got != 4 * PAGE) fail("recv", (size_t)got);
        for (size_t at = 0; at < 4 * PAGE / 8; at++) {
            uint64_t found = ((uint64_t *)(memory + page * PAGE))[at + 1];
            // The other thread counts there.
            if ((at + 1) % 512 != 500 && found != round * 10000 + at) fail("a message", page);
        }
        if (write(ends[1], word(page, 1), 2 * PAGE) != 2 * PAGE) fail("write", page);
        if (read(ends[0], word(page, 1), 2 * PAGE) != 2 * PAGE) fail("read", page);
    }
    is_over = 1;
    pthread_join(sender, NULL);
    pthread_join(hammering, NULL);
    puts("all messages arrived");
}

// Touches pages, says so, and does nothing; when it is told to, forks a child that looks at them.
static void idle(const char *path, size_t mib) {
    char byte;
    open_file(path, mib);
    for (size_t page = 0; page < pages; page++) *word(page, 0) = page + 1;
    if (write(1, "there\n", 6) != 6) fail("saying so", 0);
    while (read(0, &byte, 1) == 1) {
        if (byte != 'f') continue;
        pid_t child = fork();
        if (child == 0) {
            for (size_t page = 0; page < pages; page += 7) expect("a child", page, 0, page + 1);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) fail("the child", (size_t)status);
        if (write(1, "forked\n", 7) != 7) fail("saying so", 0);
    }
    for (size_t page = 0; page < pages; page++) expect("at the end", page, 0, page + 1);
    puts("all pages are what was stored");
}

// What was stored last in each page, as far as that is over: the readers share it. They read half
// of the file, so that much of that is away.
static void read_lines(int file, size_t mib, size_t times) {
    _Atomic uint64_t *stored = mmap(NULL, pages * sizeof *stored, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    _Atomic int *over = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stored == MAP_FAILED || over == MAP_FAILED) fail("memory for counts", 0);
    pid_t readers[2];
    for (int reader = 0; reader < 2; reader++) {
        readers[reader] = fork();
        if (readers[reader]) continue;
        uint64_t seed = 11 + (uint64_t)reader;
        while (!*over) {
            uint64_t value[128];
            size_t page = drawn(&seed) % (pages / 2), part = drawn(&seed) % 4;
            uint64_t least = stored[page];
            off_t at = (off_t)(page * PAGE + part * sizeof value);
            if (pread(file, value, sizeof value, at) != sizeof value) fail("pread", page);
            for (size_t word = 0; word < 128; word++) {
                if (value[word] >= least) continue;
                fprintf(stderr, "page %zu has %lu, behind %lu\n", page, value[word], least);
                _exit(1);
            }
        }
        _exit(0);
    }
    uint64_t seed = 5;
    for (uint64_t time = 1; time <= times; time++) {
        size_t page = drawn(&seed) % (pages / 2);
        uint64_t value[512];
        for (size_t word = 0; word < 512; word++) value[word] = time;
        if (pwrite(file, value, PAGE, (off_t)(page * PAGE)) != PAGE) fail("pwrite", page);
        stored[page] = time;
        // Others leave for these, which are touched in order once more.
        for (size_t other = 0; other < 16; other++) {
            *word(pages / 2 + (time * 16 + other) % (pages / 2), 0) = time;
        }
    }
    *over = 1;
    for (int reader = 0; reader < 2; reader++) {
        int status;
        if (waitpid(readers[reader], &status, 0) < 0 || status) fail("a reader", (size_t)status);
    }
    printf("%zu MiB: no old byte was read\n", mib);
}

static void hints(const char *path, size_t mib) {
    enum { SOME = 64 };
    int file = open_file(path, mib);
    for (size_t page = 0; page < pages; page++) *word(page, 0) = page + 1;
    // The host makes room again for what is free always.
    sleep(1);
    size_t at[3] = {0, 1024, 2048};
    if (posix_fadvise(file, 0, SOME * PAGE, POSIX_FADV_WILLNEED)) fail("posix_fadvise", 0);
    sleep(1);
    if (madvise(memory + at[1] * PAGE, SOME * PAGE, MADV_WILLNEED)) fail("madvise", at[1]);
    sleep(1);
    if (mlock(memory + at[2] * PAGE, SOME * PAGE)) fail("mlock", at[2]);
    if (!mlock(memory, pages * PAGE) || errno != ENOMEM) fail("locking all", 0);
    for (size_t hint = 0; hint < 3; hint++) {
        for (size_t page = at[hint]; page < at[hint] + SOME; page++) {
            expect("hinted", page, 0, page + 1);
        }
    }
    if (munlock(memory + at[2] * PAGE, SOME * PAGE)) fail("munlock", at[2]);
    printf("all is there\n");
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "map") == 0) {
        map(argv[2], strtoul(argv[3], NULL, 10));
    } else if (argc > 5 && strcmp(argv[1], "count") == 0) {
        times = strtoul(argv[5], NULL, 10);
        count(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), argc > 6);
    } else if (argc > 4 && strcmp(argv[1], "receive") == 0) {
        rounds = strtoul(argv[4], NULL, 10);
        receive(argv[2], strtoul(argv[3], NULL, 10));
    } else if (argc > 4 && strcmp(argv[1], "lines") == 0) {
        size_t mib = strtoul(argv[3], NULL, 10);
        read_lines(open_file(argv[2], mib), mib, strtoul(argv[4], NULL, 10));
    } else if (argc > 3 && strcmp(argv[1], "hints") == 0) {
        hints(argv[2], strtoul(argv[3], NULL, 10));
    } else if (argc > 3 && strcmp(argv[1], "idle") == 0) {
        idle(argv[2], strtoul(argv[3], NULL, 10));
    } else {
        return 2;
    }
    return 0;
}
