// Threads of several processes that use the same files, with the cache and without: what each of
// them reads must be what is there. Run by cache_coherence.rs:
//
//   several turns DIRECTORY SHARED PROCESS SEED OPERATIONS
//     One operation after the other: whoever has the turn says who is next, all by one seed. So
//     there is one order, and SHARED, a file in memory that all map, holds what each file must be.
//   several words DIRECTORY SHARED PROCESS SEED ROUNDS
//     All at once: each 8-byte word has one writer and ever higher numbers. No reader may find
//     less than was there before it began, nor more than was begun when it ended.
//   several unmapped DIRECTORY SHARED PROCESS SEED ROUNDS
//     The same without mappings, which the mount has of its own.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>

enum { PROCESSES = 3, THREADS = 2, ACTORS = PROCESSES * THREADS };
enum { NAMES = 3, OBJECTS = 7, PAGE = 4096, CHUNK = 2 << 20, LONGEST = 5 << 20 };
enum { PLACES = 8, CALM = 40 };
enum { WAITS = 0, RUNS = 1, ENDS = 2, SECONDS_MAX = 60 };
// Words of the second run: those of an actor cross borders of chunks, and of pages.
enum { OWN = 88 * 1024 + 3, WORDS = OWN * ACTORS };

enum kind {
    PWRITE, WRITEV, PWRITEV, APPEND, CUT, PUNCH, ZERO, ALLOCATE, MAP_STORE, DIRECT_WRITE, COPY,
    REPLACE, ANEW, RENAME, LET_GO, PREAD, READ, READV, PREADV, DIRECT_READ, MAP_READ, OPEN_READ,
    STAT, KINDS
};
static const struct { const char *name; unsigned weight; } kinds[KINDS] = {
    [PWRITE] = {"pwrite", 14}, [WRITEV] = {"writev", 4}, [PWRITEV] = {"pwritev", 3},
    [APPEND] = {"append", 3}, [CUT] = {"truncate", 5}, [PUNCH] = {"punch", 4},
    [ZERO] = {"zero", 3}, [ALLOCATE] = {"allocate", 2}, [MAP_STORE] = {"mapped-store", 4},
    [DIRECT_WRITE] = {"direct-write", 4}, [COPY] = {"copy", 4}, [REPLACE] = {"replace", 2},
    [ANEW] = {"unlink", 2}, [RENAME] = {"rename", 2}, [LET_GO] = {"let-go", 4},
    [PREAD] = {"pread", 24}, [READ] = {"read", 14}, [READV] = {"readv", 10},
    [PREADV] = {"preadv", 6}, [DIRECT_READ] = {"direct-read", 7}, [MAP_READ] = {"mapped-read", 3},
    [OPEN_READ] = {"open-read", 6}, [STAT] = {"stat", 2},
};

// A file, while it has a name or somebody has it open.
struct object {
    int name; // -1: none
    int holders;
    // All are to close it, and nobody opens it until they have.
    int closes;
    size_t size;
    unsigned char bytes[LONGEST];
};

struct shared {
    _Atomic uint32_t turn[ACTORS];
    _Atomic uint32_t started, failed, arrived[1 << 12];
    uint64_t random, left, done;
    // So many operations to come are reads.
    uint64_t calm;
    // Places that were read.
    struct { size_t offset, length; } places[PLACES];
    uint64_t count[KINDS];
    struct object objects[OBJECTS];
    int named[NAMES];
    // The number with which a word's last write began, and that of the last one that is through.
    _Atomic uint64_t begun[WORDS], through[WORDS];
};

struct actor {
    int number;
    int fd[OBJECTS];
    // A mapping that is kept for a while.
    unsigned char *kept;
    int kept_object;
    size_t kept_offset, kept_length;
    enum kind kind;
    uint64_t random;
    unsigned char *buffer; // of CHUNK bytes and more, aligned
    uint64_t *seen;
};

static const char *names[NAMES] = {"one", "two", "three"};
static struct shared *shared;
static const char *directory;
static int rounds, may_map;

static void wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static void fail(struct actor *actor, const char *format, ...) {
    va_list arguments;
    char text[500];
    int error = errno;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    if (atomic_exchange(&shared->failed, 1) == 0) {
        fprintf(stderr, "actor %d, operation %lu, %s: %s (errno %d)\n", actor->number,
                shared->done, kinds[actor->kind].name, text, error);
    }
    for (int i = 0; i < ACTORS; i++) {
        atomic_store(&shared->turn[i], ENDS);
        wake(&shared->turn[i]);
    }
    _exit(1);
}

#define MUST(call) \
    ({ \
        long result = (long)(call); \
        if (result < 0) fail(actor, "%s", #call); \
        result; \
    })
#define CHECK(condition, ...) \
    do { \
        if (!(condition)) fail(actor, __VA_ARGS__); \
    } while (0)

static uint64_t step(uint64_t *random, uint64_t limit) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (*random >> 16) % limit;
}

// Whoever has the turn draws from one source.
static uint64_t below(uint64_t limit) {
    return step(&shared->random, limit);
}

static char *path(const char *name) {
    static _Thread_local char paths[2][300];
    static _Thread_local int last;
    last ^= 1;
    snprintf(paths[last], sizeof paths[last], "%s/%s", directory, name);
    return paths[last];
}

// ---- one after the other ------------------------------------------------------------------------

static void unmap(struct actor *actor) {
    MUST(munmap(actor->kept, actor->kept_length));
    actor->kept = NULL;
    // The file counts as mapped until all have closed it.
    shared->objects[actor->kept_object].closes = below(4) != 0;
}

static void let_go(struct actor *actor, int number) {
    struct object *object = &shared->objects[number];
    if (actor->fd[number] < 0) return;
    if (actor->kept && actor->kept_object == number) unmap(actor);
    MUST(close(actor->fd[number]));
    actor->fd[number] = -1;
    if (--object->holders == 0) object->closes = 0;
}

static void hold(struct actor *actor, int number, int fd) {
    actor->fd[number] = fd;
    shared->objects[number].holders++;
}

// An object that this actor has open from here on; maybe one without a name.
static int pick(struct actor *actor) {
    if (below(5) == 0) {
        int number = below(OBJECTS);
        if (actor->fd[number] >= 0) return number;
    }
    for (;;) {
        int number = shared->named[below(NAMES)];
        struct object *object = &shared->objects[number];
        if (actor->fd[number] >= 0) return number;
        // If all wait for others it is opened all the same.
        if (!object->closes || below(8) == 0) {
            hold(actor, number, MUST(open(path(names[object->name]), O_RDWR)));
            return number;
        }
    }
}

static int free_object(void) {
    for (int i = 0; i < OBJECTS; i++) {
        if (shared->objects[i].name < 0 && shared->objects[i].holders == 0) return i;
    }
    return -1;
}

static size_t some_length(void) {
    static const size_t lengths[] = {1, 7, 100, PAGE, 5000, 65536, 70000, 200000, 600000, CHUNK};
    return lengths[below(sizeof lengths / sizeof *lengths)];
}

static size_t some_offset(size_t length) {
    size_t offset = below(LONGEST - length);
    switch (below(6)) {
    case 0: return offset - offset % CHUNK;
    case 1:
    case 2: return offset - offset % PAGE;
    default: return offset;
    }
}

// Bytes that nobody has written before.
static void fill(unsigned char *bytes, size_t length) {
    uint64_t word = (shared->done + 1) * 0x9E3779B97F4A7C15;
    for (size_t at = 0; at < length; at += 8, word += 0x0101010101010107) {
        memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
    }
}

static void grow(struct object *object, size_t size) {
    if (object->size < size) {
        memset(object->bytes + object->size, 0, size - object->size);
        object->size = size;
    }
}

static void put(struct object *object, size_t offset, const void *bytes, size_t length) {
    grow(object, offset + length);
    memcpy(object->bytes + offset, bytes, length);
}

static void compare(struct actor *actor, int number, size_t offset, size_t length, long found) {
    struct object *object = &shared->objects[number];
    size_t there = offset < object->size ? object->size - offset : 0;
    size_t expected = there < length ? there : length;
    CHECK(found == (long)expected, "file %d of %zu bytes: %ld for %zu at %zu", number,
          object->size, found, length, offset);
    if (memcmp(actor->buffer, object->bytes + offset, expected) == 0) return;
    for (size_t at = 0; at < expected; at++) {
        CHECK(actor->buffer[at] == object->bytes[offset + at],
              "file %d of %zu bytes, %zu read at %zu: at %zu %02x, not %02x", number, object->size,
              length, offset, offset + at, actor->buffer[at], object->bytes[offset + at]);
    }
}

static void pieces(struct actor *actor, struct iovec *all, size_t length) {
    size_t first = below(length + 1), second = below(length - first + 1);
    all[0] = (struct iovec){actor->buffer, first};
    all[1] = (struct iovec){actor->buffer + first, second};
    all[2] = (struct iovec){actor->buffer + first + second, length - first - second};
}

static void write_some(struct actor *actor, enum kind kind) {
    int number = pick(actor), fd = actor->fd[number];
    struct object *object = &shared->objects[number];
    size_t length = some_length(), offset = some_offset(length);
    struct iovec all[3];
    long written;
    if (kind == DIRECT_WRITE) {
        length = (length + PAGE - 1) / PAGE * PAGE;
        offset = below((LONGEST - length) / PAGE + 1) * PAGE;
    }
    fill(actor->buffer, length);
    pieces(actor, all, length);
    if (kind == WRITEV) {
        MUST(lseek(fd, offset, SEEK_SET));
        written = MUST(writev(fd, all, 3));
        CHECK(lseek(fd, 0, SEEK_CUR) == (long)(offset + written), "position");
    } else if (kind == PWRITEV) {
        written = MUST(pwritev(fd, all, 3, offset));
    } else if ((kind == APPEND || kind == DIRECT_WRITE) && object->name >= 0) {
        int flag = kind == APPEND ? O_APPEND : O_DIRECT;
        if (kind == APPEND) {
            offset = object->size;
            if (length > LONGEST - offset) length = LONGEST - offset;
        }
        int own = MUST(open(path(names[object->name]), O_WRONLY | flag));
        written = flag == O_APPEND ? MUST(write(own, actor->buffer, length))
                                   : MUST(pwrite(own, actor->buffer, length, offset));
        MUST(close(own));
    } else {
        written = MUST(pwrite(fd, actor->buffer, length, offset));
    }
    CHECK(written == (long)length, "%ld of %zu written", written, length);
    if (length) put(object, offset, actor->buffer, length);
}

static void change_length(struct actor *actor) {
    int number = pick(actor);
    struct object *object = &shared->objects[number];
    size_t size = below(3) ? below(LONGEST) : below(2) ? object->size / 2 : object->size;
    if (object->name >= 0 && below(4) == 0) {
        size = 0;
        MUST(close(MUST(open(path(names[object->name]), O_WRONLY | O_TRUNC))));
    } else if (object->name >= 0 && below(3) == 0) {
        MUST(truncate(path(names[object->name]), size));
    } else {
        MUST(ftruncate(actor->fd[number], size));
    }
    grow(object, size);
    object->size = size;
}

static void change_space(struct actor *actor, enum kind kind) {
    int number = pick(actor), keep = kind == PUNCH || below(2) ? FALLOC_FL_KEEP_SIZE : 0;
    struct object *object = &shared->objects[number];
    size_t length = some_length(), offset = some_offset(length);
    int mode = kind == PUNCH ? FALLOC_FL_PUNCH_HOLE : kind == ZERO ? FALLOC_FL_ZERO_RANGE : 0;
    MUST(fallocate(actor->fd[number], mode | keep, offset, length));
    if (!keep) grow(object, offset + length);
    size_t end = offset + length < object->size ? offset + length : object->size;
    if (mode && offset < end) memset(object->bytes + offset, 0, end - offset);
}

// Stores through a mapping, or loads, of which some are kept for a while.
static void mapped(struct actor *actor, enum kind kind) {
    if (!actor->kept) {
        int number = pick(actor);
        size_t size = shared->objects[number].size;
        if (size == 0) return;
        actor->kept_object = number;
        actor->kept_offset = below(size) / PAGE * PAGE;
        actor->kept_length = 1 + below(LONGEST - actor->kept_offset);
        void *made = mmap(NULL, actor->kept_length, PROT_READ | PROT_WRITE, MAP_SHARED,
                          actor->fd[number], actor->kept_offset);
        CHECK(made != MAP_FAILED, "mmap");
        actor->kept = made;
    }
    int number = actor->kept_object;
    struct object *object = &shared->objects[number];
    size_t end = actor->kept_offset + actor->kept_length;
    if (end > object->size) end = object->size;
    if (actor->kept_offset < end) {
        size_t from = below(end - actor->kept_offset), length = some_length();
        if (length > end - actor->kept_offset - from) length = end - actor->kept_offset - from;
        if (kind == MAP_STORE) {
            fill(actor->buffer, length);
            memcpy(actor->kept + from, actor->buffer, length);
            put(object, actor->kept_offset + from, actor->buffer, length);
        } else {
            memcpy(actor->buffer, actor->kept + from, length);
            compare(actor, number, actor->kept_offset + from, length, length);
        }
    }
    if (below(3) == 0) unmap(actor);
}

static void copy_some(struct actor *actor) {
    int from = pick(actor), to = pick(actor);
    struct object *source = &shared->objects[from], *target = &shared->objects[to];
    if (from == to) return;
    size_t length = some_length();
    off_t offset = some_offset(length), at = some_offset(length);
    size_t there = source->size > (size_t)offset ? source->size - offset : 0;
    if (length > there) length = there;
    for (size_t done = 0, start = offset, goal = at; done < length;) {
        size_t left = length - done;
        long copied = MUST(copy_file_range(actor->fd[from], &offset, actor->fd[to], &at, left, 0));
        CHECK(copied > 0, "nothing copied");
        put(target, goal + done, source->bytes + start + done, copied);
        done += copied;
    }
}

// A name gets another file.
static void replace(struct actor *actor, enum kind kind) {
    int name = below(NAMES), new = free_object();
    if (new < 0) return;
    struct object *object = &shared->objects[new];
    shared->objects[shared->named[name]].name = -1;
    object->size = 0;
    if (kind == ANEW) MUST(unlink(path(names[name])));
    const char *first = kind == ANEW ? names[name] : "new";
    int fd = MUST(open(path(first), O_RDWR | O_CREAT | O_EXCL, 0600));
    size_t length = below(2) ? below(LONGEST) : some_length();
    if (length > CHUNK) length = CHUNK;
    fill(actor->buffer, length);
    CHECK(write(fd, actor->buffer, length) == (long)length, "write");
    put(object, 0, actor->buffer, length);
    if (kind == REPLACE) MUST(rename(path("new"), path(names[name])));
    object->name = name;
    shared->named[name] = new;
    hold(actor, new, fd);
}

static void swap_names(struct actor *actor) {
    int one = below(NAMES), two = (one + 1) % NAMES, number = shared->named[one];
    if (below(2)) {
        MUST(renameat2(AT_FDCWD, path(names[one]), AT_FDCWD, path(names[two]), RENAME_EXCHANGE));
    } else {
        MUST(rename(path(names[one]), path("between")));
        MUST(rename(path(names[two]), path(names[one])));
        MUST(rename(path("between"), path(names[two])));
    }
    shared->named[one] = shared->named[two];
    shared->named[two] = number;
    for (int i = 0; i < NAMES; i++) shared->objects[shared->named[i]].name = i;
}

static void read_some(struct actor *actor, enum kind kind) {
    int number = pick(actor), fd = actor->fd[number];
    struct object *object = &shared->objects[number];
    size_t length = some_length(), offset = some_offset(length), place = below(PLACES);
    struct iovec all[3];
    struct stat stat;
    long found;
    if (below(4) && shared->places[place].length) {
        // Where somebody has read.
        length = shared->places[place].length;
        offset = shared->places[place].offset;
    }
    shared->places[place].length = length;
    shared->places[place].offset = offset;
    pieces(actor, all, length);
    memset(actor->buffer, 0xEE, length);
    if (kind == STAT) {
        MUST(fstat(fd, &stat));
        CHECK((size_t)stat.st_size == object->size, "%ld, not %zu", stat.st_size, object->size);
        return;
    }
    if (kind == READ || kind == READV) {
        MUST(lseek(fd, offset, SEEK_SET));
        found = kind == READ ? MUST(read(fd, actor->buffer, length)) : MUST(readv(fd, all, 3));
        CHECK(lseek(fd, 0, SEEK_CUR) == (long)(offset + found), "position");
    } else if (kind == PREADV) {
        found = MUST(preadv(fd, all, 3, offset));
    } else if ((kind == DIRECT_READ || kind == OPEN_READ) && object->name >= 0) {
        int flag = kind == DIRECT_READ ? O_DIRECT : 0;
        if (flag) {
            length = (length + PAGE - 1) / PAGE * PAGE;
            offset -= offset % PAGE;
        }
        int own = MUST(open(path(names[object->name]), O_RDONLY | flag));
        found = MUST(pread(own, actor->buffer, length, offset));
        MUST(close(own));
    } else {
        found = MUST(pread(fd, actor->buffer, length, offset));
    }
    compare(actor, number, offset, length, found);
}

static void operate(struct actor *actor) {
    if (actor->kept && below(8) == 0) unmap(actor);
    for (int i = 0; i < OBJECTS; i++) {
        struct object *object = &shared->objects[i];
        if (object->closes || (object->name < 0 && below(4) == 0)) let_go(actor, i);
    }
    unsigned all = 0;
    for (int i = 0; i < KINDS; i++) all += kinds[i].weight;
    int kind;
    if (shared->calm == 0 && below(20) == 0) shared->calm = CALM;
    do {
        unsigned drawn = below(all);
        for (kind = 0; drawn >= kinds[kind].weight; kind++) drawn -= kinds[kind].weight;
    } while (shared->calm && (kind < LET_GO || kind == MAP_READ));
    if (shared->calm) shared->calm--;
    actor->kind = kind;
    shared->count[kind]++;
    switch (kind) {
    case PWRITE: case WRITEV: case PWRITEV: case APPEND: case DIRECT_WRITE:
        write_some(actor, kind);
        break;
    case CUT: change_length(actor); break;
    case PUNCH: case ZERO: case ALLOCATE: change_space(actor, kind); break;
    case MAP_STORE: case MAP_READ: mapped(actor, kind); break;
    case COPY: copy_some(actor); break;
    case REPLACE: case ANEW: replace(actor, kind); break;
    case RENAME: swap_names(actor); break;
    case LET_GO: let_go(actor, below(OBJECTS)); break;
    default: read_some(actor, kind);
    }
    shared->done++;
}

static void wait_for(struct actor *actor, _Atomic uint32_t *word, uint32_t not) {
    struct timespec patience = {SECONDS_MAX, 0};
    while (atomic_load(word) == not) {
        long result = syscall(SYS_futex, word, FUTEX_WAIT, not, &patience, NULL, 0);
        CHECK(result == 0 || errno == EAGAIN || errno == EINTR, "nobody gave the turn on");
    }
}

static void give_turn(int next) {
    atomic_store(&shared->turn[next], shared->left ? RUNS : ENDS);
    wake(&shared->turn[next]);
}

static void *take_turns(void *argument) {
    struct actor *actor = argument;
    for (;;) {
        wait_for(actor, &shared->turn[actor->number], WAITS);
        if (atomic_load(&shared->failed)) _exit(1);
        if (atomic_exchange(&shared->turn[actor->number], WAITS) == ENDS) break;
        operate(actor);
        int more = --shared->left != 0;
        give_turn(more ? below(ACTORS) : 0);
    }
    // All of it once more, by each in turn.
    for (int i = 0; i < NAMES; i++) {
        int number = shared->named[i], fd = MUST(open(path(names[i]), O_RDONLY));
        for (size_t at = 0; at < LONGEST; at += CHUNK) {
            compare(actor, number, at, CHUNK, MUST(pread(fd, actor->buffer, CHUNK, at)));
        }
        MUST(close(fd));
    }
    for (int i = 0; i < OBJECTS; i++) let_go(actor, i);
    if (actor->number + 1 < ACTORS) give_turn(actor->number + 1);
    return NULL;
}

static void begin_turns(struct actor *actor, uint64_t seed, uint64_t operations) {
    shared->random = seed * 0x9E3779B97F4A7C15 | 1;
    shared->left = operations;
    for (int i = 0; i < OBJECTS; i++) shared->objects[i].name = -1;
    for (int i = 0; i < NAMES; i++) {
        MUST(close(MUST(open(path(names[i]), O_RDWR | O_CREAT | O_EXCL, 0600))));
        shared->objects[i].name = shared->named[i] = i;
    }
    give_turn(0);
}

// ---- all at once --------------------------------------------------------------------------------

static void meet(struct actor *actor, int round) {
    atomic_fetch_add(&shared->arrived[round], 1);
    for (int i = 0; atomic_load(&shared->arrived[round]) < ACTORS; i++) {
        if (atomic_load(&shared->failed)) _exit(1);
        CHECK(i < SECONDS_MAX * 1000, "the others do not come");
        usleep(1000);
    }
}

static uint64_t word_of(int owner, uint64_t number) {
    return (uint64_t)(owner + 1) << 48 | number;
}

// Words of a read that began when `seen` was all that was known.
static void look(struct actor *actor, size_t first, size_t count, const uint64_t *words) {
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i;
        uint64_t number = words[i] & ((1UL << 48) - 1), begun = atomic_load(&shared->begun[at]);
        int owner = (int)(words[i] >> 48) - 1;
        CHECK(owner == (int)(at / OWN), "word %zu is %lx, of %d", at, words[i], owner);
        CHECK(number >= actor->seen[at], "word %zu: %lu after %lu", at, number, actor->seen[at]);
        CHECK(number <= begun, "word %zu: %lu, but %lu was the last", at, number, begun);
        actor->seen[at] = number;
    }
}

static void read_words(struct actor *actor, int fd, int direct, int maps, int small) {
    static const size_t counts[] = {1, 64, 512, 8192, 25000, 75000, CHUNK / 8};
    size_t count = counts[step(&actor->random, small ? 3 : sizeof counts / sizeof *counts)];
    size_t first = step(&actor->random, WORDS - count);
    int way = step(&actor->random, maps ? 5 : 4);
    uint64_t *words = (uint64_t *)actor->buffer;
    long bytes = count * 8, found;
    if (way == 0 || step(&actor->random, 4) == 0) {
        // Where blocks and chunks begin.
        first -= first % (step(&actor->random, 2) ? PAGE / 8 : CHUNK / 8);
        if (count < 512) count = 512, bytes = PAGE;
        if (first + count > WORDS) first = 0;
    }
    for (size_t i = first; i < first + count; i++) {
        uint64_t through = atomic_load(&shared->through[i]);
        if (actor->seen[i] < through) actor->seen[i] = through;
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (way == 4) {
        actor->kind = MAP_READ;
        size_t start = first * 8 / PAGE * PAGE;
        size_t length = first * 8 + bytes - start;
        char *at = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, start);
        CHECK(at != MAP_FAILED, "mmap");
        _Atomic uint64_t *there = (_Atomic uint64_t *)(at + (first * 8 - start));
        for (size_t i = 0; i < count; i++) words[i] = atomic_load(&there[i]);
        MUST(munmap(at, length));
        found = bytes;
    } else if (way == 0 && first % 512 == 0 && count % 512 == 0) {
        actor->kind = DIRECT_READ;
        found = MUST(pread(direct, words, bytes, first * 8));
    } else if (way == 1) {
        actor->kind = READV;
        struct iovec two[2] = {{words, bytes / 16 * 8}, {words + bytes / 16, bytes - bytes / 16 * 8}};
        MUST(lseek(fd, first * 8, SEEK_SET));
        found = MUST(readv(fd, two, 2));
    } else {
        actor->kind = PREAD;
        found = MUST(pread(fd, words, bytes, first * 8));
    }
    CHECK(found == bytes, "%ld bytes of %ld", found, bytes);
    look(actor, first, count, words);
}

static void write_words(struct actor *actor, int fd, int direct, uint64_t number, int maps,
                        int small) {
    static const size_t counts[] = {1, 3, 64, 512, 5000, 40000};
    size_t count = counts[step(&actor->random, small ? 3 : sizeof counts / sizeof *counts)];
    size_t start = (size_t)actor->number * OWN, first = start + step(&actor->random, OWN - count);
    int way = step(&actor->random, maps ? 4 : 3);
    uint64_t *words = (uint64_t *)actor->buffer, word = word_of(actor->number, number);
    long written, bytes;
    if (way == 0) {
        // Whole blocks, of which all words are this actor's.
        first = (first + 511) / 512 * 512;
        count = (count + 511) / 512 * 512;
        if (first + count > start + OWN) first = (start + 511) / 512 * 512, count = 512;
    }
    bytes = count * 8;
    for (size_t i = 0; i < count; i++) words[i] = word;
    for (size_t i = 0; i < count; i++) atomic_store(&shared->begun[first + i], number);
    if (way == 3) {
        actor->kind = MAP_STORE;
        size_t from = first * 8 / PAGE * PAGE, length = first * 8 + bytes - from;
        char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
        CHECK(at != MAP_FAILED, "mmap");
        _Atomic uint64_t *there = (_Atomic uint64_t *)(at + (first * 8 - from));
        for (size_t i = 0; i < count; i++) atomic_store(&there[i], word);
        MUST(munmap(at, length));
        written = bytes;
    } else if (way == 0) {
        actor->kind = DIRECT_WRITE;
        written = MUST(pwrite(direct, words, bytes, first * 8));
    } else {
        actor->kind = PWRITE;
        written = MUST(pwrite(fd, words, bytes, first * 8));
    }
    CHECK(written == bytes, "%ld bytes of %ld", written, bytes);
    for (size_t i = 0; i < count; i++) atomic_store(&shared->through[first + i], number);
}

static void *write_and_read(void *argument) {
    struct actor *actor = argument;
    uint64_t number = 1;
    for (int round = 1; round <= rounds; round++) {
        // With mappings and large pieces, hardly any writes, small pieces, few writes of those. (A
        // file that was mapped is not cached until all have closed it.)
        static const struct { int maps, steps, writes, small; } sorts[] = {
            {1, 250, 20, 0}, {0, 250, 1, 0}, {0, 2000, 20, 1}, {0, 2000, 4, 1}};
        int sort = round % 4, maps = sorts[sort].maps && may_map, small = sorts[sort].small;
        int fd = MUST(open(path("words"), O_RDWR));
        int direct = MUST(open(path("words"), O_RDWR | O_DIRECT));
        meet(actor, 2 * round);
        for (int i = 0; i < sorts[sort].steps && !atomic_load(&shared->failed); i++) {
            int drawn = step(&actor->random, 64);
            if (drawn == 63 && step(&actor->random, 1 + 10 * small) == 0) {
                // Behind all words.
                actor->kind = CUT;
                MUST(ftruncate(fd, WORDS * 8 + step(&actor->random, CHUNK)));
            } else if (drawn < sorts[sort].writes) {
                write_words(actor, fd, direct, ++number, maps, small);
            } else {
                read_words(actor, fd, direct, maps, small);
            }
        }
        MUST(close(direct));
        MUST(close(fd));
        meet(actor, 2 * round + 1);
    }
    return NULL;
}

static void begin_words(struct actor *actor) {
    int fd = MUST(open(path("words"), O_RDWR | O_CREAT | O_EXCL, 0600));
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t word = word_of(i / OWN, 1);
        memcpy(actor->buffer + i * 8 % PAGE, &word, 8);
        shared->begun[i] = shared->through[i] = 1;
        if (i % 512 == 511 || i == WORDS - 1) {
            MUST(pwrite(fd, actor->buffer, (i % 512 + 1) * 8, i / 512 * PAGE));
        }
    }
    MUST(close(fd));
}

int main(int count, char **words) {
    static struct actor actors[THREADS];
    pthread_t threads[THREADS];
    if (count != 7) return 2;
    int turns = strcmp(words[1], "turns") == 0, process = atoi(words[4]);
    uint64_t seed = strtoull(words[5], NULL, 0), operations = strtoull(words[6], NULL, 0);
    int memory = open(words[3], O_RDWR | O_CREAT, 0600);
    directory = words[2];
    rounds = operations;
    may_map = strcmp(words[1], "unmapped") != 0;
    if (memory < 0 || ftruncate(memory, sizeof *shared) != 0) return 3;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (shared == MAP_FAILED) return 3;
    for (int i = 0; i < THREADS; i++) {
        struct actor *actor = &actors[i];
        actor->number = process * THREADS + i;
        actor->random = (seed * 64 + actor->number + 1) * 0x9E3779B97F4A7C15;
        actor->buffer = aligned_alloc(CHUNK, 2 * CHUNK);
        actor->seen = calloc(WORDS, sizeof *actor->seen);
        for (int j = 0; j < OBJECTS; j++) actor->fd[j] = -1;
    }
    // The last one to come begins.
    struct actor *actor = &actors[0];
    if (atomic_fetch_add(&shared->started, 1) == PROCESSES - 1) {
        if (turns) begin_turns(actor, seed, operations);
        else begin_words(actor);
        atomic_store(&shared->started, PROCESSES + 1);
    }
    for (int i = 0; atomic_load(&shared->started) <= PROCESSES; i++) {
        CHECK(i < SECONDS_MAX * 1000, "the others do not come");
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, turns ? take_turns : write_and_read, &actors[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (atomic_load(&shared->failed)) return 1;
    if (process == 0 && turns) {
        for (int i = 0; i < KINDS; i++) printf("%s %lu\n", kinds[i].name, shared->count[i]);
    }
    return 0;
}
