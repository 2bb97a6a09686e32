// One of those who go on: works in the directory `t` together with others until it is told
// otherwise, in steps whose effects follow from their number. What it has been told by calls that
// returned must be there whoever dies; whoever takes its place goes on where it was.
#include "deaths.h"
#include <dirent.h>

static unsigned me;
static int file = -1, journal = -1, counter = -1, lockfile = -1;

// ---- the steps of a round -----------------------------------------------------------------------

enum {
    SHORT, LONG, APPEND, MAKE, FILL, RENAME, LINK, UNLINK, MKDIR, RMDIR, SYMLINK, UNSYM, GROW, INTO,
    PUNCH, CUT, ATTRIBUTE, COUNT, FLOCK, NAMELESS, SYNC, MAP, SCAN, STEPS
};

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    int error = errno;
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (me < WORKERS)
        snprintf(shared->told[me], sizeof shared->told[me], "failed at step %lu: %s (errno %s)",
                 shared->begun[me] % STEPS, text, strerrorname_np(error));
    else
        fprintf(stderr, "%s (errno %s)\n", text, strerrorname_np(error));
    _exit(3);
}

#define MUST(expression) \
    do { \
        if ((long)(expression) == -1) \
            fail("%s", #expression); \
    } while (0)

#define SHORT_AT(who) ((who) * 600 + 64)
#define SHORT_LENGTH 200
#define LONG_AT(who) (10000 * ((who) + 1) + 100)
#define LONG_LENGTH 6000
#define CONTENT 900
#define INTO_AT 10000
#define INTO_LENGTH 3000
#define HOLE_AT 10500
#define HOLE_LENGTH 1000

static const char *own(unsigned who, const char *what) {
    static char names[8][64];
    static int next;
    char *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "t/w%u.%s", who, what);
    return name;
}

// How often a step has been done when so many steps have been.
static unsigned times(unsigned step, uint64_t steps) {
    return steps / STEPS + (steps % STEPS > step);
}

static void open_shared(void) {
    if (file >= 0)
        return;
    MUST(file = open("t/f", O_RDWR));
    MUST(journal = open("t/log", O_WRONLY | O_APPEND));
    MUST(counter = open("t/counter", O_RDWR));
    MUST(lockfile = open("t/lockfile", O_RDWR));
}

static void close_shared(void) {
    if (file < 0)
        return;
    MUST(close(file));
    MUST(close(journal));
    MUST(close(counter));
    MUST(close(lockfile));
    file = -1;
}

static void put(int fd, unsigned version, size_t length, off_t at) {
    char bytes[length];
    fill(bytes, length, me, version, 0);
    if (pwrite(fd, bytes, length, at) != (ssize_t)length)
        fail("pwrite of %zu at %ld", length, at);
}

static void append_record(unsigned number) {
    struct record record;
    make_record(&record, me, number);
    if (write(journal, &record, sizeof record) != sizeof record)
        fail("append");
}

// Everybody's numbers and their sum change together, under a lock.
static void count(unsigned number) {
    uint64_t all[WORKERS + 2];
    MUST(lock_bytes(counter, F_WRLCK, 0, 1, F_SETLKW));
    if (pread(counter, all, sizeof all, 0) != sizeof all)
        fail("reading the counters");
    if (all[me] + 1 == number) {
        all[me]++;
        all[WORKERS + 1]++;
        if (pwrite(counter, all, sizeof all, 0) != sizeof all)
            fail("writing the counters");
    } else if (all[me] != number) {
        fail("the counter is %lu, not %u", all[me], number - 1);
    }
    MUST(lock_bytes(counter, F_UNLCK, 0, 1, F_SETLK));
}

static void in_turn(void) {
    uint32_t mine = me + 1, found = 0;
    MUST(flock(lockfile, LOCK_EX));
    MUST(pwrite(lockfile, &mine, sizeof mine, 0));
    for (int again = 0; again < 3; again++) {
        MUST(pread(lockfile, &found, sizeof found, 0));
        if (found != mine)
            fail("%u holds the flock too", found - 1);
    }
    MUST(flock(lockfile, LOCK_UN));
}

static void nameless(unsigned version) {
    char bytes[5000];
    int fd = open(own(me, "tmp"), O_RDWR | O_CREAT, 0600);
    MUST(fd);
    MUST(unlink(own(me, "tmp")));
    put(fd, version, sizeof bytes, 0);
    if (pread(fd, bytes, sizeof bytes, 0) != sizeof bytes ||
        !is_version(bytes, sizeof bytes, me, version))
        fail("the nameless file");
    MUST(close(fd));
}

static void through_mapping(unsigned version) {
    char *bytes = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(bytes);
    if (!is_version(bytes + LONG_AT(me), LONG_LENGTH, me, version))
        fail("the mapping does not show version %u", version);
    MUST(msync(bytes, 65536, MS_SYNC));
    MUST(munmap(bytes, 65536));
}

// Names of one's own: each is seen once in a scan, and no other.
static void scan(unsigned who, uint64_t done, uint64_t begun) {
    DIR *directory = opendir("t");
    char prefix[16];
    snprintf(prefix, sizeof prefix, "w%u.", who);
    int found[6] = {0};
    const char *names[] = {"new", "cur", "lnk", "dir", "sym", "own"};
    unsigned makers[] = {MAKE, RENAME, LINK, MKDIR, SYMLINK, GROW};
    unsigned takers[] = {RENAME, STEPS, UNLINK, RMDIR, UNSYM, STEPS};
    MUST(directory ? 0 : -1);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        int known = 0;
        for (int name = 0; name < 6; name++)
            if (strcmp(entry->d_name + strlen(prefix), names[name]) == 0)
                found[name]++, known = 1;
        if (!known && !(strcmp(entry->d_name + strlen(prefix), "tmp") == 0 && begun > done))
            fail("%s is in the directory", entry->d_name);
    }
    closedir(directory);
    for (int name = 0; name < 6; name++) {
        int before = times(makers[name], done), after = times(makers[name], begun);
        if (takers[name] == STEPS) {
            before = before > 0, after = after > 0;
        } else {
            before -= times(takers[name], done), after -= times(takers[name], begun);
        }
        if (found[name] != before && found[name] != after)
            fail("%s%s is %d times in the directory, not %d", prefix, names[name], found[name],
                 before);
    }
}

// What was to be made and is there already was made by the one before, who died.
#define MAKES(expression) \
    do { \
        if ((expression) == -1 && !(resumed && errno == EEXIST)) \
            fail("%s", #expression); \
    } while (0)
#define TAKES(expression) \
    do { \
        if ((expression) == -1 && !(resumed && errno == ENOENT)) \
            fail("%s", #expression); \
    } while (0)

static unsigned records(unsigned who);

// One step. `resumed`: the one before may have done it, and died before he could say so.
static void step(uint64_t number, int resumed) {
    unsigned version = number / STEPS + 1;
    int fd;
    struct stat stat;
    switch (number % STEPS) {
    case SHORT: put(file, version, SHORT_LENGTH, SHORT_AT(me)); break;
    case LONG: put(file, version, LONG_LENGTH, LONG_AT(me)); break;
    case APPEND:
        if (!resumed || records(me) < version)
            append_record(version);
        break;
    case MAKE:
        MAKES(fd = open(own(me, "new"), O_WRONLY | O_CREAT | O_EXCL, 0644));
        if (fd >= 0)
            MUST(close(fd));
        break;
    case FILL:
        MUST(fd = open(own(me, "new"), O_WRONLY));
        put(fd, version, CONTENT, 0);
        MUST(close(fd));
        break;
    case RENAME: TAKES(rename(own(me, "new"), own(me, "cur"))); break;
    case LINK: MAKES(link(own(me, "cur"), own(me, "lnk"))); break;
    case UNLINK: TAKES(unlink(own(me, "lnk"))); break;
    case MKDIR: MAKES(mkdir(own(me, "dir"), 0755)); break;
    case RMDIR: TAKES(rmdir(own(me, "dir"))); break;
    case SYMLINK: MAKES(symlink("somewhere", own(me, "sym"))); break;
    case UNSYM: TAKES(unlink(own(me, "sym"))); break;
    case GROW: case INTO: case PUNCH: case CUT:
        MUST(fd = open(own(me, "own"), O_RDWR | O_CREAT, 0644));
        if (number % STEPS == GROW)
            MUST(ftruncate(fd, 20000));
        else if (number % STEPS == INTO)
            put(fd, version, INTO_LENGTH, INTO_AT);
        else if (number % STEPS == PUNCH)
            MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HOLE_AT, HOLE_LENGTH));
        else
            MUST(ftruncate(fd, 100));
        MUST(close(fd));
        break;
    case ATTRIBUTE: MUST(setxattr(own(me, "cur"), "user.v", &version, sizeof version, 0)); break;
    case COUNT: count(version); break;
    case FLOCK: in_turn(); break;
    case NAMELESS: nameless(version); break;
    case SYNC: MUST(fsync(file)); MUST(fstat(journal, &stat)); break;
    case MAP: through_mapping(version); break;
    case SCAN: scan(me, number, number); break;
    }
}

// ---- what must be there -------------------------------------------------------------------------

static void check_bytes(unsigned who, unsigned step, const char *path, off_t at, size_t length,
                        uint64_t done, uint64_t begun) {
    char bytes[length];
    unsigned before = times(step, done), after = times(step, begun);
    int fd = open(path, O_RDONLY);
    MUST(fd);
    ssize_t count = pread(fd, bytes, length, at);
    MUST(close(fd));
    if (count != (ssize_t)length)
        fail("%s of %u: %zd bytes at %ld", path, who, count, at);
    int fits = is_version(bytes, length, who, before) || is_version(bytes, length, who, after) ||
               (before != after && may_tear() && is_mixed(bytes, length, who, before, after));
    if (!fits)
        fail("%s of %u at %ld: neither version %u nor %u", path, who, at, before, after);
}

static void check_content(unsigned who, uint64_t done, uint64_t begun) {
    char bytes[CONTENT + 1];
    unsigned current = times(RENAME, done), next = times(RENAME, begun), found = 0;
    int fd = open(own(who, "cur"), O_RDONLY);
    if (fd < 0 && errno == ENOENT && current == 0)
        return;
    MUST(fd);
    ssize_t count = read(fd, bytes, sizeof bytes);
    MUST(close(fd));
    if (count != CONTENT)
        fail("w%u.cur has %zd bytes", who, count);
    int is_new = is_version(bytes, CONTENT, who, next);
    if (!is_new && !is_version(bytes, CONTENT, who, current))
        fail("w%u.cur is neither version %u nor %u", who, current, next);
    unsigned version = is_new ? next : current;
    int has = getxattr(own(who, "cur"), "user.v", &found, sizeof found) == sizeof found;
    if (has ? found != version : times(ATTRIBUTE, done) == version)
        fail("the attribute of w%u.cur is %u, not %u", who, found, version);
}

static void check_own(unsigned who, uint64_t done, uint64_t begun) {
    static char bytes[20001], expected[20001];
    int fd = open(own(who, "own"), O_RDONLY);
    if (fd < 0 && errno == ENOENT && times(GROW, done) == 0)
        return;
    MUST(fd);
    ssize_t count = read(fd, bytes, sizeof bytes);
    MUST(close(fd));
    uint64_t states[] = {done, begun};
    for (int state = 0; state < 2; state++) {
        unsigned grown = times(GROW, states[state]), cut = times(CUT, states[state]);
        unsigned version = times(INTO, states[state]);
        memset(expected, 0, sizeof expected);
        ssize_t size = grown == 0 ? 0 : grown == cut ? 100 : 20000;
        if (version > cut) {
            fill(expected + INTO_AT, INTO_LENGTH, who, version, 0);
            if (times(PUNCH, states[state]) == version)
                memset(expected + HOLE_AT, 0, HOLE_LENGTH);
        }
        if (count == size && memcmp(bytes, expected, size) == 0)
            return;
    }
    // The file is made by the step that makes it longer.
    int making = count == 0 && times(GROW, done) == 0;
    int torn = may_tear() && begun > done &&
               (done % STEPS == INTO || done % STEPS == PUNCH) && count == 20000;
    if (!making && !torn)
        fail("w%u.own with %zd bytes is as it never was", who, count);
}

// The records of one of them in the log: whole, in order, each once.
static unsigned records(unsigned who) {
    struct record found[64], expected;
    unsigned number = 0;
    int fd = open("t/log", O_RDONLY);
    MUST(fd);
    for (ssize_t count; (count = read(fd, found, sizeof found)) > 0;) {
        if (count % sizeof *found)
            fail("the log ends in the middle of a record");
        for (unsigned at = 0; at < count / sizeof *found; at++) {
            make_record(&expected, found[at].who, found[at].number);
            if (found[at].who > VICTIM || memcmp(&found[at], &expected, sizeof expected) != 0)
                fail("a record of %u is torn", found[at].who);
            if (found[at].who == who && found[at].number != ++number)
                fail("record %u of %u where %u should be", found[at].number, who, number);
        }
    }
    MUST(close(fd));
    return number;
}

static void check_log(unsigned who, uint64_t done, uint64_t begun) {
    unsigned number = records(who);
    if (number != times(APPEND, done) && number != times(APPEND, begun))
        fail("%u records of %u, not %u", number, who, times(APPEND, done));
}

static void check_counter(unsigned who, uint64_t done, uint64_t begun) {
    uint64_t all[WORKERS + 2], sum = 0;
    int fd = open("t/counter", O_RDONLY);
    MUST(fd);
    MUST(pread(fd, all, sizeof all, 0));
    MUST(close(fd));
    if (all[who] != times(COUNT, done) && all[who] != times(COUNT, begun))
        fail("the counter of %u is %lu", who, all[who]);
    for (int each = 0; each <= WORKERS; each++)
        sum += all[each];
    // Nobody counts while this runs, or the sum is another's to check.
    if (who == me && shared->want[me] % 256 == LOOK && sum != all[WORKERS + 1] && !may_tear())
        fail("the counters' sum is %lu, not %lu", all[WORKERS + 1], sum);
}

// Everything that one of them was told must be there; the step in flight, if any, wholly or not.
static void check_worker(unsigned who, uint64_t done, uint64_t begun) {
    if (begun == 0)
        return;
    check_bytes(who, SHORT, "t/f", SHORT_AT(who), SHORT_LENGTH, done, begun);
    check_bytes(who, LONG, "t/f", LONG_AT(who), LONG_LENGTH, done, begun);
    check_content(who, done, begun);
    check_own(who, done, begun);
    check_log(who, done, begun);
    check_counter(who, done, begun);
    scan(who, done, begun);
}

// ---- what it is told to do ----------------------------------------------------------------------

static void build(void) {
    uint64_t zeros[WORKERS + 2] = {0};
    const char *files[] = {"t/log", "t/lockfile", "t/held"};
    MUST(mkdir("t", 0755));
    for (int each = 0; each < 3; each++) {
        int fd = open(files[each], O_WRONLY | O_CREAT | O_EXCL, 0644);
        MUST(fd);
        MUST(close(fd));
    }
    int fd = open("t/counter", O_WRONLY | O_CREAT | O_EXCL, 0644);
    MUST(fd);
    MUST(write(fd, zeros, sizeof zeros));
    MUST(close(fd));
    MUST(fd = open("t/f", O_WRONLY | O_CREAT | O_EXCL, 0644));
    static char blank[65536];
    MUST(write(fd, blank, sizeof blank));
    MUST(close(fd));
}

// Nobody works: everything is there, and no lock is held any more.
static void look(void) {
    for (unsigned who = 0; who < WORKERS; who++)
        check_worker(who, shared->done[who], shared->begun[who]);
    const char *locked[] = {"t/f", "t/counter", "t/lockfile", "t/held"};
    for (int each = 0; each < 4; each++) {
        int fd = open(locked[each], O_RDWR);
        MUST(fd);
        if (lock_bytes(fd, F_WRLCK, 0, 0, F_SETLK) != 0)
            fail("a record lock on %s is held by the dead", locked[each]);
        // Who died on the way to a child is believed to have one, for a second.
        for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
            if (tries > 150)
                fail("a flock on %s is held by the dead", locked[each]);
            usleep(10000);
        }
        MUST(close(fd));
    }
}

static void clean(const char *path) {
    DIR *directory = opendir(path);
    MUST(directory ? 0 : -1);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char inside[512];
        struct stat stat;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        MUST(lstat(inside, &stat));
        if (S_ISDIR(stat.st_mode))
            clean(inside);
        else
            MUST(unlink(inside));
    }
    MUST(closedir(directory));
    MUST(rmdir(path));
}

// Steps until something else is wanted. One that its predecessor had begun is done again, if it was
// not done.
static void work(uint64_t want) {
    uint64_t done = shared->done[me], begun = shared->begun[me];
    open_shared();
    if (begun > done) {
        check_worker(me, done, begun);
        unlink(own(me, "tmp"));
        step(done, 1);
        shared->done[me] = done + 1;
    }
    shared->acted[me] = want;
    while (shared->want[me] == want) {
        uint64_t number = shared->done[me];
        shared->begun[me] = number + 1;
        step(number, 0);
        shared->done[me] = number + 1;
    }
}

static void look_at_case(unsigned number);

static void survive(unsigned number) {
    me = number;
    // Who counts the steps of a victim goes first.
    nice(5);
    for (uint64_t last = 0, idle = 0;;) {
        uint64_t want = shared->want[me];
        if (want == last) {
            // Seldom while a victim goes its way by single instructions.
            usleep(idle++ < 100 ? 100 : 1000);
            continue;
        }
        last = want;
        idle = 0;
        switch (want % 256) {
        case WORK: work(want); break;
        case BUILD: build(); break;
        case LOOK:
            look();
            look_at_case(want >> 8 & 0xFFFF);
            break;
        case CLOSE: close_shared(); break;
        case CLEAN: clean("t"); break;
        case END: exit(0);
        }
        shared->acted[me] = want;
    }
}
