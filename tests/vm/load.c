/* A load whose every step is acknowledged by one store into memory of the host, and its judge.
 *
 *   load DIR ACKS MODEL SPEC...      one process for each SPEC, VERB:SEED:NAME:SLOT
 *
 *   run       makes calls below DIR until it is killed
 *   check     makes the acknowledged calls again below MODEL, on a kernel file system, and compares: DIR
 *             holds what they left, or that and the one call more that was under way, and nothing else
 *   append    appends to one file
 *   appended  what an fsync acknowledged is there, and what follows it is a beginning of what would
 *             have come
 *   posix, sync, strict   change one file under the engine over a kernel file system, in that mode:
 *             appends, overwrites, fsyncs, openings. Acknowledged is what the mode promises: in posix mode
 *             an fsync, in the others each call
 *   closing   as posix, but most calls append some blocks, or close and open
 *   jposix, jsync, jstrict, jclosing   judge what is left: what was acknowledged is there; of what came after it
 *             an append is whole or absent, an overwrite may be torn, but in strict mode
 *   blocks    appends whole blocks to a new file, with many fsyncs, and reads them again
 *   cost      says what appends with fsync and without execute, by a clock that counts instructions
 *             (qemu -icount)
 *   keep      writes files that nobody touches; kept verifies them
 *   cut       kills the process groups MODEL, by commas, and shuts the file system down, as a power cut
 *             would: what its log has not written is lost
 *   clear     forgets what was acknowledged
 *   begun     waits for the first acknowledgement
 *
 * The calls follow from SEED alone. Their results are part of the acknowledgement: the same calls must
 * have given the same results on both file systems. Several loads share a directory: each uses names
 * that begin with NAME. A SPEC may end with :nomap, then it makes no mappings.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of ext4 and XFS alike; older headers do not have it. */
#define FS_IOC_SHUTDOWN _IOR('X', 125, uint32_t)

/* A line of the memory that the host keeps. The result of call n is in results[n % 2]. */
struct acks {
    _Atomic uint64_t count;
    _Atomic uint64_t results[2];
    uint64_t unused[5];
};

static char base[512], name[32];
static uint64_t state;
static int descriptors[4] = {-1, -1, -1, -1};

static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t end) { return next() % end; }

static void die(const char *form, ...) {
    va_list arguments;
    va_start(arguments, form);
    printf("load %s: ", name);
    vprintf(form, arguments);
    printf("\n");
    exit(1);
}

static struct acks *acks_of(const char *path, int slot) {
    int fd = open(path, O_RDWR);
    if (fd < 0) die("%s: %s", path, strerror(errno));
    struct acks *all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) die("mmap of %s: %s", path, strerror(errno));
    close(fd);
    return all + slot;
}

/* Bytes that follow from `seed` and their place alone. */
static void fill(unsigned char *to, size_t length, uint64_t seed) {
    for (size_t i = 0; i < length; i++) to[i] = (seed >> i % 7 * 8 ^ i * 31 ^ i >> 12) | 1;
}

/* One of the names: 8 files and 2 directories in the base, 6 files and 1 directory in each. */
static void draw(char *path, int directory) {
    char *at = path + sprintf(path, "%s/", base);
    uint64_t deep = below(3);
    if (deep) at += sprintf(at, "%sd%d/", name, (int)below(2));
    if (directory && below(4) == 0) sprintf(at, "%sd%d", name, (int)below(2));
    else sprintf(at, "%sf%d", name, (int)below(8));
}

static unsigned char buffer[3 << 20], other[3 << 20];

static long write_some(int fd, uint64_t step) {
    size_t length = 1 + below(below(40) == 0 ? sizeof buffer - 1 : below(3) ? 300 : 40000);
    off_t end = lseek(fd, 0, SEEK_END), at = below(2) ? end : (off_t)below(end + 9000);
    if (at > 4 << 20) at = below(4096);
    fill(buffer, length, step);
    if (below(2)) return pwrite(fd, buffer, length, at);
    lseek(fd, at, SEEK_SET);
    return write(fd, buffer, length);
}

/* One aligned word through a mapping. */
static long store_word(int fd, uint64_t step) {
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 4096) return -1;
    off_t page = below(size / 4096) * 4096;
    unsigned char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
    if (map == MAP_FAILED) return -1;
    *(_Atomic uint64_t *)(map + below(512) * 8) = step;
    return msync(map, 4096, MS_SYNC) + munmap(map, 4096);
}

static long change_file(int fd, uint64_t step, int mappings) {
    switch (below(mappings ? 9 : 8)) {
    case 0: return ftruncate(fd, below(60000));
    case 1: return fallocate(fd, below(2) ? FALLOC_FL_KEEP_SIZE : 0, below(50000), 1 + below(50000));
    case 2: return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, below(50000), 1 + below(9000));
    case 3: return fsync(fd);
    case 8: return store_word(fd, step);
    default: return write_some(fd, step);
    }
}

/* The call of a step; its result, an error number as a negative one. */
static long one_call(uint64_t step, int mappings) {
    static const int flags[] = {O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_TRUNC, O_CREAT | O_APPEND, 0};
    char path[PATH_MAX], to[PATH_MAX];
    int which = below(4);
    long result;
    errno = 0;
    switch (below(22)) {
    case 0: draw(path, 0); draw(to, 0); result = link(path, to); break;
    case 1: draw(path, 1); draw(to, 1); result = rename(path, to); break;
    case 2: draw(path, 0); result = unlink(path); break;
    case 3: draw(path, 0); result = unlink(path); break;
    case 4: draw(path, 0); sprintf(to, "to %lu", (unsigned long)step); result = symlink(to, path); break;
    case 5: draw(path, 0); result = truncate(path, below(30000)); break;
    case 6: draw(path, 0); result = fchmodat(AT_FDCWD, path, 0600 | below(64), 0); break;
    case 7: case 8:
        draw(path, 1);
        result = below(3) ? mkdir(path, 0700 | below(64)) : rmdir(path);
        break;
    case 9: case 10: case 11: case 12:
        draw(path, 0);
        if (descriptors[which] >= 0) close(descriptors[which]);
        descriptors[which] = open(path, O_RDWR | O_NOFOLLOW | flags[below(5)], 0640);
        result = descriptors[which] < 0 ? -1 : 0;
        break;
    default:
        result = descriptors[which] < 0 ? 0 : change_file(descriptors[which], step, mappings);
    }
    return result < 0 ? -errno : result;
}

static void step_once(struct acks *acks, uint64_t count, int mappings) {
    uint64_t before = atomic_load(&acks->results[(count + 1) % 2]);
    long result = one_call(count, mappings);
    atomic_store(&acks->results[count % 2], before * 31 + (uint64_t)result);
    atomic_store(&acks->count, count);
}

/* The names of a directory that are this load's, sorted. */
static int names_of(const char *path, char names[][32], int top) {
    DIR *directory = opendir(path);
    if (!directory) die("opendir %s: %s", path, strerror(errno));
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.' || (top && strncmp(entry->d_name, name, strlen(name)))) continue;
        if (count == 64) die("more than 64 names in %s, the last %s", path, entry->d_name);
        memcpy(names[count++], entry->d_name, strnlen(entry->d_name, 31) + 1);
    }
    closedir(directory);
    qsort(names, count, 32, (int (*)(const void *, const void *))strcmp);
    return count;
}

/* Whether two files have the same bytes; else the offset of the first that differs in `at`. */
static int same_bytes(const char *a, const char *b, off_t *at) {
    int fds[2] = {open(a, O_RDONLY), open(b, O_RDONLY)};
    if (fds[0] < 0 || fds[1] < 0) die("open %s: %s", fds[0] < 0 ? a : b, strerror(errno));
    ssize_t n, m;
    int same = 1;
    *at = 0;
    do {
        n = read(fds[0], buffer, sizeof buffer), m = read(fds[1], other, sizeof other);
        same = n == m && n >= 0 && !memcmp(buffer, other, n);
        for (ssize_t i = 0; !same && i < n && i < m && buffer[i] == other[i]; i++) ++*at;
        if (same) *at += n;
    } while (same && n > 0);
    close(fds[0]), close(fds[1]);
    return same;
}

/* Whether two trees are the same; `told` gets the first difference. */
static int same_tree(const char *a, const char *b, int top, char *told) {
    char (*ours)[32] = malloc(64 * 32), (*theirs)[32] = malloc(64 * 32);
    int n = names_of(a, ours, top), m = names_of(b, theirs, top), same = n == m;
    if (!same) sprintf(told, "%s has %d names, the model %d", a, n, m);
    for (int i = 0; same && i < n; i++) {
        char x[PATH_MAX], y[PATH_MAX], to[2][128] = {"", ""};
        struct stat s, t;
        if (strcmp(ours[i], theirs[i])) {
            same = 0, sprintf(told, "%s has %s, the model %s", a, ours[i], theirs[i]);
            break;
        }
        snprintf(x, sizeof x, "%s/%s", a, ours[i]), snprintf(y, sizeof y, "%s/%s", b, ours[i]);
        if (lstat(x, &s) || lstat(y, &t)) die("stat %s: %s", x, strerror(errno));
        same = s.st_mode == t.st_mode && s.st_nlink == t.st_nlink &&
            (S_ISDIR(s.st_mode) || s.st_size == t.st_size);
        if (!same)
            sprintf(told, "%s: mode %o, %lu links, %ld bytes; the model: %o, %lu, %ld", x, s.st_mode,
                (long)s.st_nlink, (long)s.st_size, t.st_mode, (long)t.st_nlink, (long)t.st_size);
        else if (S_ISDIR(s.st_mode)) same = same_tree(x, y, 0, told);
        else if (S_ISLNK(s.st_mode)) {
            if (readlink(x, to[0], 127) < 0 || readlink(y, to[1], 127) < 0) die("readlink %s", x);
            same = !strcmp(to[0], to[1]);
            if (!same) sprintf(told, "%s leads to %s, in the model to %s", x, to[0], to[1]);
        } else {
            off_t at;
            same = same_bytes(x, y, &at);
            if (!same) sprintf(told, "%s differs from the model at byte %ld", x, (long)at);
        }
    }
    free(ours), free(theirs);
    return same;
}

static void check(const char *directory, const char *model, struct acks *acks, int mappings) {
    uint64_t count = atomic_load(&acks->count);
    struct acks again = {0};
    char first[PATH_MAX * 3], second[PATH_MAX * 3];
    snprintf(base, sizeof base, "%s", model);
    for (uint64_t i = 1; i <= count; i++) step_once(&again, i, mappings);
    if (count && atomic_load(&again.results[count % 2]) != atomic_load(&acks->results[count % 2]))
        die("%lu calls, and not all gave what they gave on the model", (unsigned long)count);
    if (same_tree(directory, model, 1, first)) {
        printf("%s %lu calls\n", name, (unsigned long)count);
        return;
    }
    step_once(&again, count + 1, mappings);
    if (same_tree(directory, model, 1, second)) {
        printf("%s %lu calls and the one under way\n", name, (unsigned long)count);
        return;
    }
    die("%lu calls were acknowledged.\n  after these: %s\n  after one more: %s", (unsigned long)count,
        first, second);
}

/* The byte at an offset of the file that is appended to. */
static unsigned char stream(uint64_t seed, uint64_t at) {
    return ((seed + at * 2654435761u) >> 7 ^ at >> 16) | 1;
}

static void append(const char *directory, uint64_t seed, struct acks *acks) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%slog", directory, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    if (fd < 0) die("%s: %s", path, strerror(errno));
    for (uint64_t at = 0; at < 32 << 20;) {
        size_t length = 1 + below(below(4) ? 700 : 20000);
        for (size_t i = 0; i < length; i++) buffer[i] = stream(seed, at + i);
        if (write(fd, buffer, length) != (ssize_t)length) die("%s: %s", path, strerror(errno));
        at += length;
        if (below(3) == 0) {
            if (fsync(fd)) die("fsync %s: %s", path, strerror(errno));
            atomic_store(&acks->count, at);
        }
    }
}

static void appended(const char *directory, uint64_t seed, struct acks *acks) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%slog", directory, name);
    uint64_t count = atomic_load(&acks->count), at = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0 && count) die("%s: %s, and %lu bytes were acknowledged", path, strerror(errno), count);
    for (ssize_t n; fd >= 0 && (n = read(fd, buffer, sizeof buffer)); at += n) {
        if (n < 0) die("%s: %s", path, strerror(errno));
        for (ssize_t i = 0; i < n; i++)
            if (buffer[i] != stream(seed, at + i)) die("%s is wrong at byte %lu", path, at + i);
    }
    if (at < count) die("%s has %lu bytes, and %lu were acknowledged", path, at, count);
    printf("%s %lu bytes, %lu acknowledged\n", name, at, count);
}

enum { POSIX, SYNC, STRICT };
enum { OVERWRITE, APPEND, FSYNC, OPEN };
enum { FULL = 6 << 20, LONGEST = 90000 };

/* Whether most of the steps append some blocks, or close and open. */
static int closes;

/* What the next step of a file of `size` bytes is. */
static int draw_change(size_t size, size_t *at, size_t *length) {
    int kind = below(16);
    *at = size, *length = 0;
    if (closes && kind < 8) return kind ? OPEN : FSYNC;
    if (kind < 3) return kind == 2 ? OPEN : FSYNC;
    *length = 1 + below(closes ? LONGEST : below(4) ? 700 : 20000);
    if (!size || (size < FULL && kind < 10)) return APPEND;
    *at = below(size);
    if (*length > size - *at) *length = size - *at;
    return OVERWRITE;
}

static int open_changed(const char *directory, char *path) {
    snprintf(path, PATH_MAX, "%s/%sdata", directory, name);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (fd < 0) die("%s: %s", path, strerror(errno));
    return fd;
}

static void change_data(const char *directory, uint64_t seed, int mode, struct acks *acks) {
    char path[PATH_MAX];
    int fd = open_changed(directory, path), parent = open(directory, O_RDONLY);
    /* Names are the kernel's: they are durable when it says so. */
    if (fsync(fd) || fsync(parent)) die("fsync %s: %s", path, strerror(errno));
    size_t size = 0, at, length;
    for (uint64_t i = 1;; i++) {
        int kind = draw_change(size, &at, &length);
        fill(buffer, length, seed + i);
        atomic_store(&acks->results[0], i);
        if (kind == FSYNC && fsync(fd)) die("fsync %s: %s", path, strerror(errno));
        if (kind == OPEN) close(fd), fd = open_changed(directory, path);
        if (length && pwrite(fd, buffer, length, at) != (ssize_t)length)
            die("%s: %s", path, strerror(errno));
        if (kind == APPEND) size += length;
        if (mode != POSIX || kind == FSYNC) atomic_store(&acks->count, i);
    }
}

static unsigned char wanted[FULL + LONGEST], found[FULL + LONGEST], right[FULL + LONGEST];

static void judge_data(const char *directory, uint64_t seed, int mode, struct acks *acks) {
    char path[PATH_MAX];
    uint64_t count = atomic_load(&acks->count), begun = atomic_load(&acks->results[0]);
    if (begun < count || (mode != POSIX && begun > count + 1)) die("%lu of %lu steps", count, begun);
    size_t size = 0, got = 0, at, length;
    int fd = open_changed(directory, path), whole = 0;
    for (ssize_t n; (n = read(fd, found + got, sizeof found - got)) > 0;) got += n;
    for (uint64_t i = 1; i <= begun; i++) {
        if (i == count + 1) {
            whole = got == size;
            for (size_t p = 0; p < size; p++) right[p] = found[p] == wanted[p];
        }
        int kind = draw_change(size, &at, &length);
        fill(buffer, length, seed + i);
        if (i > count) {
            for (size_t p = 0; p < length; p++) right[at + p] |= found[at + p] == buffer[p];
            if (mode == STRICT && kind == OVERWRITE && memcmp(found + at, buffer, length) &&
                memcmp(found + at, wanted + at, length))
                die("%s: step %lu, %zu bytes at %zu, is torn", path, i, length, at);
        }
        memcpy(wanted + at, buffer, length);
        if (kind == APPEND) size += length;
        if (i >= count && got == size) whole = 1;
    }
    if (count == begun)
        for (size_t p = 0; p < size; p++) right[p] = found[p] == wanted[p];
    if (!whole && begun) die("%s has %zu bytes after %lu of %lu steps", path, got, count, begun);
    for (size_t p = 0; p < got; p++)
        if (!right[p])
            die("%s has %02x, not %02x, at byte %zu of %zu; %lu of %lu steps", path, found[p], wanted[p], p,
                got, count, begun);
    printf("%s %lu steps, %lu acknowledged, %zu bytes\n", name, begun, count, got);
}

static uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

/* What an append of 4 KiB takes, with an fsync or without: the middle of 201. */
static uint64_t cost_of(int fd, int durable) {
    static uint64_t took[201];
    for (int i = -50; i < 201; i++) {
        uint64_t begun = ticks();
        if (write(fd, buffer, 4096) != 4096 || (durable && fsync(fd))) die("%s", strerror(errno));
        if (i >= 0) took[i] = ticks() - begun;
    }
    for (int i = 1; i < 201; i++)
        for (int j = i; j > 0 && took[j] < took[j - 1]; j--) {
            uint64_t other_one = took[j];
            took[j] = took[j - 1], took[j - 1] = other_one;
        }
    return took[100];
}

static void cost(const char *directory) {
    char path[PATH_MAX];
    fill(buffer, 4096, 1);
    int fd = open_changed(directory, path);
    uint64_t alone = cost_of(fd, 0);
    if (close(fd) || unlink(path)) die("unlink: %s", strerror(errno));
    fd = open_changed(directory, path);
    printf("%s %lu %lu instructions\n", name, cost_of(fd, 1), alone);
    if (unlink(path)) die("unlink: %s", strerror(errno));
}

/* Appends whole blocks to a new file, one to eight at a time, each made durable; reads them again. */
static void blocks(const char *directory) {
    char path[PATH_MAX];
    int fd = open_changed(directory, path);
    size_t size = 0;
    fill(wanted, FULL, 1);
    for (int i = 0; i < 64; i++) {
        size_t length = (1 + below(8)) * 4096;
        if (write(fd, wanted + size, length) != (ssize_t)length || fsync(fd))
            die("%s: %s", path, strerror(errno));
        size += length;
    }
    close(fd);
    fd = open(path, O_RDONLY);
    if (read(fd, found, sizeof found) != (ssize_t)size || memcmp(found, wanted, size))
        die("%s is not what was written", path);
    if (unlink(path)) die("unlink: %s", strerror(errno));
}

static void keep(const char *directory, uint64_t seed, int verify) {
    for (int i = 0; i < 40; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/kept%d", directory, i);
        size_t length = i == 7 ? sizeof buffer : below(70000);
        fill(buffer, length, seed + i);
        int fd = open(path, verify ? O_RDONLY : O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0) die("%s: %s", path, strerror(errno));
        ssize_t n = verify ? read(fd, other, sizeof other) : write(fd, buffer, length);
        if (n != (ssize_t)length || (verify && memcmp(buffer, other, length))) die("%s changed", path);
        close(fd);
    }
}

/* Does what one specification says. */
static void one(const char *directory, const char *path, const char *model, const char *what) {
    char verb[16] = "", mapping[8] = "", below_model[sizeof base];
    unsigned long seed = 0;
    int slot = 0;
    if (sscanf(what, "%15[a-z]:%lu:%31[^:]:%d:%7s", verb, &seed, name, &slot, mapping) < 4)
        die("%s is no specification", what);
    int mappings = !*mapping;
    state = seed;
    snprintf(base, sizeof base, "%s", directory);
    if (!strcmp(verb, "cut")) {
        /* Nobody is to see the file system fail: what is in a system call is not in the program again. */
        uint32_t without_log = 2;
        int fd = open(directory, O_RDONLY);
        for (char *group = (char *)model; *group; group += *group == ',')
            if (kill(-(pid_t)strtol(group, &group, 10), SIGKILL)) die("kill: %s", strerror(errno));
        if (ioctl(fd, FS_IOC_SHUTDOWN, &without_log)) die("%s", strerror(errno));
        return;
    }
    if (!strncmp(verb, "ke", 2)) {
        keep(directory, seed, !strcmp(verb, "kept"));
        return;
    }
    static const char *const modes[] = {"posix", "sync", "strict", "closing"};
    int mode = 3;
    while (mode >= 0 && strcmp(verb + (*verb == 'j'), modes[mode])) mode--;
    closes = mode == 3;
    if (closes) mode = POSIX;
    struct acks *acks = acks_of(path, slot);
    if (!strcmp(verb, "run"))
        for (uint64_t i = 1;; i++) step_once(acks, i, mappings);
    else if (!strcmp(verb, "append")) append(directory, seed, acks);
    else if (!strcmp(verb, "appended")) appended(directory, seed, acks);
    else if (!strcmp(verb, "cost")) cost(directory);
    else if (!strcmp(verb, "blocks")) blocks(directory);
    else if (mode >= 0) (*verb == 'j' ? judge_data : change_data)(directory, seed, mode, acks);
    else if (!strcmp(verb, "clear")) memset(acks, 0, 4096);
    else if (!strcmp(verb, "begun"))
        while (!atomic_load(&acks->count)) usleep(10000);
    else if (!strcmp(verb, "check")) {
        snprintf(below_model, sizeof below_model, "%s/%s", model, name);
        if (mkdir(below_model, 0700)) die("%s: %s", below_model, strerror(errno));
        check(directory, below_model, acks, mappings);
    } else die("%s is no verb", verb);
}

int main(int count, char **arguments) {
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0);
    if (count < 5) return 2;
    for (int i = 4; i < count; i++)
        if (fork() == 0) {
            one(arguments[1], arguments[2], arguments[3], arguments[i]);
            exit(0);
        }
    for (int status; wait(&status) > 0;) failed |= status != 0;
    return failed;
}
