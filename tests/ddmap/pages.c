// Uses a file from several processes and threads and looks at every byte it meets: each page says
// which page it is, and which write of whom it has.
//
//   pages make FILE LEDGER FILLED SPARE     writes FILLED pages once; SPARE more remain holes
//   pages work FILE LEDGER KIND PROCESSES THREADS
//       until the ledger says stop; KIND is
//       roam    pages at random: adds to counters, checks and rewrites under the page's lock
//       near    the same in 16 pages of its own, again and again, and a call on the file now and
//               then: these pages are here nearly always. They lie far apart, so that they do not
//               leave together
//       fresh   writes the pages that are holes, in order, one in 5 ms: each needs room
//       idle    touches nothing
//   pages check FILE LEDGER load|read [N]   all pages, mapped or by pread; N: until so many pages
//                                           could not be had
//
// The ledger is a file outside of the volume. It has for each page which write was begun and which
// has ended, and for each thread what it did, since when its access lasts, and the longest one. So
// what was stored is known whoever dies, and old bytes are told from new ones.
//
// A lock is a word in its page that is spun on. Who dies with it leaves a page that is half
// written, which the ledger shows; the next one takes the lock over and writes the page anew.
//
// Exit code: 0, all is right; 3, some pages could not be had (SIGBUS, EIO), and the rest is right;
// 1, wrong bytes or a wrong sum; 2, it could not begin; 4, SIGBUS where nothing was touched.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNTERS = 59, FILL = 512 - 4 - COUNTERS, SLOTS = 256, NEAR = 64, TRIES = 200 };

struct page {
    _Atomic uint64_t number; // which page it is: never changed
    _Atomic uint64_t lock;   // the process that may write, or 0
    uint64_t version, writer;
    _Atomic uint64_t counter[COUNTERS]; // without the lock
    uint64_t fill[FILL];                // follows from number, version and writer
};
_Static_assert(sizeof(struct page) == 4096, "a page");

// What run reads too, in this order.
struct slot {
    _Atomic uint64_t process, kind, accesses, longest_ns, since_ns, adds_begun, adds_done;
    _Atomic uint64_t unavailable, wrong, spare[7];
};

struct ledger {
    _Atomic uint64_t filled, all, slots, stop, fresh, unused[11];
    struct slot slot[SLOTS];
    struct {
        _Atomic uint64_t begun, done, given_up, unused;
    } page[];
};

static const char *const KINDS[] = {"roam", "near", "fresh", "idle"};
enum kind { ROAM, NEARBY, FRESH, IDLE };

static struct page *pages;
static struct ledger *ledger;
static int file;

static void fail(const char *what) {
    fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
    _exit(2);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void nap(long microseconds) {
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
}

static uint64_t mixed(uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static uint64_t number_of(uint64_t page) { return mixed(page + 1) | 1; }

static uint64_t filled_with(uint64_t page, uint64_t version, uint64_t writer, uint64_t at) {
    return mixed(page << 40 ^ version << 20 ^ writer << 10 ^ at) | 1;
}

static uint64_t drawn(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

// What a thread is doing.
static __thread struct slot *mine;
static __thread sigjmp_buf elsewhere;
static __thread volatile sig_atomic_t touching;

static void begins(void) { atomic_store(&mine->since_ns, now_ns()); }

static void ended(void) {
    uint64_t took_ns = now_ns() - atomic_load(&mine->since_ns);
    if (took_ns > atomic_load(&mine->longest_ns)) atomic_store(&mine->longest_ns, took_ns);
    atomic_store(&mine->since_ns, 0);
}

static void unavailable(int signal) {
    (void)signal;
    if (touching) siglongjmp(elsewhere, 1);
    static const char words[] = "pages: SIGBUS where nothing was touched\n";
    if (write(2, words, sizeof words - 1) < 0) _exit(5);
    _exit(4);
}

static void wrong(uint64_t page, const char *what, uint64_t found, uint64_t expected) {
    if (atomic_fetch_add(&mine->wrong, 1) >= 5) return;
    fprintf(stderr, "pages: WRONG: page %lu, %s: %lx, not %lx%s\n", page, what, found, expected,
            found == 0 ? " (zeros where something was written)" : "");
}

// Whether a page that nobody writes has what the ledger says; `at` may be a copy.
static int is_right(const struct page *at, uint64_t page) {
    uint64_t begun = atomic_load(&ledger->page[page].begun);
    uint64_t done = atomic_load(&ledger->page[page].done);
    if (done == 0 && begun != 0) return 1;
    if (begun == 0) {
        for (size_t word = 0; word < 512; word++) {
            uint64_t found = ((const uint64_t *)at)[word];
            // Its first writer has the lock, or had it.
            int is_lock = word == offsetof(struct page, lock) / 8;
            if (found && !is_lock) return wrong(page, "never written", found, 0), 0;
        }
        return 1;
    }
    uint64_t number = atomic_load(&at->number);
    if (number != number_of(page)) return wrong(page, "number", number, number_of(page)), 0;
    // Whoever wrote it has died in between.
    if (begun != done) {
        if (at->version == done || at->version == begun) return 1;
        return wrong(page, "version of a torn write", at->version, begun), 0;
    }
    if (at->version != done) return wrong(page, "version", at->version, done), 0;
    for (size_t word = 0; word < FILL; word++) {
        uint64_t expected = filled_with(page, at->version, at->writer, word);
        if (at->fill[word] != expected) return wrong(page, "content", at->fill[word], expected), 0;
    }
    return 1;
}

// Whether a process has ended: a zombie has.
static int is_dead(uint64_t process) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%lu/stat", process);
    int stat = open(path, O_RDONLY | O_CLOEXEC);
    if (stat < 0) return errno == ENOENT;
    ssize_t bytes = read(stat, line, sizeof line - 1);
    close(stat);
    if (bytes <= 0) return 1;
    line[bytes] = 0;
    char *name_end = strrchr(line, ')');
    return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

// 1: the lock is ours. 0: somebody has it, and lives.
static int locked(struct page *at) {
    uint64_t owner = 0, own = (uint64_t)getpid();
    for (int try = 0; try < TRIES; try++) {
        owner = 0;
        begins();
        int taken = atomic_compare_exchange_strong(&at->lock, &owner, own);
        ended();
        if (taken) return 1;
        sched_yield();
    }
    if (owner == own || !is_dead(owner)) return 0;
    begins();
    int taken = atomic_compare_exchange_strong(&at->lock, &owner, own);
    ended();
    return taken;
}

// Writes a page's next version. The caller has the lock, or is alone.
static void write_page(struct page *at, uint64_t page) {
    uint64_t writer = (uint64_t)(mine - ledger->slot);
    uint64_t version = atomic_load(&ledger->page[page].begun) + 1;
    atomic_store(&ledger->page[page].begun, version);
    begins();
    atomic_store(&at->number, number_of(page));
    at->version = version;
    at->writer = writer;
    for (size_t word = 0; word < FILL; word++) {
        at->fill[word] = filled_with(page, version, writer, word);
    }
    ended();
    atomic_store(&ledger->page[page].done, version);
}

static void add(struct page *at, uint64_t counter) {
    atomic_fetch_add(&mine->adds_begun, 1);
    begins();
    atomic_fetch_add(&at->counter[counter], 1);
    ended();
    atomic_fetch_add(&mine->adds_done, 1);
}

// One page is looked at, added to, or checked and rewritten.
static void visit(uint64_t page, uint64_t what) {
    struct page *at = pages + page;
    if (atomic_load(&ledger->page[page].given_up)) return;
    volatile int have = 0;
    if (sigsetjmp(elsewhere, 0)) {
        touching = 0;
        ended();
        atomic_fetch_add(&mine->unavailable, 1);
        // Nobody can give the lock back in a page that is not there.
        if (have) atomic_store(&ledger->page[page].given_up, 1);
        return;
    }
    touching = 1;
    begins();
    uint64_t number = atomic_load(&at->number);
    ended();
    if (atomic_load(&ledger->page[page].done) && number != number_of(page)) {
        wrong(page, "number", number, number_of(page));
        atomic_store(&ledger->page[page].given_up, 1);
    } else if (what % 2 == 0) {
        add(at, what % COUNTERS);
    } else if (locked(at)) {
        have = 1;
        begins();
        int right = is_right(at, page);
        ended();
        if (right) {
            write_page(at, page);
        } else {
            atomic_store(&ledger->page[page].given_up, 1);
        }
        begins();
        atomic_store(&at->lock, 0);
        ended();
    }
    touching = 0;
    atomic_fetch_add(&mine->accesses, 1);
}

static void take_slot(enum kind kind) {
    uint64_t slot = atomic_fetch_add(&ledger->slots, 1);
    if (slot >= SLOTS) fail("too many threads for the ledger");
    mine = &ledger->slot[slot];
    atomic_store(&mine->kind, kind);
    atomic_store(&mine->process, (uint64_t)getpid());
}

static void *worker(void *kind_at) {
    enum kind kind = *(enum kind *)kind_at;
    take_slot(kind);
    uint64_t seed = mixed((uint64_t)(mine - ledger->slot) + 1), apart = ledger->filled / NEAR;
    while (!atomic_load(&ledger->stop)) {
        if (kind == ROAM) {
            uint64_t page = drawn(&seed) % ledger->filled;
            if (page % apart != 0) visit(page, drawn(&seed));
        } else if (kind == NEARBY) {
            uint64_t among = drawn(&seed) % 16 * 4 + (uint64_t)(mine - ledger->slot) % 4;
            visit(among * apart, drawn(&seed));
            struct stat status;
            if (drawn(&seed) % 1024 == 0 && fstat(file, &status)) fail("fstat");
            if (drawn(&seed) % 16 == 0) nap(200);
        } else if (kind == FRESH) {
            // When all are written they are written again.
            uint64_t next = atomic_fetch_add(&ledger->fresh, 1);
            visit(ledger->filled + next % (ledger->all - ledger->filled), 1);
            nap(5000);
        } else {
            nap(20000);
        }
    }
    return NULL;
}

static int threads(enum kind kind, size_t count) {
    pthread_t others[16];
    for (size_t other = 1; other < count; other++) {
        if (pthread_create(&others[other], NULL, worker, &kind)) fail("a thread");
    }
    worker(&kind);
    for (size_t other = 1; other < count; other++) pthread_join(others[other], NULL);
    int code = 0;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        struct slot *its = &ledger->slot[slot];
        if (atomic_load(&its->process) != (uint64_t)getpid()) continue;
        if (atomic_load(&its->wrong)) return 1;
        if (atomic_load(&its->unavailable)) code = 3;
    }
    return code;
}

static int work(enum kind kind, size_t processes, size_t count) {
    if (processes < 2) return threads(kind, count);
    for (size_t process = 0; process < processes; process++) {
        pid_t child = fork();
        if (child < 0) fail("a fork");
        if (child == 0) _exit(threads(kind, count));
    }
    int status, code = 0;
    while (wait(&status) > 0) {
        int its = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0
                  : WIFEXITED(status)                                ? WEXITSTATUS(status)
                                                                     : 5;
        if (its && code != 1) code = its;
    }
    return code;
}

static void map(const char *file_path, const char *ledger_path) {
    int outside = open(ledger_path, O_RDWR);
    if (outside < 0) fail(ledger_path);
    off_t bytes = lseek(outside, 0, SEEK_END);
    ledger = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, outside, 0);
    if (ledger == MAP_FAILED) fail("mapping the ledger");
    file = open(file_path, O_RDWR | O_CREAT, 0600);
    size_t size = ledger->all * sizeof *pages;
    if (file < 0 || ftruncate(file, (off_t)size)) fail(file_path);
    pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (pages == MAP_FAILED) fail("mapping the file");
    struct sigaction action = {.sa_handler = unavailable, .sa_flags = SA_NODEFER};
    if (sigaction(SIGBUS, &action, NULL)) fail("a handler of SIGBUS");
}

static void make(const char *ledger_path, uint64_t filled, uint64_t spare) {
    int outside = open(ledger_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    size_t bytes = sizeof *ledger + (filled + spare) * sizeof ledger->page[0];
    uint64_t head[2] = {filled, filled + spare};
    if (outside < 0 || ftruncate(outside, (off_t)bytes)) fail(ledger_path);
    if (pwrite(outside, head, sizeof head, 0) != sizeof head) fail(ledger_path);
    close(outside);
}

// A page's bytes: 0, or why they cannot be had.
static int fetched(struct page *to, uint64_t page, int mapped) {
    if (!mapped) {
        ssize_t got = pread(file, to, sizeof *to, (off_t)(page * sizeof *to));
        return got == sizeof *to ? 0 : got < 0 ? errno : ENODATA;
    }
    if (sigsetjmp(elsewhere, 0)) {
        touching = 0;
        ended();
        return EFAULT;
    }
    touching = 1;
    begins();
    memcpy(to, pages + page, sizeof *to);
    ended();
    touching = 0;
    return 0;
}

static int check(int mapped, uint64_t enough) {
    static struct page copy;
    uint64_t right = 0, gone = 0, refused = 0, bad = 0, sum = 0, least = 0, most = 0;
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        least += atomic_load(&ledger->slot[slot].adds_done);
        most += atomic_load(&ledger->slot[slot].adds_begun);
    }
    take_slot(IDLE);
    for (uint64_t page = 0; page < ledger->all && gone + refused < enough; page++) {
        int why = fetched(&copy, page, mapped);
        if (why == EFAULT && mapped) {
            gone++;
        } else if (why == EIO) {
            refused++;
        } else if (why) {
            wrong(page, "pread", (uint64_t)why, 0);
            bad++;
        } else {
            if (is_right(&copy, page)) right++; else bad++;
            for (size_t at = 0; at < COUNTERS; at++) sum += copy.counter[at];
        }
    }
    printf("%lu pages right, %lu SIGBUS, %lu EIO, %lu wrong; counted %lu of %lu to %lu\n", right,
           gone, refused, bad, sum, least, most);
    if (bad) return 1;
    // What was counted in pages that are away is not known.
    if (gone + refused) return sum > most ? 1 : 3;
    return sum < least || sum > most;
}

int main(int argc, char **argv) {
    if (argc > 5 && strcmp(argv[1], "make") == 0) {
        make(argv[3], strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
        map(argv[2], argv[3]);
        take_slot(IDLE);
        for (uint64_t page = 0; page < ledger->filled; page++) write_page(pages + page, page);
        return 0;
    }
    if (argc > 6 && strcmp(argv[1], "work") == 0) {
        map(argv[2], argv[3]);
        for (int kind = ROAM; kind <= IDLE; kind++) {
            if (strcmp(argv[4], KINDS[kind]) != 0) continue;
            return work((enum kind)kind, strtoul(argv[5], NULL, 10), strtoul(argv[6], NULL, 10));
        }
    }
    if (argc > 4 && strcmp(argv[1], "check") == 0) {
        map(argv[2], argv[3]);
        uint64_t enough = argc > 5 ? strtoul(argv[5], NULL, 10) : UINT64_MAX;
        return check(strcmp(argv[4], "load") == 0, enough);
    }
    fprintf(stderr, "usage: pages make|work|check FILE LEDGER ...\n");
    return 2;
}
