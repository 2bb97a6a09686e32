// Does what a program may do with pipes, mapped files and other users, and says what came of it:
// the same on tmpfs, on a volume and on a domain's volume. alike CASE DIRECTORY [WORD].
//   waits    calls that end at once, or by a signal, with buffers in a hole of a mapped file
//   guards   guard pages beside pages that are touched
//   private  private mappings of files, in children and moved
//   user     children of a process that has become another user, and has got another root (WORD)
//   gaps     many threads touch the same hole at once, which was filled by calls (WORD rounds)
//   held     touches and calls while pages do not come: a line on standard input for each
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 << 8, HUNG_S = 120 };
#define GUARD_INSTALL 102

static char path[4096];

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static char content(size_t page) { return (char)(1 + page % 250); }

// A file with content, larger than a node.
static int made_file(void) {
    static char bytes[PAGE];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || fchmod(file, 0666)) fail("making the file");
    for (size_t page = 0; page < PAGES; page++) {
        memset(bytes, content(page), PAGE);
        if (write(file, bytes, PAGE) != PAGE) fail("writing the file");
    }
    return file;
}

// A file of so many pages, all of which are holes.
static int hole(size_t pages) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || ftruncate(file, (off_t)(pages * PAGE))) fail("making the file");
    return file;
}

static char *mapped(int file, size_t pages, int kind) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, kind, file, 0);
    if (at == MAP_FAILED) fail("mapping the file");
    return at;
}

static long wrong(const volatile char *at, size_t pages) {
    long found = 0;
    for (size_t page = 0; page < pages; page++) found += at[page * PAGE + 7] != content(page);
    return found;
}

// By calls, each of which asks a holder: of one of so many pages.
static long wrong_in_file(int file, size_t step) {
    char byte;
    long found = 0;
    for (size_t page = 0; page < PAGES; page += step)
        found += pread(file, &byte, 1, (off_t)(page * PAGE + 7)) != 1 || byte != content(page);
    return found;
}

static const char *ended(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
    if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
    return WEXITSTATUS(status) ? "exit" : "ok";
}

// ---- waits --------------------------------------------------------------------------------------

// A call in a process of its own: one that hangs is ended.
#define TELL(name, call)                                                                       \
    do {                                                                                       \
        pid_t child = fork();                                                                  \
        if (child == 0) {                                                                      \
            alarm(HUNG_S);                                                                     \
            errno = 0;                                                                         \
            long got = (call);                                                                 \
            printf("%s: %ld %s\n", name, got, got < 0 ? strerrorname_np(errno) : "");           \
            _exit(0);                                                                          \
        }                                                                                      \
        const char *end = ended(child);                                                        \
        if (strcmp(end, "ok")) printf("%s: %s\n", name, end);                                   \
    } while (0)

static void calls_that_end_at_once(char *to, int ends[2], int pair[2]) {
    struct iovec piece = {to, 8}, none = {to, 0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct msghdr bad_name = message;
    bad_name.msg_name = to, bad_name.msg_namelen = -1;
    volatile int negative = -1;
    TELL("read of a write end", read(ends[1], to, 8));
    TELL("readv of a write end", readv(ends[1], &piece, 1));
    TELL("read of what is only a path", read(open("/dev/null", O_PATH), to, 8));
    TELL("pread of a pipe", pread(ends[0], to, 8, 0));
    TELL("pread of a write end", pread(ends[1], to, 8, 0));
    TELL("preadv of a pipe", preadv(ends[0], &piece, 1, 0));
    TELL("preadv2 of a pipe", preadv2(ends[0], &piece, 1, 0, 0));
    TELL("preadv2 that does not wait", preadv2(ends[0], &piece, 1, -1, RWF_NOWAIT));
    TELL("preadv2 with an unknown flag", preadv2(ends[0], &piece, 1, -1, 1 << 30));
    TELL("pread of a socket", pread(pair[0], to, 8, 0));
    TELL("read of 0 bytes", read(ends[0], to, 0));
    TELL("readv of 0 pieces", readv(ends[0], &piece, 0));
    TELL("readv of a piece of 0 bytes", readv(ends[0], &none, 1));
    TELL("readv of -1 pieces", readv(ends[0], &piece, negative));
    TELL("read to no address", read(ends[0], (void *)-PAGE, 8));
    TELL("recv of a pipe", recv(ends[0], to, 8, 0));
    TELL("recvfrom of a pipe", recvfrom(ends[0], to, 8, 0, NULL, NULL));
    TELL("recvmsg of a pipe", recvmsg(ends[0], &message, 0));
    TELL("recvmsg with a bad name", recvmsg(pair[0], &bad_name, 0));
    TELL("recv that does not wait", recv(pair[0], to, 8, MSG_DONTWAIT));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(listener, 1)) fail("listen");
    TELL("recv of what listens", recv(listener, to, 8, 0));
    TELL("read of what listens", read(listener, to, 8));
    TELL("recv of what is not connected", recv(socket(AF_INET, SOCK_STREAM, 0), to, 8, 0));
}

static volatile sig_atomic_t handled;
static void on_signal(int number) {
    (void)number;
    handled++;
}

// Waits until a process sleeps in `read` or `poll` (or has ended).
static void await_sleep(pid_t child) {
    char name[64], text[64];
    snprintf(name, sizeof name, "/proc/%d/syscall", child);
    for (;;) {
        FILE *file = fopen(name, "r");
        int number = -1;
        if (file && fgets(text, sizeof text, file)) sscanf(text, "%d ", &number);
        if (file) fclose(file);
        siginfo_t info = {0};
        int failed = waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT);
        if (failed || info.si_pid || number == SYS_read || number == SYS_poll) return;
        usleep(1000);
    }
}

// One signal ends a read, or does not, as its handler is installed.
static void signalled(char *to, int flags) {
    int ends[2];
    if (pipe(ends)) fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
        sigaction(SIGUSR1, &action, NULL);
        alarm(HUNG_S);
        errno = 0;
        long got = read(ends[0], to, 8);
        printf("a read that a signal meets: %ld %s, %d handled\n", got,
               got < 0 ? strerrorname_np(errno) : "", (int)handled);
        _exit(0);
    }
    await_sleep(child);
    kill(child, SIGUSR1);
    if (flags & SA_RESTART) {
        await_sleep(child);
        if (write(ends[1], "abc", 3) != 3) fail("write");
    }
    printf("its process: %s\n", ended(child));
}

static void waits(void) {
    char *to = mapped(hole(256), 256, MAP_SHARED);
    int ends[2], pair[2];
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail("pipe");
    calls_that_end_at_once(to, ends, pair);
    signalled(to + 100 * PAGE, 0);
    signalled(to + 120 * PAGE, SA_RESTART);
    printf("of the hole: %d\n", to[100 * PAGE]);
}

// ---- guards -------------------------------------------------------------------------------------

static sigjmp_buf out;
static void caught(int number) { siglongjmp(out, number); }

static void touch(const char *what, volatile char *at, int value) {
    int number = sigsetjmp(out, 1);
    if (number) {
        printf("%s: signal %d\n", what, number);
        return;
    }
    if (value) *at = (char)value;
    printf("%s: %d\n", what, *at);
}

static void guards_in(const char *kind, int file) {
    char byte = 0, *at = mapped(file, 64, MAP_SHARED);
    int ends[2];
    if (pipe(ends)) fail("pipe");
    int got = madvise(at + 5 * PAGE, PAGE, GUARD_INSTALL);
    printf("%s: guard %d %s\n", kind, got, got ? strerrorname_np(errno) : "");
    if (got) return;
    touch("the guarded page", at + 5 * PAGE, 0);
    touch("the one in front of it", at + 4 * PAGE, 6);
    touch("the guarded page again", at + 5 * PAGE, 9);
    printf("written from it: %zd\n", write(ends[1], at + 5 * PAGE, 10));
    touch("the guarded page at last", at + 5 * PAGE, 9);
    if (pread(file, &byte, 1, 5 * PAGE) != 1) fail("pread");
    printf("in the file: %d\n", byte);
}

static void guards(void) {
    signal(SIGSEGV, caught);
    signal(SIGBUS, caught);
    guards_in("content", made_file());
    guards_in("a hole", hole(64));
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("memory: guard %d\n", madvise(own, PAGE, GUARD_INSTALL));
    touch("guarded memory", own, 1);
}

// ---- private mappings ---------------------------------------------------------------------------

// Children and parent touch one after another what was mapped before; each its own pages.
static void inherited(const char *kind, int file, size_t pages, int stores) {
    char *at = mapped(file, pages, MAP_PRIVATE), byte;
    printf("%s, %s:", kind, stores ? "stored to" : "read");
    for (int one = 0; one < 4; one++) {
        pid_t child = one == 3 ? 0 : fork();
        if (child == 0) {
            int sum = 0;
            for (size_t page = 0; page < pages; page++) {
                sum += at[page * PAGE];
                if (stores) at[page * PAGE] = (char)(one + 1);
            }
            if (sum) printf(" [sum %d]", sum);
            if (one < 3) _exit(0);
        }
        printf(" %s", one == 3 ? "parent" : ended(child));
    }
    int stored = 0;
    for (size_t page = 0; page < pages; page++)
        stored += pread(file, &byte, 1, (off_t)(page * PAGE)) != 1 || byte != 0;
    printf(", %d stored in the file\n", stored);
    munmap(at, pages * PAGE);
}

static void private_mappings(void) {
    enum { SOME = 4 << 8 };
    static char zeros[SOME * PAGE];
    for (int stores = 0; stores < 2; stores++) {
        inherited("a hole", hole(SOME), SOME, stores);
        int file = hole(SOME);
        if (posix_fallocate(file, 0, SOME * PAGE)) fail("posix_fallocate");
        inherited("allocated", file, SOME, stores);
        file = hole(SOME);
        if (write(file, zeros, sizeof zeros) != sizeof zeros) fail("write");
        inherited("written", file, SOME, stores);
    }
    int file = made_file();
    size_t half = PAGES / 2 * PAGE;
    char *at = mapped(file, PAGES, MAP_PRIVATE), *kept = mapped(file, 16, MAP_PRIVATE);
    for (size_t page = 0; page < PAGES; page += 2) at[page * PAGE + 9] = 99;
    char *to = mmap(NULL, half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(at, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) fail("mremap");
    if (madvise(kept, 16 * PAGE, MADV_DONTFORK)) fail("MADV_DONTFORK");
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        long found = wrong(to, PAGES / 2), own = 0;
        for (size_t page = 0; page < PAGES / 2; page++)
            own += to[page * PAGE + 9] != (page % 2 ? content(page) : 99);
        if (child == 0) _exit(found || own);
        printf("moved: %ld and %ld wrong, child %s\n", found, own, ended(child));
    }
    printf("not moved: %ld wrong, in the file %ld\n", wrong(kept, 16), wrong_in_file(file, 4));
}

// ---- another user -------------------------------------------------------------------------------

static void user(const char *root) {
    int file = made_file();
    char *at = mapped(file, PAGES, MAP_SHARED);
    if (root && (chroot(root) || chdir("/"))) fail("chroot");
    if (setgid(99) || setuid(99)) fail("another user");
    printf("parent: %ld wrong, in the file %ld\n", wrong(at, PAGES), wrong_in_file(file, 32));
    for (int one = 0; one < 2; one++) {
        pid_t child = fork();
        if (child == 0) {
            pid_t grandchild = fork();
            long found = wrong(at, PAGES) + wrong_in_file(file, 32);
            if (grandchild == 0) _exit(found != 0);
            const char *end = ended(grandchild);
            printf("child: %ld wrong, grandchild %s\n", found, end);
            _exit(0);
        }
        printf("child: %s\n", ended(child));
    }
    pid_t killed = fork();
    if (killed == 0) {
        for (;;) wrong(at, PAGES);
    }
    usleep(100000);
    kill(killed, SIGKILL);
    printf("killed: %s\n", ended(killed));
    printf("parent: %ld wrong, in the file %ld\n", wrong(at, PAGES), wrong_in_file(file, 32));
}

// ---- a gap at which many are --------------------------------------------------------------------

enum { TOUCHERS = 8, GAP = 128 };
static pthread_barrier_t meet;
static char *volatile gap;
static volatile int is_over;
static long seen[TOUCHERS];

static void *toucher(void *number_at) {
    size_t number = (size_t)number_at;
    for (;;) {
        pthread_barrier_wait(&meet);
        if (is_over) return NULL;
        for (size_t page = number; page < GAP; page += 2 * TOUCHERS)
            seen[number] += gap[page * PAGE] != content(page);
        pthread_barrier_wait(&meet);
    }
}

static void gaps(int rounds) {
    static char bytes[PAGE];
    pthread_t all[TOUCHERS];
    char other[4200];
    int kept = made_file();
    char *large = mapped(kept, PAGES, MAP_SHARED);
    pthread_barrier_init(&meet, NULL, TOUCHERS + 1);
    for (size_t one = 0; one < TOUCHERS; one++)
        pthread_create(&all[one], NULL, toucher, (void *)one);
    for (int round = 0; round < rounds; round++) {
        snprintf(other, sizeof other, "%s-gap", path);
        int file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (file < 0 || ftruncate(file, GAP * PAGE)) fail("the gap");
        gap = mapped(file, GAP, MAP_SHARED);
        for (size_t page = 0; page < GAP; page++) {
            memset(bytes, content(page), PAGE);
            if (pwrite(file, bytes, PAGE, (off_t)(page * PAGE)) != PAGE) fail("pwrite");
        }
        // Its pages leave.
        if (round % 4 == 0) wrong(large, PAGES);
        pthread_barrier_wait(&meet);
        pthread_barrier_wait(&meet);
        munmap(gap, GAP * PAGE);
        close(file);
        unlink(other);
    }
    is_over = 1;
    pthread_barrier_wait(&meet);
    long found = 0;
    for (size_t one = 0; one < TOUCHERS; one++) {
        pthread_join(all[one], NULL);
        found += seen[one];
    }
    printf("%ld wrong\n", found);
}

// ---- pages that do not come ---------------------------------------------------------------------

#define CANCELLED 16

static volatile int may_go;

static void *spins(void *at) {
    while (!may_go) continue;
    // No call in here: the thread ends where it says so.
    long found = wrong(at, PAGES);
    pthread_testcancel();
    return (void *)(found + 1000000);
}

static void await_line(const char *said) {
    puts(said);
    if (getchar() != '\n') exit(2);
}

static void held(void) {
    char *at = mapped(made_file(), PAGES, MAP_SHARED);
    void *result;
    pthread_t all[CANCELLED];
    long touched = 0;
    wrong(at, PAGES);
    await_line("ready");
    for (size_t one = 0; one < CANCELLED; one++) {
        pthread_create(&all[one], NULL, spins, at);
        pthread_cancel(all[one]);
    }
    may_go = 1;
    for (size_t one = 0; one < CANCELLED; one++) {
        pthread_join(all[one], &result);
        touched += result == PTHREAD_CANCELED;
    }
    printf("cancelled threads have touched all: %ld\n", touched);
    await_line("ready");
    int ends[2];
    char got[PAGE];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 5000}, {0, 5000}};
    if (pipe(ends) || sigaction(SIGALRM, &action, NULL)) fail("pipe");
    if (setitimer(ITIMER_REAL, &often, NULL)) fail("setitimer");
    long found = 0;
    for (size_t page = 0; page < PAGES; page += 8) {
        found += write(ends[1], at + page * PAGE, PAGE) != PAGE;
        found += read(ends[0], got, PAGE) != PAGE || got[7] != content(page);
    }
    printf("beside a timer %ld calls were wrong\n", found);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    const char *word = count > 3 ? words[3] : NULL, *name = words[1];
    snprintf(path, sizeof path, "%s/alike", words[2]);
    if (!strcmp(name, "waits")) waits();
    else if (!strcmp(name, "guards")) guards();
    else if (!strcmp(name, "private")) private_mappings();
    else if (!strcmp(name, "user")) user(word);
    else if (!strcmp(name, "gaps")) gaps(word ? atoi(word) : 1);
    else if (!strcmp(name, "held")) held();
    else return 2;
    return 0;
}
