// The calls in which somebody dies: what goes before, the call, and whether it has happened.
#include <pthread.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

enum { BEFORE, AFTER, TORN, EITHER };

struct victim_case {
    const char *name;
    void (*prepare)(void), (*call)(void);
    int (*look)(void);
};

static struct victim_case cases[128];
static unsigned cases_count;

#define CASE(id, PREPARE, CALL, LOOK) \
    static void prepare_##id(void) { PREPARE; } \
    static void call_##id(void) { CALL; } \
    static int look_##id(void) { LOOK; } \
    __attribute__((constructor)) static void add_##id(void) { \
        cases[cases_count++] = (struct victim_case){#id, prepare_##id, call_##id, look_##id}; \
    }

// ---- what the cases share -----------------------------------------------------------------------

#define BIG 200000
static int fd = -1, other = -1, pair[2];
static char was[2 * BIG], will[2 * BIG], got[2 * BIG];
static size_t was_size, will_size;
// What a call writes: there before it begins, for what is inside it is run instruction by instruction.
static char fresh[BIG];

static void make_fresh(void) { fill(fresh, sizeof fresh, VICTIM, 2, 0); }

static void make(const char *path, size_t size) {
    MUST(fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644));
    fill(was, size, VICTIM, 1, 0);
    if (write(fd, was, size) != (ssize_t)size)
        fail("making %s", path);
}

static void make_closed(const char *path, size_t size) {
    make(path, size);
    MUST(close(fd));
}

static void write_new(int to, size_t length, off_t at) {
    if (pwrite(to, fresh, length, at) != (ssize_t)length)
        fail("pwrite");
}

static void append_new(int to, size_t length) {
    if (write(to, fresh, length) != (ssize_t)length)
        fail("append");
}

static int there(const char *path) {
    struct stat stat;
    return lstat(path, &stat) == 0;
}

static int changed(int is) { return is ? AFTER : BEFORE; }

// The file was so long, and will be unless it is changed.
static void expect(size_t size) {
    fill(was, size, VICTIM, 1, 0);
    memcpy(will, was, size);
    was_size = will_size = size;
}

// It will have new bytes there, behind zeros if that is beyond its end.
static void expect_new(size_t at, size_t length) {
    if (at > will_size)
        memset(will + will_size, 0, at - will_size);
    fill(will + at, length, VICTIM, 2, 0);
    if (at + length > will_size)
        will_size = at + length;
}

static void expect_zeros(size_t at, size_t length) {
    memset(will + at, 0, length);
    if (at + length > will_size)
        will_size = at + length;
}

// Which of the two a file is.
static int contents(const char *path) {
    int opened = open(path, O_RDONLY);
    if (opened < 0)
        fail("%s", path);
    ssize_t size = read(opened, got, sizeof got);
    MUST(close(opened));
    if (size == (ssize_t)was_size && memcmp(got, was, size) == 0)
        return BEFORE;
    if (size == (ssize_t)will_size && memcmp(got, will, size) == 0)
        return AFTER;
    if (size != (ssize_t)was_size && size != (ssize_t)will_size)
        fail("%s has %zd bytes, neither %zu nor %zu", path, size, was_size, will_size);
    for (ssize_t at = 0; at < size; at++) {
        int old = at < (ssize_t)was_size && got[at] == was[at];
        if (!old && got[at] != will[at])
            fail("%s: the byte at %zd is neither old nor new", path, at);
    }
    return TORN;
}

// The same of a part of the file that all write to, where it was zeros.
static int part(size_t at, size_t length, size_t size) {
    int opened = open("t/f", O_RDONLY);
    MUST(opened);
    ssize_t count = pread(opened, got, length, at);
    struct stat stat;
    MUST(fstat(opened, &stat));
    MUST(close(opened));
    if (stat.st_size != 65536 && stat.st_size != (off_t)size)
        fail("the file has %ld bytes", stat.st_size);
    if (stat.st_size == 65536 && size != 65536)
        return BEFORE;
    if (count != (ssize_t)length)
        fail("%zd bytes at %zu", count, at);
    if (is_version(got, length, VICTIM, 0))
        return BEFORE;
    if (is_version(got, length, VICTIM, 2))
        return AFTER;
    if (!is_mixed(got, length, VICTIM, 0, 2))
        fail("bytes at %zu that nobody wrote", at);
    return TORN;
}

static off_t size_of(const char *path) {
    struct stat stat;
    MUST(lstat(path, &stat));
    return stat.st_size;
}

static unsigned links_of(const char *path) {
    struct stat stat;
    MUST(lstat(path, &stat));
    return stat.st_nlink;
}

static void send_descriptor(int over, int sent) {
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &sent, sizeof sent);
    MUST(sendmsg(over, &message, 0));
}

// ---- data ---------------------------------------------------------------------------------------

CASE(append_long, make("t/v", 5000), append_new(fd, 70000),
     expect(5000); expect_new(5000, 70000); return contents("t/v"))
CASE(append_short, make("t/v", 5000), append_new(fd, 100),
     expect(5000); expect_new(5000, 100); return contents("t/v"))
CASE(append_to_log, MUST(fd = open("t/log", O_WRONLY | O_APPEND)),
     journal = fd; append_record(1), return changed(records(VICTIM) == 1))
static void append_two(void) {
    struct record two[2];
    make_record(two, VICTIM, 1);
    make_record(two + 1, VICTIM, 2);
    struct iovec parts[] = {{two, 50}, {(char *)two + 50, sizeof two - 50}};
    MUST(writev(fd, parts, 2));
}

static int look_for_two(void) {
    unsigned count = records(VICTIM);
    if (count == 1)
        fail("half a writev");
    return changed(count);
}

CASE(writev_to_log, MUST(fd = open("t/log", O_WRONLY | O_APPEND)), append_two(),
     return look_for_two())
CASE(overwrite_few, MUST(fd = open("t/f", O_RDWR)), write_new(fd, 50, 3000),
     return part(3000, 50, 65536))
CASE(overwrite_shared_blocks, MUST(fd = open("t/f", O_RDWR)), write_new(fd, 3700, 16200),
     return part(16200, 3700, 65536))
CASE(overwrite_blocks, MUST(fd = open("t/f", O_RDWR)), write_new(fd, 16384, 40960),
     return part(40960, 16384, 65536))
CASE(write_beyond_end, MUST(fd = open("t/f", O_RDWR)), write_new(fd, 9000, 70000),
     return part(70000, 9000, 79000))
CASE(write_over_the_end, make("t/v", 5000), write_new(fd, 9000, 3000),
     expect(5000); expect_new(3000, 9000); return contents("t/v"))
CASE(write_into_hole, make("t/v", 5000); MUST(ftruncate(fd, BIG)), write_new(fd, 5000, 150001),
     expect(5000); expect_zeros(5000, BIG - 5000); memcpy(was, will, BIG); was_size = BIG;
     expect_new(150001, 5000); return contents("t/v"))
CASE(copy_range, make("t/v", 50000); other = fd; make("t/vcopy", 100),
     off_t from = 0; off_t to = 0; MUST(copy_file_range(other, &from, fd, &to, 50000, 0)),
     expect(100); will_size = 50000; fill(will, 50000, VICTIM, 1, 0); return contents("t/vcopy"))
CASE(reading, make("t/v", 50000), MUST(pread(fd, got, 50000, 0)), return EITHER)
CASE(truncate_down, make("t/v", BIG), MUST(ftruncate(fd, 1001)),
     expect(BIG); will_size = 1001; return contents("t/v"))
CASE(truncate_up, make("t/v", 5000), MUST(truncate("t/v", 100000)),
     expect(5000); expect_zeros(5000, 95000); return contents("t/v"))
CASE(truncate_open, make_closed("t/v", 50000), MUST(fd = open("t/v", O_RDWR | O_TRUNC)),
     expect(50000); will_size = 0; return contents("t/v"))
CASE(allocate, make("t/v", 5000), MUST(fallocate(fd, 0, 0, 100000)),
     expect(5000); expect_zeros(5000, 95000); return contents("t/v"))
CASE(allocate_ahead, make("t/v", 5000), MUST(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000)),
     expect(5000); return contents("t/v") == BEFORE ? EITHER : TORN)
CASE(punch, make("t/v", BIG),
     MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 100000)),
     expect(BIG); expect_zeros(5000, 100000); return contents("t/v"))
CASE(zero_range, make("t/v", BIG), MUST(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5000, 100000)),
     expect(BIG); expect_zeros(5000, 100000); return contents("t/v"))
CASE(collapse, make("t/v", BIG), MUST(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 8192, 40960)),
     expect(BIG); memmove(will + 8192, was + 49152, BIG - 49152); will_size = BIG - 40960;
     return contents("t/v"))
CASE(insert, make("t/v", BIG), MUST(fallocate(fd, FALLOC_FL_INSERT_RANGE, 8192, 40960)),
     expect(BIG); memmove(will + 49152, was + 8192, BIG - 8192); will_size = BIG + 40960;
     memset(will + 8192, 0, 40960); return contents("t/v"))

// ---- names --------------------------------------------------------------------------------------

CASE(create, , MUST(fd = open("t/v", O_RDWR | O_CREAT | O_EXCL, 0644)),
     int is = there("t/v"); if (is && size_of("t/v")) fail("not empty"); return changed(is))
CASE(open_there, make_closed("t/v", 5000), MUST(fd = open("t/v", O_RDWR)), return EITHER)
CASE(create_splits, MUST(mkdir("t/vd", 0755));
     for (int each = 0; each < 56; each++) {
         char path[32]; snprintf(path, sizeof path, "t/vd/%d", each); make_closed(path, 0);
     },
     MUST(fd = open("t/vd/new", O_RDWR | O_CREAT | O_EXCL, 0644)),
     for (int each = 0; each < 56; each++) {
         char path[32]; snprintf(path, sizeof path, "t/vd/%d", each); MUST(size_of(path));
     }
     return changed(there("t/vd/new")))
CASE(make_directory, , MUST(mkdir("t/vd", 0755)),
     unsigned links = links_of("t"); unsigned workers = 0;
     for (unsigned who = 0; who < WORKERS; who++) workers += there(own(who, "dir"));
     int is = there("t/vd");
     if (links != 2 + is + workers) fail("the directory has %u links", links);
     return changed(is))
CASE(remove_directory, MUST(mkdir("t/vd", 0755)), MUST(rmdir("t/vd")),
     return changed(!there("t/vd")))
CASE(link_, make_closed("t/v", 5000), MUST(link("t/v", "t/vlink")),
     int is = there("t/vlink"); if (links_of("t/v") != 1u + is) fail("links"); return changed(is))
CASE(unlink_last, make_closed("t/v", BIG), MUST(unlink("t/v")), return changed(!there("t/v")))
CASE(unlink_open, make("t/v", BIG), MUST(unlink("t/v")), return changed(!there("t/v")))
CASE(unlink_one, make_closed("t/v", 5000); MUST(link("t/v", "t/vlink")), MUST(unlink("t/vlink")),
     int is = !there("t/vlink"); if (links_of("t/v") != 2u - is) fail("links"); return changed(is))
CASE(symlink_, , MUST(symlink("target", "t/v")),
     int is = there("t/v"); if (is && size_of("t/v") != 6) fail("target"); return changed(is))
CASE(symlink_long, , memset(got, 'x', 1000); MUST(symlink(got, "t/v")),
     int is = there("t/v"); if (is && size_of("t/v") != 1000) fail("target"); return changed(is))
CASE(rename_, make_closed("t/v", 5000), MUST(rename("t/v", "t/vnew")),
     int is = there("t/vnew"); if (is == there("t/v")) fail("names"); expect(5000);
     contents(is ? "t/vnew" : "t/v"); return changed(is))
CASE(rename_over, make_closed("t/v", 5000); make_closed("t/vnew", BIG),
     MUST(rename("t/v", "t/vnew")),
     int is = !there("t/v"); off_t size = size_of("t/vnew");
     if (size != (is ? 5000 : BIG)) fail("%ld bytes", size); return changed(is))
CASE(rename_over_open, make("t/v", 5000); make("t/vnew", BIG), MUST(rename("t/v", "t/vnew")),
     int is = !there("t/v"); off_t size = size_of("t/vnew");
     if (size != (is ? 5000 : BIG)) fail("%ld bytes", size); return changed(is))
CASE(rename_exchange, make_closed("t/v", 5000); MUST(mkdir("t/vd", 0755)),
     MUST(renameat2(AT_FDCWD, "t/v", AT_FDCWD, "t/vd", RENAME_EXCHANGE)),
     struct stat a; struct stat b; MUST(lstat("t/v", &a)); MUST(lstat("t/vd", &b));
     if (S_ISDIR(a.st_mode) == S_ISDIR(b.st_mode)) fail("both"); return changed(S_ISDIR(a.st_mode)))
CASE(rename_directory, MUST(mkdir("t/va", 0755)); MUST(mkdir("t/vb", 0755));
     MUST(mkdir("t/va/d", 0755)), MUST(rename("t/va/d", "t/vb/d")),
     int is = there("t/vb/d"); if (is == there("t/va/d")) fail("names");
     if (links_of("t/va") != 3u - is || links_of("t/vb") != 2u + is) fail("links");
     return changed(is))
CASE(nameless_linked, MUST(fd = open("t", O_RDWR | O_TMPFILE, 0644)); append_new(fd, 5000),
     char path[64]; snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
     MUST(linkat(AT_FDCWD, path, AT_FDCWD, "t/v", AT_SYMLINK_FOLLOW)),
     int is = there("t/v"); if (is && size_of("t/v") != 5000) fail("size"); return changed(is))
CASE(nameless_made, , MUST(fd = open("t", O_RDWR | O_TMPFILE, 0644)), return EITHER)

// ---- attributes ---------------------------------------------------------------------------------

static int attribute(void) {
    char value[100] = {0};
    ssize_t size = getxattr("t/v", "user.a", value, sizeof value);
    int is = size > 0 && value[0] == 'n';
    if (size > 0 && strcmp(value, is ? "new value" : "old") != 0)
        fail("the value is %s", value);
    return changed(is);
}

CASE(set_attribute, make_closed("t/v", 10), MUST(setxattr("t/v", "user.a", "new value", 10, 0)),
     return attribute())
CASE(replace_attribute,
     make_closed("t/v", 10); MUST(setxattr("t/v", "user.a", "old", 4, 0)),
     MUST(setxattr("t/v", "user.a", "new value", 10, 0)), return attribute())
CASE(remove_attribute, make_closed("t/v", 10); MUST(setxattr("t/v", "user.a", "old", 4, 0)),
     MUST(removexattr("t/v", "user.a")),
     return changed(getxattr("t/v", "user.a", got, 100) < 0))
CASE(change_mode, make_closed("t/v", 10), MUST(chmod("t/v", 0640)),
     struct stat stat; MUST(lstat("t/v", &stat)); int is = (stat.st_mode & 0777) == 0640;
     if (!is && (stat.st_mode & 0777) != 0644) fail("mode"); return changed(is))
CASE(change_times, make_closed("t/v", 10),
     struct timespec times[2] = {0}; times[1].tv_sec = 2000;
     MUST(utimensat(AT_FDCWD, "t/v", times, 0)),
     struct stat stat; MUST(lstat("t/v", &stat)); return changed(stat.st_mtime == 2000))

// ---- descriptors --------------------------------------------------------------------------------

CASE(sync_file, make("t/v", 5000); append_new(fd, 3000), MUST(fsync(fd)),
     expect(5000); expect_new(5000, 3000); return contents("t/v") == AFTER ? EITHER : TORN)
CASE(sync_data, make("t/v", 5000); append_new(fd, 3000), MUST(fdatasync(fd)),
     expect(5000); expect_new(5000, 3000); return contents("t/v") == AFTER ? EITHER : TORN)
CASE(close_last, make("t/v", 5000); append_new(fd, 3000), MUST(close(fd)),
     expect(5000); expect_new(5000, 3000); return contents("t/v") == AFTER ? EITHER : TORN)
CASE(close_unlinked, make("t/v", BIG); MUST(unlink("t/v")), MUST(close(fd)), return EITHER)
CASE(duplicate_over, make("t/v", 5000); other = fd; make("t/vgone", BIG); MUST(unlink("t/vgone")),
     MUST(dup2(other, fd)), return EITHER)
CASE(send, make("t/v", 5000); MUST(unlink("t/v")); MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)),
     send_descriptor(pair[0], fd), return EITHER)
CASE(lock_record, MUST(fd = open("t/counter", O_RDWR)),
     MUST(lock_bytes(fd, F_WRLCK, 0, 1, F_SETLKW)), return EITHER)
CASE(unlock_record, MUST(fd = open("t/counter", O_RDWR)); MUST(lock_bytes(fd, F_WRLCK, 5, 9, F_SETLK)),
     MUST(lock_bytes(fd, F_UNLCK, 7, 2, F_SETLK)), return EITHER)
CASE(count_under_lock, MUST(counter = open("t/counter", O_RDWR)), count(1),
     uint64_t all[WORKERS + 2]; MUST(fd = open("t/counter", O_RDONLY));
     MUST(pread(fd, all, sizeof all, 0)); MUST(close(fd)); return changed(all[VICTIM] == 1))
CASE(flock_, MUST(fd = open("t/lockfile", O_RDWR)), MUST(flock(fd, LOCK_EX)), return EITHER)
CASE(unflock, MUST(fd = open("t/log", O_RDWR)); MUST(flock(fd, LOCK_EX)), MUST(flock(fd, LOCK_UN)),
     return EITHER)

// ---- mappings -----------------------------------------------------------------------------------

static char *mapped;

static void map_shared(size_t length) {
    mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(mapped);
}

CASE(map, make("t/v", 5000); MUST(ftruncate(fd, 100000)), map_shared(100000),
     expect(5000); expect_zeros(5000, 95000); return contents("t/v") == AFTER ? EITHER : TORN)
CASE(unmap, make("t/v", 5000); map_shared(5000); MUST(close(fd)), MUST(munmap(mapped, 5000)),
     return EITHER)
CASE(sync_mapping, make("t/v", 5000); map_shared(5000); fill(mapped, 3000, VICTIM, 2, 0),
     MUST(msync(mapped, 5000, MS_SYNC)),
     expect(5000); expect_new(0, 3000); return contents("t/v") == AFTER ? EITHER : TORN)
CASE(write_mapped, make("t/v", BIG); map_shared(BIG), write_new(fd, 9000, 5000),
     expect(BIG); expect_new(5000, 9000); return contents("t/v"))
CASE(truncate_mapped, make("t/v", BIG); map_shared(BIG), MUST(ftruncate(fd, 1001)),
     expect(BIG); will_size = 1001; return contents("t/v"))

// ---- processes ----------------------------------------------------------------------------------

static int executed(int inherited) {
    struct stat stat;
    return write(inherited, "after", 5) != 5 || fstat(inherited, &stat) != 0;
}

CASE(fork_, make("t/v", 5000); unlink("t/v"),
     pid_t child = fork(); MUST(child);
     if (child == 0) { write(fd, "child", 5); _exit(0); } MUST(waitpid(child, NULL, 0)),
     return EITHER)
CASE(vfork_, make("t/v", 5000); unlink("t/v"),
     pid_t child = vfork(); MUST(child);
     if (child == 0) { dup2(fd, 9); _exit(0); } MUST(waitpid(child, NULL, 0)),
     return EITHER)
static void spawn_one(void) {
    pid_t child;
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    char *words[] = {"deaths", "executed", number, NULL};
    errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ);
    MUST(errno ? -1 : 0);
    MUST(waitpid(child, NULL, 0));
}

CASE(spawn, make("t/v", 5000); unlink("t/v"), spawn_one(), return EITHER)
CASE(exec, make("t/v", 5000); unlink("t/v"),
     char number[12]; snprintf(number, sizeof number, "%d", fd);
     MUST(execl("/proc/self/exe", "deaths", "executed", number, NULL)), return EITHER)
CASE(exit_, make("t/v", 5000); unlink("t/v"); make("t/vstays", 5000), exit(0), return EITHER)
CASE(exit_at_once, make("t/v", 5000); map_shared(5000), _exit(0), return EITHER)
