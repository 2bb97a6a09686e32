// Random lock operations of many processes, each done on a volume's file and on its twin on a kernel
// file system, in one order for all: every answer must be the same.
//
// usage: locks VOLUME-DIRECTORY KERNEL-DIRECTORY WORKERS OPERATIONS SEED
#include "say.h"
#include <pthread.h>

#define FILES 2
#define NUMBERS 5
#define WORKERS_MAX 64

struct shared {
    pthread_mutex_t order;
    int failed;
    long done[WORKERS_MAX];
    // What a worker is about.
    enum { WORKS, HAS_CHILD, TO_BE_KILLED, ENDED } about[WORKERS_MAX];
    long compared, refused, named, children;
};

static struct shared *shared;
// Each number twice: on the volume and on the kernel's file system.
static int numbers[FILES][NUMBERS][2];
static const char *places[2];
static uint64_t seed;
static char **arguments;

static unsigned draw(unsigned bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (seed >> 11) % bound;
}

static void take_turn(void) {
    int result = pthread_mutex_lock(&shared->order);
    if (result == EOWNERDEAD)
        pthread_mutex_consistent(&shared->order);
}

static void end_turn(void) {
    pthread_mutex_unlock(&shared->order);
}

static int open_one(int side, int file, int number) {
    static const int flags[NUMBERS] = {O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_CLOEXEC, O_RDWR};
    char path[4096];
    snprintf(path, sizeof path, "%s/lock%d", places[side], file);
    return open(path, flags[number] | O_CREAT, 0600);
}

static const int types[] = {F_RDLCK, F_WRLCK, F_UNLCK};

static struct flock draw_lock(void) {
    struct flock lock = {.l_type = types[draw(3)], .l_pid = draw(40) ? 0 : 7};
    lock.l_whence = (int[]){SEEK_SET, SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END}[draw(5)];
    lock.l_start = draw(32);
    lock.l_len = 1 + draw(6);
    switch (draw(24)) {
    case 0: lock.l_len = 0; break;
    case 1: lock.l_len = -(long)draw(9); break;
    case 2: lock.l_start = -(long)draw(30); break;
    case 3: lock.l_start = INT64_MAX - draw(3); break;
    case 4: lock.l_len = INT64_MAX - draw(30); break;
    case 5: lock.l_len = INT64_MIN + draw(3); break;
    case 6: lock.l_start = 0, lock.l_len = 0; break;
    case 7: lock.l_start = INT64_MIN + draw(3); break;
    case 8: lock.l_whence = 3 + draw(9); break;
    case 9: lock.l_type = 3 + draw(30); break;
    }
    return lock;
}

struct answer {
    long value;
    int error;
    struct flock lock;
};

// One call; `extra` is drawn before, so that both sides do the same.
static struct answer act(int fd, int what, unsigned extra, struct flock lock) {
    static const int commands[] = {F_SETLK, F_SETLK, F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK};
    static const int flocks[] = {LOCK_SH, LOCK_EX, LOCK_UN, LOCK_SH | LOCK_EX, 32};
    static const int lockfs[] = {F_TEST, F_TLOCK, F_ULOCK, 17};
    struct answer answer = {.lock = lock};
    errno = 0;
    if (what < 6)
        answer.value = fcntl(fd, commands[what], &answer.lock);
    else if (what == 6)
        answer.value = flock(fd, flocks[extra % 5] | LOCK_NB);
    else if (what == 7)
        answer.value = lockf(fd, lockfs[extra % 4], lock.l_len);
    else
        answer.value = lseek(fd, extra % 40, SEEK_SET);
    answer.error = answer.value == -1 ? errno : 0;
    return answer;
}

static void compare(const char *who, int what, int number, unsigned extra, struct flock asked,
                    struct answer got[2]) {
    struct flock *a = &got[0].lock, *b = &got[1].lock;
    if (got[0].value == got[1].value && got[0].error == got[1].error && a->l_type == b->l_type &&
        a->l_whence == b->l_whence && a->l_start == b->l_start && a->l_len == b->l_len &&
        a->l_pid == b->l_pid)
        return;
    if (shared->failed++ > 5)
        return;
    printf("%s %d: call %d (%u) number %d: type %d whence %d start %ld len %ld\n", who, getpid(),
           what, extra, number, asked.l_type, asked.l_whence, asked.l_start, asked.l_len);
    for (int side = 0; side < 2; side++)
        printf("  %s: %ld %s, type %d whence %d start %ld len %ld pid %d\n",
               side ? "kernel" : "volume", got[side].value, strerrorname_np(got[side].error),
               got[side].lock.l_type, got[side].lock.l_whence, got[side].lock.l_start,
               got[side].lock.l_len, got[side].lock.l_pid);
    fflush(stdout);
}

// What drops locks: closing any number of the file.
static void reopen(int file) {
    int number = draw(NUMBERS - 1), copy = draw(3);
    for (int side = 0; side < 2; side++) {
        int *fd = &numbers[file][number][side];
        if (copy == 0) {
            close(dup(*fd));
        } else if (copy == 1) {
            close(open_one(side, file, 1));
        } else {
            // Never a moment without the number, so that both sides keep theirs.
            int fresh = open_one(side, file, number);
            dup3(fresh, *fd, number == 3 ? O_CLOEXEC : 0);
            close(fresh);
        }
    }
}

static void step(const char *who) {
    int file = draw(FILES), number = draw(NUMBERS), what = draw(100);
    struct flock asked = draw_lock();
    unsigned extra = draw(1000);
    take_turn();
    if (what < 4) {
        reopen(file);
    } else {
        what = (what - 4) * 9 / 96;
        struct answer got[2];
        for (int side = 0; side < 2; side++)
            got[side] = act(numbers[file][number][side], what, extra, asked);
        compare(who, what, number, extra, asked, got);
        // A wait that is not one: both must grant it at once.
        if (what == 0 && got[1].value == 0) {
            for (int side = 0; side < 2; side++) {
                got[side].lock = asked;
                got[side].value = fcntl(numbers[file][number][side], F_SETLKW, &got[side].lock);
            }
            compare(who, 100, number, extra, asked, got);
        }
        shared->compared++;
        shared->refused += got[1].error == EAGAIN;
        shared->named += (what == 4 || what == 5) && got[1].lock.l_type != F_UNLCK;
    }
    end_turn();
}

static void steps(const char *who, int count) {
    for (int at = 0; at < count; at++)
        step(who);
}

// A child that is told when to end and how; `speak` and `listen` are its pipes.
static void child(int listen, int speak, int executed) {
    steps(executed ? "executed" : "child", 5 + draw(20));
    write(speak, "d", 1);
    char order;
    if (read(listen, &order, 1) != 1)
        _exit(3);
    if (order == 'x') {
        char text[32][32], *list[FILES * NUMBERS * 2 + 16];
        int count = 0;
        for (; count < 6; count++)
            list[count] = arguments[count];
        snprintf(text[0], 32, "%d", listen), list[count++] = text[0];
        snprintf(text[1], 32, "%d", speak), list[count++] = text[1];
        snprintf(text[2], 32, "%lu", seed), list[count++] = text[2];
        int *all = &numbers[0][0][0];
        for (int at = 0; at < FILES * NUMBERS * 2; at++)
            snprintf(text[3 + at], 32, "%d", all[at]), list[count++] = text[3 + at];
        list[count] = NULL;
        execv(list[0], list);
        _exit(4);
    }
    if (order == 'e')
        exit(0);
    _exit(0);
}

static void expect(int speak, char wanted) {
    char said;
    if (read(speak, &said, 1) != 1 || said != wanted)
        shared->failed++, printf("a child did not say %c\n", wanted), fflush(stdout);
}

// Lets a child work and end. It ends while nobody else works: what it held is gone at once.
static void with_child(int worker) {
    int down[2], up[2];
    pipe(down), pipe(up);
    take_turn();
    shared->about[worker] = HAS_CHILD;
    shared->children++;
    uint64_t other = seed ^ 0x9E3779B97F4A7C15;
    fflush(stdout);
    int pid = fork();
    if (pid == 0) {
        seed = other;
        close(down[1]), close(up[0]);
        child(down[0], up[1], 0);
    }
    end_turn();
    close(down[0]), close(up[1]);
    steps("parent", draw(10));
    expect(up[0], 'd');
    int end = draw(5);
    if (end >= 3) {
        take_turn();
        write(down[1], "x", 1);
        expect(up[0], 'u');
        end_turn();
        steps("parent", draw(10));
        expect(up[0], 'd');
    }
    take_turn();
    if (end % 3 == 0)
        kill(pid, SIGKILL);
    else
        write(down[1], end % 3 == 1 ? "e" : "q", 1);
    int status;
    waitpid(pid, &status, 0);
    if (end % 3 != 0 && status != 0)
        shared->failed++, printf("a child ended with %x\n", status), fflush(stdout);
    shared->about[worker] = WORKS;
    end_turn();
    close(down[1]), close(up[0]);
}

static void work(int worker, long operations, uint64_t start) {
    seed = start;
    for (int file = 0; file < FILES; file++)
        for (int number = 0; number < NUMBERS - 1; number++)
            for (int side = 0; side < 2; side++)
                numbers[file][number][side] = open_one(side, file, number);
    while (shared->done[worker] < operations) {
        step("worker");
        shared->done[worker]++;
        if (draw(400) == 0)
            with_child(worker);
        if (draw(1000) == 0) {
            shared->about[worker] = TO_BE_KILLED;
            pause();
        }
    }
    // It is killed while nobody else works: what it held is gone at once.
    shared->about[worker] = ENDED;
    for (;;)
        pause();
}

static struct shared *map_shared(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/shared", places[1]);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ftruncate(fd, sizeof *shared);
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at;
}

int main(int argc, char **argv) {
    arguments = argv;
    places[0] = argv[1], places[1] = argv[2];
    int workers = atoi(argv[3]);
    long operations = atol(argv[4]);
    shared = map_shared();
    if (argc > 6) {
        seed = strtoul(argv[8], NULL, 10);
        int *all = &numbers[0][0][0];
        for (int at = 0; at < FILES * NUMBERS * 2; at++)
            all[at] = atoi(argv[9 + at]);
        for (int file = 0; file < FILES; file++)
            for (int side = 0; side < 2; side++)
                numbers[file][3][side] = numbers[file][0][side];
        write(atoi(argv[7]), "u", 1);
        child(atoi(argv[6]), atoi(argv[7]), 1);
    }
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->order, &kind);
    seed = strtoul(argv[5], NULL, 10) * 0x9E3779B97F4A7C15 + 1;
    // The last number is everybody's: one description.
    for (int file = 0; file < FILES; file++)
        for (int side = 0; side < 2; side++) {
            numbers[file][NUMBERS - 1][side] = open_one(side, file, NUMBERS - 1);
            write(numbers[file][NUMBERS - 1][side], "twenty bytes of text", 20);
        }
    int pids[WORKERS_MAX], left = workers, killed = 0;
    for (int worker = 0; worker < workers; worker++)
        if ((pids[worker] = fork()) == 0)
            work(worker, operations, seed + worker * 7919);
    while (left > 0) {
        usleep(200);
        take_turn();
        for (int worker = 0; worker < workers; worker++) {
            int about = shared->about[worker];
            // Anybody may be killed who is not waited for.
            int chosen = about == WORKS && draw(200) == 0;
            if (pids[worker] == 0 || !chosen && about < TO_BE_KILLED)
                continue;
            int ended = about == ENDED;
            kill(pids[worker], SIGKILL);
            waitpid(pids[worker], NULL, 0);
            pids[worker] = 0;
            shared->about[worker] = WORKS;
            if (ended) {
                left--;
            } else {
                killed++;
                if ((pids[worker] = fork()) == 0)
                    work(worker, operations, seed + killed * 104729 + worker);
            }
        }
        end_turn();
    }
    printf("%ld compared, %ld refused, %ld named, %ld children, %d killed, %d differences\n",
           shared->compared, shared->refused, shared->named, shared->children, killed,
           shared->failed);
    return shared->failed != 0;
}
