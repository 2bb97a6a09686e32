// Random calls on mapped files, each answer and each byte that is seen printed: usage mapped_random DIRECTORY
// SEED STEPS. Mappings stand in slots of reserved addresses, so that nothing else comes between. What mremap says
// of a range with several mappings depends on which of them the kernel has joined, and on its version: so each
// page knows the call that made it what it is, and only what one call made is moved.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, FILES = 3, SLOTS = 5, PAGES = 2048 };

static sigjmp_buf back;
static unsigned long state;
static int files[FILES];
static char *slots[SLOTS];
static int made_by[SLOTS][2 * PAGES], calls;

static long below(long limit) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (long)(state >> 11) % limit;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    siglongjmp(back, signal * 100 + info->si_code);
}

// The byte at an address, or the signal that looking at it (or storing to it) raised.
static int touch(char *at, int value) {
    int caught = sigsetjmp(back, 1);
    if (caught) return -caught;
    if (value >= 0) *(volatile char *)at = value;
    return *(volatile unsigned char *)at;
}

static char *reserve(char *at, long pages, int flags) {
    return mmap(at, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// From here on some pages are others than their neighbours; what is not mapped (0) stays so.
static void part(int slot, long first, long pages) {
    int before = 0;
    for (long page = first; page < first + pages; page++) {
        int made = made_by[slot][page];
        if (made && made != before) calls++;
        before = made;
        if (made) made_by[slot][page] = calls;
    }
}

static void note(int slot, long first, long pages, int call) {
    for (long page = first; page < first + pages; page++) made_by[slot][page] = call;
}

static int is_one(int slot, long first, long pages) {
    for (long page = first; page < first + pages; page++)
        if (!made_by[slot][page] || made_by[slot][page] != made_by[slot][first]) return 0;
    return 1;
}

static long told(long value) { return value == -1 ? -errno : value; }

// What is seen of some pages, as one number.
static unsigned long seen(char *at, long pages) {
    unsigned long sum = 14695981039346656037UL;
    for (long page = 0; page < pages; page++)
        for (int part = 0; part < 3; part++) {
            int byte = touch(at + page * PAGE + part * 2000, -1);
            sum = (sum ^ byte) * 1099511628211UL;
        }
    return sum;
}

static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
static const int allocations[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
static const int advices[] = {MADV_DONTNEED, MADV_WILLNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_REMOVE,
                              MADV_HUGEPAGE, MADV_NORMAL, MADV_SEQUENTIAL};

static long maps(int slot, long first, long pages) {
    char *at = slots[slot] + first * PAGE;
    int flags = (below(4) ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
    if (below(8) == 0) flags |= MAP_POPULATE;
    int prot = protections[below(4)], fd = files[below(FILES)];
    char *map = mmap(at, pages * PAGE, prot, flags, fd, below(PAGES) * PAGE);
    if (map == at) note(slot, first, pages, ++calls);
    return told(map == at ? 0 : -1);
}

// To another slot, where it fits, and of another length.
static long moves(int from, long first, long pages) {
    int slot = below(SLOTS);
    long place = below(PAGES / 2), more = below(PAGES / 2) + 1;
    if (slot == from || !is_one(from, first, pages)) return 1;
    char *at = slots[from] + first * PAGE, *to = slots[slot] + place * PAGE;
    char *moved = mremap(at, pages * PAGE, more * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (moved == MAP_FAILED) return told(-1);
    reserve(at, pages, MAP_FIXED);
    note(from, first, pages, 0);
    note(slot, place, more, ++calls);
    return moved == to ? 0 : 2;
}

static long changes_mapping(int kind, int slot, long first, long pages) {
    char *at = slots[slot] + first * PAGE;
    switch (kind) {
    case 0: case 1: return maps(slot, first, pages);
    case 2: {
        long result = told(munmap(at, pages * PAGE));
        reserve(at, pages, MAP_FIXED);
        note(slot, first, pages, 0);
        return result;
    }
    case 3:
        part(slot, first, pages);
        return told(mprotect(at, pages * PAGE, protections[below(4)]));
    case 4: return told(msync(at, pages * PAGE, below(2) ? MS_SYNC : MS_ASYNC));
    case 5:
        part(slot, first, pages);
        return told(madvise(at, pages * PAGE, advices[below(8)]));
    default: return moves(slot, first, pages);
    }
}

static long changes_file(int kind, char *at) {
    static char bytes[40000];
    int fd = files[below(FILES)];
    long offset = below(PAGES * PAGE), length = below(sizeof bytes) + 1;
    switch (kind) {
    case 0: return told(ftruncate(fd, below(3) ? offset : offset / PAGE * PAGE));
    case 1: return told(fallocate(fd, allocations[below(3)], below(2) ? offset / PAGE * PAGE : offset, length * 20));
    case 2:
        memset(bytes, below(256), length);
        return told(pwrite(fd, bytes, length, offset));
    case 3: {
        memset(bytes, 0, length);
        long got = told(pread(fd, bytes, length, offset)), sum = 0;
        for (long i = 0; i < length; i++) sum = sum * 31 + bytes[i];
        return got * 1000003 + sum % 1000003;
    }
    // Through the memory of some mapping.
    case 4: return told(pread(fd, at, below(3 * PAGE) + 1, offset));
    default: {
        // Not behind the end: tmpfs lets a file grow by a write that fails.
        off_t end = lseek(fd, 0, SEEK_END);
        return told(pwrite(fd, at, below(3 * PAGE) + 1, offset < end ? offset : end));
    }
    }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    state = 88172645463325252UL + atol(argv[2]) * 7919;
    long steps = atol(argv[3]);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < FILES; i++) {
        char name[] = "random-0";
        name[7] += i;
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (ftruncate(files[i], below(PAGES) * PAGE)) return 1;
    }
    for (int i = 0; i < SLOTS; i++) slots[i] = reserve(NULL, 2 * PAGES, 0);
    for (long step = 0; step < steps; step++) {
        int what = below(24), slot = below(SLOTS);
        long first = below(PAGES), pages = below(below(4) ? 40 : PAGES) + 1;
        char *at = slots[slot] + first * PAGE + below(PAGE);
        long result;
        if (what < 7) result = changes_mapping(what, slot, first, pages);
        else if (what < 13) result = changes_file(what - 7, at);
        else if (what < 22) result = touch(at, what & 1 ? below(256) : -1);
        else result = seen(slots[slot] + first * PAGE, below(100));
        fprintf(results, "%ld: %d of slot %d, %ld and %ld pages: %ld\n", step, what, slot, first, pages, result);
    }
    for (int i = 0; i < SLOTS; i++) fprintf(results, "slot %d: %lx\n", i, seen(slots[i], PAGES));
    for (int i = 0; i < FILES; i++) {
        struct stat stat;
        fstat(files[i], &stat);
        fprintf(results, "file %d: %ld\n", i, stat.st_size);
    }
    fflush(results);
    return 0;
}
