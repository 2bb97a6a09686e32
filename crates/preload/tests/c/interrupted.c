// Every kind of call, interrupted at random by a timer and by a second thread, whose handlers use
// the volume themselves, and in the second half jump out of the call. The contents are compared
// with a model in memory; nothing may be lost, doubled or left locked.
#include "say.h"
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>

enum { BLOCKS = 16, BLOCK = 3000, KINDS = 26, HANDLER_KINDS = 9 };

static volatile int failures, line_of_failure, jumping, stopped;
static volatile long handled, jumped;
static __thread volatile int worker_thread, depth;
static sigjmp_buf jump;
static volatile int may_jump;
static int handler_file, handler_lock;
static pthread_t first, worker;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            failures++; \
            line_of_failure = __LINE__; \
        } \
    } while (0)

static unsigned next_random(unsigned *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

// What a handler does: never with memory of malloc's, which it may have interrupted.
static void use_volume(long number, int thread) {
    char bytes[64], name[32], second[32];
    struct stat status;
    struct flock lock = {.l_type = F_WRLCK, .l_start = 1000 + thread, .l_len = 1};
    snprintf(name, sizeof name, "handler-%d-%d", thread, depth);
    snprintf(second, sizeof second, "handler-new-%d-%d", thread, depth);
    memset(bytes, 'a' + thread, sizeof bytes);
    switch (number % HANDLER_KINDS) {
    case 0:
        CHECK(pwrite(handler_file, bytes, 64, 64 * thread) == 64);
        break;
    case 1:
        CHECK(pread(handler_file, bytes, 64, 64 * thread) == 64);
        CHECK(bytes[0] == 'a' + thread && bytes[63] == 'a' + thread);
        break;
    case 2:
        CHECK(fcntl(handler_file, F_SETLK, &lock) == 0);
        lock.l_type = F_UNLCK;
        CHECK(fcntl(handler_file, F_SETLK, &lock) == 0);
        break;
    case 3:
        CHECK(stat("kept", &status) == 0 && status.st_size == BLOCKS * BLOCK);
        break;
    case 4: {
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && write(fd, "handler", 7) == 7 && close(fd) == 0);
        CHECK(rename(name, second) == 0 && unlink(second) == 0);
        break;
    }
    case 5:
        if (thread == 0) {
            CHECK(flock(handler_lock, LOCK_EX | LOCK_NB) == 0);
            CHECK(flock(handler_lock, LOCK_UN) == 0);
        }
        break;
    case 6:
        CHECK(mkdir(name, 0700) == 0 && rmdir(name) == 0);
        break;
    case 7:
        CHECK(symlink("kept", second) == 0 && unlink(second) == 0);
        break;
    case 8:
        CHECK(ftruncate(handler_file, 4096) == 0 && fstat(handler_file, &status) == 0);
        CHECK(fsync(handler_file) == 0);
        break;
    }
}

static void handler(int signal) {
    int error = errno, thread = worker_thread;
    static __thread long count;
    depth++;
    use_volume(count++, thread);
    depth--;
    __sync_fetch_and_add(&handled, 1);
    if (jumping && !thread && may_jump && count % 3 == 0) {
        jumped++;
        siglongjmp(jump, 1);
    }
    errno = error;
}

// One block's bytes, and what the file may hold after a write that was jumped out of.
struct block {
    unsigned char now, before;
    int either;
};

static void check_block(int fd, struct block *block, int index) {
    unsigned char bytes[BLOCK];
    CHECK(pread(fd, bytes, BLOCK, (off_t)index * BLOCK) == BLOCK);
    for (int at = 1; at < BLOCK; at++)
        if (bytes[at] != bytes[0]) {
            CHECK(0);
            return;
        }
    CHECK(bytes[0] == block->now || (block->either && bytes[0] == block->before));
    block->now = bytes[0];
    block->either = 0;
}

static void write_block(int fd, struct block *block, int index, unsigned value, int how) {
    unsigned char bytes[BLOCK];
    memset(bytes, value, BLOCK);
    struct iovec parts[2] = {{bytes, 1000}, {bytes + 1000, BLOCK - 1000}};
    // Which of both a write left that was jumped out of, before there is a third.
    if (block->either)
        check_block(fd, block, index);
    block->before = block->now;
    __sync_synchronize();
    block->either = 1;
    __sync_synchronize();
    block->now = value;
    __sync_synchronize();
    ssize_t done = how == 0   ? pwrite(fd, bytes, BLOCK, (off_t)index * BLOCK)
                   : how == 1 ? pwritev(fd, parts, 2, (off_t)index * BLOCK)
                              : (lseek(fd, (off_t)index * BLOCK, SEEK_SET), write(fd, bytes, BLOCK));
    CHECK(done == BLOCK);
    __sync_synchronize();
    block->either = 0;
}

static void metadata(const char *name, unsigned kind) {
    char other[64], text[512];
    struct stat status;
    struct statvfs space;
    snprintf(other, sizeof other, "%s-other", name);
    switch (kind) {
    case 0: CHECK(close(creat(name, 0600)) == 0); break;
    case 1: CHECK(link("kept", other) == 0 || errno == EEXIST); unlink(other); break;
    case 2: symlink("x", other); CHECK(readlink(other, text, 64) >= 1 || jumping); unlink(other); break;
    case 3: rename(name, other); rename(other, name); break;
    case 4: mkdir(other, 0700); rmdir(other); break;
    case 5: CHECK(stat("kept", &status) == 0 && lstat("kept", &status) == 0); break;
    case 6: CHECK(access("kept", R_OK) == 0 && chmod("kept", 0644) == 0); break;
    case 7: CHECK(utimensat(AT_FDCWD, "kept", NULL, 0) == 0 && statvfs(".", &space) == 0); break;
    case 8: CHECK(setxattr("kept", "user.a", "value", 5, 0) == 0);
            CHECK(getxattr("kept", "user.a", text, 64) == 5); break;
    case 9: CHECK(getcwd(text, sizeof text) && truncate("kept", BLOCKS * BLOCK) == 0); break;
    }
}

static void spawn_child(void) {
    pid_t pid;
    char *arguments[] = {"true", NULL};
    CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0);
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    CHECK(status == 0);
}

static void fork_child(int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        _exit(pread(fd, &byte, 1, 0) == 1 ? 0 : 1);
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    CHECK(status == 0);
}

// A signal may cut a copy short.
static int moved(ssize_t count) {
    return count > 0 && count <= BLOCK || count < 0 && errno == EINTR;
}

static void copies(int fd, const char *name) {
    int target = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t from = 0, to = 0;
    CHECK(target >= 0);
    CHECK(moved(copy_file_range(fd, &from, target, &to, BLOCK, 0)));
    from = 0;
    CHECK(moved(sendfile(target, fd, &from, BLOCK)));
    int ends[2];
    CHECK(pipe(ends) == 0);
    from = 0;
    ssize_t count = splice(fd, &from, ends[1], NULL, BLOCK, 0);
    CHECK(moved(count));
    char bytes[BLOCK];
    CHECK(count < 1 || read(ends[0], bytes, BLOCK) == count);
    close(ends[0]);
    close(ends[1]);
    close(target);
}

static unsigned char *reserved;

// Who is jumped out of a mapping leaves it behind: always in the same place, else they become
// thousands.
static void maps(int fd, struct block *blocks, int index) {
    int fixed = jumping ? MAP_FIXED : 0;
    unsigned char *at = mmap(jumping ? reserved : NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE,
                             MAP_SHARED | fixed, fd, 0);
    CHECK(at != MAP_FAILED);
    if (at == MAP_FAILED)
        return;
    CHECK(at[index * BLOCK] == blocks[index].now || blocks[index].either || jumping);
    CHECK(msync(at, BLOCKS * BLOCK, MS_SYNC) == 0);
    if (jumping)
        CHECK(mmap(at, BLOCKS * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
              at);
    else
        CHECK(munmap(at, BLOCKS * BLOCK) == 0);
}

// Calls that allocate: not to be jumped out of.
static void streams(const char *name) {
    FILE *stream = fopen(name, "w+");
    CHECK(stream && fprintf(stream, "%s\n", name) > 0 && fclose(stream) == 0);
    DIR *dir = opendir(".");
    int found = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        found += strcmp(entry->d_name, "kept") == 0;
    CHECK(found == 1 && closedir(dir) == 0);
    char resolved[PATH_MAX];
    CHECK(realpath(name, resolved) && unlink(name) == 0);
}

static void step(int fd, struct block *blocks, const char *name, unsigned *state) {
    unsigned kind = next_random(state) % KINDS, index = next_random(state) % BLOCKS;
    struct flock lock = {.l_type = F_WRLCK, .l_start = worker_thread, .l_len = 1};
    switch (kind) {
    case 0: case 1: case 2:
        write_block(fd, &blocks[index], index, next_random(state), kind);
        break;
    case 3: case 4: case 5: case 6:
        check_block(fd, &blocks[index], index);
        break;
    case 7: {
        int second = dup(fd), third = fcntl(fd, F_DUPFD_CLOEXEC, 50);
        CHECK(second >= 0 && third >= 50);
        CHECK(dup2(second, third) == third && close(second) == 0 && close(third) == 0);
        break;
    }
    case 8:
        CHECK(fcntl(fd, F_SETLKW, &lock) == 0 || errno == EINTR);
        lock.l_type = F_UNLCK;
        CHECK(fcntl(fd, F_SETLK, &lock) == 0);
        break;
    case 9:
        CHECK(flock(fd, LOCK_EX) == 0 || errno == EINTR);
        CHECK(flock(fd, LOCK_UN) == 0);
        break;
    case 10:
        CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
        break;
    case 11:
        copies(fd, name);
        break;
    case 12:
        maps(fd, blocks, index);
        break;
    case 13:
        // tmpfs looks for signals at every page.
        CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, BLOCKS * BLOCK) == 0 || errno == EINTR);
        break;
    case 14:
        if (!jumping)
            streams(name);
        break;
    case 15:
        if (index == 0 && !jumping && !worker_thread)
            fork_child(fd);
        if (index == 1 && !jumping && !worker_thread)
            spawn_child();
        break;
    default:
        metadata(name, kind - 16);
    }
}

// Whether the first thread has not been interrupted often enough yet: on a busy machine that takes longer.
static int is_early(double passed) {
    return !worker_thread && passed < 60 && (handled <= 50 || (jumping && jumped <= 5));
}

static int run(const char *file, const char *name, unsigned state, double seconds) {
    struct block blocks[BLOCKS] = {0};
    int low = open(file, O_RDWR | O_CREAT | O_TRUNC, 0644), fd = 40 + worker_thread;
    CHECK(dup2(low, fd) == fd && close(low) == 0);
    CHECK(ftruncate(fd, BLOCKS * BLOCK) == 0);
    struct timespec start, now;
    double passed;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        if (!worker_thread) {
            if (sigsetjmp(jump, 1) != 0) {
                may_jump = 0;
                depth = 0;
                close_range(handler_lock + 1, 39, 0);
                close_range(42, 99, 0);
                // What was half done: else a directory might take the place of a file.
                char other[64];
                snprintf(other, sizeof other, "%s-other", name);
                unlink(other);
                rmdir(other);
                rmdir(name);
            }
            may_jump = jumping;
        }
        for (int count = 0; count < 20; count++)
            step(fd, blocks, name, &state);
        may_jump = 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        passed = now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9;
    } while (passed < seconds || is_early(passed));
    for (int index = 0; index < BLOCKS; index++)
        check_block(fd, &blocks[index], index);
    return close(fd);
}

static double seconds = 1;

static void *work(void *argument) {
    worker_thread = 1;
    pthread_sigmask(SIG_SETMASK, argument, NULL);
    run("workers", "worker", 77, seconds);
    return NULL;
}

static void *disturb(void *argument) {
    for (unsigned state = 5; !stopped;) {
        pthread_kill(first, SIGUSR1);
        pthread_kill(worker, SIGUSR1);
        usleep(50 + next_random(&state) % 150);
    }
    return NULL;
}

static void round_of(int jumps, int nested) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (!nested)
        sigfillset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    action.sa_flags = nested ? SA_NODEFER : 0;
    sigaction(SIGUSR1, &action, NULL);
    jumping = jumps;
    reserved = mmap(NULL, BLOCKS * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stopped = 0;
    handled = 0;
    pthread_t disturber;
    first = pthread_self();
    worker = first;
    // The worker knows who it is before it gets a signal.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (!jumps)
        pthread_create(&worker, NULL, work, &before);
    // It has all signals blocked for ever: who jumped out of its handler would land on this stack.
    pthread_create(&disturber, NULL, disturb, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    struct itimerval every = {{0, 130}, {0, 130}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    CHECK(run("mine", "main", 99 + jumps, seconds) == 0);
    stopped = 1;
    pthread_join(disturber, NULL);
    if (!jumps)
        pthread_join(worker, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    // First where: the comparison tells the first difference.
    SAY(failures ? line_of_failure : 0);
    SAY(failures);
    SAY(handled > 50);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    if (getenv("SOLERA_TEST_LONG"))
        seconds = 20;
    put("kept", "");
    truncate("kept", BLOCKS * BLOCK);
    handler_file = open("handlers", O_RDWR | O_CREAT, 0644);
    handler_lock = open("handlers-lock", O_RDWR | O_CREAT, 0644);
    use_volume(0, 0);
    use_volume(0, 1);
    round_of(0, 0);
    round_of(0, 1);
    round_of(1, 0);
    SAY(jumped > 5);
    // Nothing is left locked, and everything goes away.
    CHECK(fcntl(handler_file, F_SETLKW, &(struct flock){.l_type = F_WRLCK}) == 0);
    CHECK(flock(handler_lock, LOCK_EX | LOCK_NB) == 0);
    if (fork() == 0) {
        int fd = open("mine", O_RDWR);
        alarm(0);
        _exit(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}) != 0 || unlink("mine") != 0);
    }
    int status = -1;
    wait(&status);
    SAY(status);
    SAY(failures);
    return 0;
}
