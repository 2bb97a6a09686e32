// Threads that do what goes through the C library's own locks and its loader, each in a way of its
// own, while a timer sends each of them a signal every millisecond; the handler makes calls that a
// volume serves. Each checks what it reads. After so many seconds, once each has come round often
// enough, it kills its group, by SIGKILL; then what was synced must be there. What was synced, and how
// often each thread came round, is noted in a file outside.
//
// usage: stress run DIRECTORY NOTES LIBRARY SECONDS  (LIBRARY: this file, compiled with -DLIBRARY -shared)
//        stress check DIRECTORY NOTES                (after the kill; fails, or prints the rounds)
//        stress look SEED DIRECTORY                  (a process that a thread begins)
#ifdef LIBRARY
#include <stdlib.h>
static __thread int calls;
int *allocated;
__attribute__((constructor)) static void begin(void) { allocated = malloc(sizeof *allocated), *allocated = 40; }
__attribute__((destructor)) static void end(void) { free(allocated); }
int answer(void) { return *allocated + 2 + 0 * ++calls; }
#else
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
    PAGE = 4096,
    RECORD = 64,
    // Then the file of records begins anew.
    RECORDS_MAX = 20000,
    MAPPED_PAGES = 64,
    STACK = 1 << 18,
    // A thread that has not come round for so many seconds hangs.
    HANGS_SECONDS = 300,
    ROUNDS_MIN = 5,
};
enum { ALLOCATES, LOADS, FORKS, SPAWNS, APPENDS, REPLACES, MAPS, PRINTS, KINDS };
static const char *const names[KINDS] = {"allocates", "loads", "forks", "spawns", "appends", "replaces", "maps", "prints"};

// Written by the program, one word by one thread, but for the ticks; read when it is dead.
struct notes {
    _Atomic long rounds[KINDS];
    // Bytes of the handler that are in their file, and that are there or on their way.
    _Atomic long ticks_ended, ticks_begun;
    // Of the file of records: how many are synced, of which time that it has begun.
    _Atomic long records, generation;
    // The last that has been put in place, or synced.
    _Atomic long version, mapped;
};

extern char **environ;
static struct notes *notes;
static const char *own, *directory, *library;
static int fixed, ticks;
static pid_t first;

#define MUST(condition) \
    do { \
        if (!(condition)) \
            failed(#condition, __LINE__); \
    } while (0)

static void failed(const char *what, int line) {
    dprintf(2, "stress: line %d: %s does not hold: %s\n", line, what, strerrorname_np(errno));
    _exit(1);
}

static uint8_t pattern(long seed, long at) {
    return (uint64_t)(seed * 131 + at + 7) * 0x9e3779b97f4a7c15u >> 56;
}

static void fill(uint8_t *bytes, long count, long seed) {
    for (long at = 0; at < count; at++)
        bytes[at] = pattern(seed, at);
}

static int is_filled(const uint8_t *bytes, long count, long seed) {
    for (long at = 0; at < count; at++)
        if (bytes[at] != pattern(seed, at))
            return 0;
    return 1;
}

// On any thread, in any call.
static void tick(int signal) {
    static __thread unsigned turn;
    int error = errno;
    uint8_t bytes[RECORD];
    struct stat info;
    long at = turn++ * 61 % (PAGE - RECORD);
    MUST(pread(fixed, bytes, RECORD, at) == RECORD);
    for (int each = 0; each < RECORD; each++)
        MUST(bytes[each] == pattern(1, at + each));
    if (turn % 4 == 0) {
        MUST(fstat(fixed, &info) == 0 && info.st_size == PAGE);
        MUST(access("fixed", R_OK) == 0 || chdir(directory) != 0);
    }
    if (getpid() == first) {
        notes->ticks_begun++;
        MUST(write(ticks, "t", 1) == 1);
        notes->ticks_ended++;
    }
    errno = error;
}

// The kernel's timer for this thread alone.
static void begin_ticks(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    event.sigev_notify_thread_id = gettid();
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    MUST(timer_settime(timer, 0, &each, NULL) == 0);
}

static void allocates(long round) {
    static __thread uint8_t *kept[64];
    static __thread long sizes[64];
    int at = round * 7 % 64;
    if (kept[at])
        MUST(is_filled(kept[at], sizes[at] < 200 ? sizes[at] : 200, at));
    long size = 1 + (long)pattern(round, 3) * pattern(round, 4) * (round % 5 == 0 ? 16 : 1);
    if (round % 3 == 0) {
        MUST(kept[at] = realloc(kept[at], size));
    } else {
        free(kept[at]);
        MUST(kept[at] = malloc(size));
    }
    sizes[at] = size;
    fill(kept[at], size < 200 ? size : 200, at);
    kept[at][size - 1] = size < 200 ? pattern(at, size - 1) : 1;
}

static void loads(long round) {
    char path[4096];
    snprintf(path, sizeof path, "%s/library-%ld.so", directory, round % 3);
    void *handle = dlopen(path, round % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
    if (!handle)
        dprintf(2, "stress: %s\n", dlerror());
    MUST(handle);
    int (*answer)(void) = dlsym(handle, "answer");
    MUST(answer && answer() == 42);
    MUST(dlsym(handle, "nothing_of_this_name") == NULL);
    MUST(dlclose(handle) == 0);
}

// A file of a name for this round, written and read again.
static void writes_and_reads(const char *name, long round) {
    uint8_t bytes[PAGE + 100], found[PAGE + 100];
    long size = 1 + round * 37 % sizeof bytes;
    fill(bytes, size, round);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(fd >= 0);
    MUST(write(fd, bytes, size) == size);
    MUST(pread(fd, found, sizeof found, 0) == size && memcmp(bytes, found, size) == 0);
    MUST(close(fd) == 0);
}

static void ends_well(pid_t pid) {
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        dprintf(2, "stress: a child ended with %#x\n", status);
    MUST(status == 0);
}

static void forks(long round) {
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct itimerval each = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &each, NULL);
        free(malloc(1 << 20));
        writes_and_reads("of-child", round);
        FILE *stream = fopen("fixed", "r");
        MUST(stream && fgetc(stream) == pattern(1, 0) && fclose(stream) == 0);
        MUST(unlink("of-child") == 0);
        _exit(0);
    }
    ends_well(pid);
}

static void spawns(long round) {
    writes_and_reads("of-spawned", round);
    char seed[32], path[4096];
    snprintf(seed, sizeof seed, "%ld", round);
    // The program lies outside, or on the volume.
    snprintf(path, sizeof path, "%s/program", directory);
    char *words[] = {"stress", "look", seed, (char *)directory, NULL};
    posix_spawn_file_actions_t actions;
    MUST(posix_spawn_file_actions_init(&actions) == 0);
    MUST(posix_spawn_file_actions_addopen(&actions, 0, "of-spawned", O_RDONLY, 0) == 0);
    pid_t pid = 0;
    errno = posix_spawn(&pid, round % 4 ? own : path, &actions, NULL, words, environ);
    MUST(errno == 0);
    MUST(posix_spawn_file_actions_destroy(&actions) == 0);
    ends_well(pid);
    if (round % 8 == 0) {
        FILE *stream = popen("cat fixed", "r");
        MUST(stream && fgetc(stream) == pattern(1, 0) && fgetc(stream) == pattern(1, 1));
        // What is left is read to its end, so that `cat` ends well.
        while (fgetc(stream) != EOF)
            ;
        MUST(pclose(stream) == 0);
    }
}

// What is spawned: its standard input is the file.
static int look(const char *seed, const char *place) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint8_t found[2 * PAGE];
    long round = atol(seed), size = 1 + round * 37 % (PAGE + 100);
    MUST(chdir(place) == 0);
    MUST(read(0, found, sizeof found) == size && is_filled(found, size, round));
    writes_and_reads("of-looking", round);
    return 0;
}

static void record(char *text, long generation, long number) {
    char line[128];
    snprintf(line, sizeof line, "%030ld %032ld", generation, number);
    line[RECORD - 1] = '\n';
    memcpy(text, line, RECORD);
}

static void appends(long round) {
    static long count = RECORDS_MAX;
    static int fd = -1;
    char text[RECORD];
    if (count == RECORDS_MAX) {
        if (fd >= 0)
            MUST(close(fd) == 0);
        notes->records = 0;
        notes->generation++;
        MUST((fd = open("records", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600)) >= 0);
        count = 0;
    }
    for (int each = 0; each < 8; each++) {
        record(text, notes->generation, count++);
        MUST(write(fd, text, RECORD) == RECORD);
    }
    MUST(fdatasync(fd) == 0);
    notes->records = count;
}

static void replaces(long round) {
    uint8_t bytes[PAGE], found[PAGE];
    int fd = open("new-version", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(fd >= 0);
    fill(bytes, PAGE, round);
    memcpy(bytes, &round, sizeof round);
    MUST(write(fd, bytes, PAGE) == PAGE && fsync(fd) == 0 && close(fd) == 0);
    MUST(rename("new-version", "version") == 0);
    notes->version = round;
    MUST((fd = open("version", O_RDONLY)) >= 0);
    MUST(read(fd, found, PAGE) == PAGE && memcmp(bytes, found, PAGE) == 0 && close(fd) == 0);
}

static void maps(long round) {
    static int fd = -1;
    static long *at = MAP_FAILED;
    long found[PAGE / sizeof *at];
    if (round % 100 == 1) {
        if (fd >= 0)
            MUST(munmap(at, MAPPED_PAGES * PAGE) == 0 && close(fd) == 0);
        MUST((fd = open("mapped", O_RDWR | O_CREAT, 0600)) >= 0);
        MUST(ftruncate(fd, MAPPED_PAGES * PAGE) == 0);
        at = mmap(NULL, MAPPED_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        MUST(at != MAP_FAILED);
    }
    long page = round % MAPPED_PAGES, *words = at + page * PAGE / sizeof *at;
    for (int each = 0; each < PAGE / sizeof *at; each++) {
        MUST(words[each] == (round > MAPPED_PAGES ? round - MAPPED_PAGES : 0));
        words[each] = round;
    }
    MUST(msync(words, PAGE, MS_SYNC) == 0);
    notes->mapped = round;
    MUST(pread(fd, found, PAGE, page * PAGE) == PAGE && memcmp(found, words, PAGE) == 0);
}

static void prints(long round) {
    static FILE *stream;
    char line[100], expected[100];
    if (round % 50 == 1) {
        if (stream)
            MUST(fclose(stream) == 0);
        MUST(stream = fopen("printed", "w+"));
    }
    long begun = ftell(stream);
    for (int each = 0; each < 20; each++)
        MUST(fprintf(stream, "%ld of %ld: %s\n", round, begun + each, names[each % KINDS]) > 0);
    MUST(fseek(stream, begun, SEEK_SET) == 0);
    for (int each = 0; each < 20; each++) {
        snprintf(expected, sizeof expected, "%ld of %ld: %s\n", round, begun + each, names[each % KINDS]);
        MUST(fgets(line, sizeof line, stream) && strcmp(line, expected) == 0);
    }
    MUST(fflush(NULL) == 0);
    MUST(fseek(stream, 0, SEEK_END) == 0);
}

static void (*const works[KINDS])(long) = {allocates, loads, forks, spawns, appends, replaces, maps, prints};

static void *goes_on(void *kind) {
    begin_ticks();
    for (long round = 1;; round++) {
        works[(long)kind](round);
        notes->rounds[(long)kind]++;
    }
    return NULL;
}

static void copy(const char *from, const char *to) {
    char bytes[1 << 16];
    int source = open(from, O_RDONLY), target = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    MUST(source >= 0 && target >= 0);
    for (ssize_t count; (count = read(source, bytes, sizeof bytes)) != 0;)
        MUST(count > 0 && write(target, bytes, count) == count);
    MUST(close(source) == 0 && close(target) == 0);
}

static void run(int seconds) {
    uint8_t bytes[PAGE];
    copy(own, "program");
    copy(library, "library-0.so"), copy(library, "library-1.so"), copy(library, "library-2.so");
    fill(bytes, PAGE, 1);
    MUST((fixed = open("fixed", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    MUST(write(fixed, bytes, PAGE) == PAGE && fsync(fixed) == 0);
    MUST((ticks = open("ticks", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600)) >= 0);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (long kind = 0; kind < KINDS; kind++) {
        pthread_t thread;
        MUST((errno = pthread_create(&thread, &attributes, goes_on, (void *)kind)) == 0);
    }
    // This thread gets none, and sees whether the others go on.
    long seen[KINDS] = {0};
    int since[KINDS] = {0};
    for (int lasts = 0;; lasts++) {
        int few = 0;
        sleep(1);
        for (int kind = 0; kind < KINDS; kind++) {
            since[kind] = seen[kind] == notes->rounds[kind] ? since[kind] + 1 : 0;
            seen[kind] = notes->rounds[kind];
            few += seen[kind] < ROUNDS_MIN;
            if (since[kind] == HANGS_SECONDS) {
                dprintf(2, "stress: the thread that %s hangs after %ld rounds\n", names[kind], seen[kind]);
                abort();
            }
        }
        if (lasts >= seconds && !few)
            kill(0, SIGKILL);
    }
}

static void check(void) {
    struct stat info;
    MUST(stat("ticks", &info) == 0);
    printf("%ld signals\n", info.st_size);
    MUST(info.st_size >= notes->ticks_ended && info.st_size <= notes->ticks_begun);
    MUST(info.st_size > 0);
    for (int kind = 0; kind < KINDS; kind++) {
        printf("%ld rounds of the thread that %s\n", notes->rounds[kind], names[kind]);
        MUST(notes->rounds[kind] >= ROUNDS_MIN);
    }

    int fd = open("records", O_RDONLY);
    long synced = notes->records, generation = notes->generation, at = 0;
    char found[RECORD], expected[RECORD];
    ssize_t count;
    MUST(fd >= 0);
    for (; (count = read(fd, found, RECORD)) == RECORD; at++) {
        record(expected, generation, at);
        // Killed before the file was cut, with nothing of the new time synced.
        if (synced == 0 && at < RECORDS_MAX && memcmp(found, expected, RECORD))
            record(expected, generation - 1, at);
        MUST(memcmp(found, expected, RECORD) == 0);
    }
    printf("%ld records, %ld synced\n", at, synced);
    MUST(count == 0 && at >= synced && (at <= synced + 8 || synced == 0));

    uint8_t bytes[PAGE];
    long version = 0;
    MUST((fd = open("version", O_RDONLY)) >= 0 && read(fd, bytes, PAGE) == PAGE);
    memcpy(&version, bytes, sizeof version);
    MUST(version == notes->version || version == notes->version + 1);
    for (int each = sizeof version; each < PAGE; each++)
        MUST(bytes[each] == pattern(version, each));

    long mapped = notes->mapped, words[PAGE / sizeof mapped];
    MUST((fd = open("mapped", O_RDONLY)) >= 0);
    for (long round = mapped; round > 0 && round > mapped - MAPPED_PAGES + 1; round--) {
        MUST(pread(fd, words, PAGE, round % MAPPED_PAGES * PAGE) == PAGE);
        for (int each = 0; each < PAGE / sizeof mapped; each++)
            MUST(words[each] == round);
    }
}

int main(int count, char **given) {
    own = realpath("/proc/self/exe", NULL);
    if (count == 4 && strcmp(given[1], "look") == 0)
        return look(given[2], given[3]);
    if (count < 4)
        return 2;
    first = getpid();
    directory = given[2];
    int is_run = strcmp(given[1], "run") == 0;
    int fd = open(given[3], O_RDWR | O_CREAT | (is_run ? O_TRUNC : 0), 0600);
    MUST(fd >= 0 && (!is_run || ftruncate(fd, sizeof *notes) == 0));
    notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(notes != MAP_FAILED);
    MUST(!is_run || count == 6);
    library = is_run ? realpath(given[4], NULL) : NULL;
    MUST(chdir(directory) == 0);
    if (is_run)
        run(atoi(given[5]));
    check();
    return 0;
}
#endif
