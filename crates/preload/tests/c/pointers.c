// Bad pointers: every call that takes one, each of its pointer arguments, each kind of badness. The
// kernel's answers are the standard: errno, what was changed, and what a partly good buffer got.
#include "say.h"
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <utime.h>

#define PAGE 4096
// What a test passes instead of a good pointer.
enum { NONE, NULL_PAGE, BEYOND, GONE, LOCKED, READ_ONLY, EDGE, KINDS };
static const char *kinds[] = {"NULL", "null page", "beyond all", "unmapped", "no access", "read-only",
                              "crossing"};
// Three pages: one that is good, one that is gone.
static char *edge, *locked, *constant;

static void *bad(int kind) {
    switch (kind) {
    case NONE: return NULL;
    case NULL_PAGE: return (void *)8;
    case BEYOND: return (void *)0x7000000000000001;
    case GONE: return edge + PAGE;
    case LOCKED: return locked;
    case READ_ONLY: return constant;
    default: return edge + PAGE - 3;
    }
}

static void say(const char *what, int kind, long value) {
    int error = errno;
    if (value == -1)
        fprintf(results, "%s, %s: %s\n", what, kinds[kind], strerrorname_np(error));
    else
        fprintf(results, "%s, %s: %ld\n", what, kinds[kind], value);
    fflush(results);
}

// What all calls must have left alone.
static void check(const char *what) {
    struct stat file;
    char bytes[64] = {0};
    int fd = open("file", O_RDONLY);
    ssize_t got = read(fd, bytes, sizeof bytes - 1);
    close(fd);
    if (stat("file", &file) || got != 10 || strcmp(bytes, "0123456789") ||
        (file.st_mode & 07777) != 0644 || file.st_mtime != 1000 || file.st_nlink != 1)
        fprintf(results, "%s changed the file: %zd [%s] %o %ld %ld\n", what, got, bytes,
                file.st_mode, file.st_mtime, (long)file.st_nlink);
}

// BAD stands for the pointer; good text where READ_ONLY memory is as good as any.
#define EACH(first, last, expression) \
    do { \
        for (int kind = (first); kind <= (last); kind++) { \
            void *BAD = bad(kind); \
            memset(edge, 'x', PAGE); \
            errno = 0; \
            say(#expression, kind, (long)(expression)); \
            check(#expression); \
        } \
    } while (0)
// A text or value that is read: read-only memory is good.
#define INPUT(expression) \
    do { \
        EACH(NULL_PAGE, LOCKED, expression); \
        EACH(EDGE, EDGE, expression); \
    } while (0)
#define INPUT_OR_NULL(expression) \
    do { \
        EACH(NONE, NONE, expression); \
        INPUT(expression); \
    } while (0)
#define OUTPUT(expression) EACH(NULL_PAGE, EDGE, expression)
#define OUTPUT_OR_NULL(expression) EACH(NONE, EDGE, expression)

static int here, fd;

static void paths(void) {
    struct stat st;
    struct statx stx;
    struct statfs fs;
    struct statvfs vfs;
    char to[64];
    INPUT_OR_NULL(open(BAD, O_RDONLY));
    INPUT_OR_NULL(open(BAD, O_RDWR | O_CREAT | O_EXCL, 0600));
    INPUT_OR_NULL(openat(here, BAD, O_RDONLY));
    INPUT_OR_NULL(creat(BAD, 0600));
    INPUT_OR_NULL(stat(BAD, &st));
    INPUT_OR_NULL(lstat(BAD, &st));
    INPUT_OR_NULL(fstatat(here, BAD, &st, 0));
    INPUT(statx(here, BAD, 0, STATX_BASIC_STATS, &stx));
    INPUT_OR_NULL(statfs(BAD, &fs));
    INPUT_OR_NULL(statvfs(BAD, &vfs));
    INPUT_OR_NULL(access(BAD, R_OK));
    INPUT_OR_NULL(faccessat(here, BAD, R_OK, 0));
    INPUT_OR_NULL(mkdir(BAD, 0700));
    INPUT_OR_NULL(mkdirat(here, BAD, 0700));
    INPUT_OR_NULL(mknod(BAD, S_IFREG | 0600, 0));
    INPUT_OR_NULL(mkfifo(BAD, 0600));
    INPUT_OR_NULL(rmdir(BAD));
    INPUT_OR_NULL(unlink(BAD));
    INPUT_OR_NULL(unlinkat(here, BAD, 0));
    INPUT_OR_NULL(remove(BAD));
    INPUT_OR_NULL(rename(BAD, "new"));
    INPUT_OR_NULL(rename("file", BAD));
    INPUT_OR_NULL(renameat(here, BAD, here, "new"));
    INPUT_OR_NULL(renameat2(here, "file", here, BAD, 0));
    INPUT_OR_NULL(link(BAD, "new"));
    INPUT_OR_NULL(link("file", BAD));
    INPUT_OR_NULL(linkat(here, BAD, here, "new", 0));
    INPUT_OR_NULL(symlink(BAD, "new"));
    INPUT_OR_NULL(symlink("target", BAD));
    INPUT_OR_NULL(symlinkat(BAD, here, "new"));
    INPUT_OR_NULL(readlink(BAD, to, sizeof to));
    INPUT_OR_NULL(readlinkat(here, BAD, to, sizeof to));
    INPUT_OR_NULL(chmod(BAD, 0600));
    INPUT_OR_NULL(fchmodat(here, BAD, 0600, 0));
    INPUT_OR_NULL(chown(BAD, -1, -1));
    INPUT_OR_NULL(lchown(BAD, -1, -1));
    INPUT_OR_NULL(fchownat(here, BAD, -1, -1, 0));
    INPUT_OR_NULL(truncate(BAD, 1));
    INPUT_OR_NULL(utime(BAD, NULL));
    INPUT_OR_NULL(utimes(BAD, NULL));
    INPUT_OR_NULL(lutimes(BAD, NULL));
    INPUT(utimensat(here, BAD, NULL, 0));
    INPUT_OR_NULL(chdir(BAD));
    INPUT_OR_NULL((long)fopen(BAD, "r") ?: -1);
    INPUT_OR_NULL(execv(BAD, (char *[]){"x", NULL}));
}

static void answers(void) {
    OUTPUT_OR_NULL(stat("file", BAD));
    OUTPUT_OR_NULL(lstat("file", BAD));
    OUTPUT_OR_NULL(fstat(fd, BAD));
    OUTPUT_OR_NULL(fstatat(here, "file", BAD, 0));
    OUTPUT_OR_NULL(statx(here, "file", 0, STATX_BASIC_STATS, BAD));
    OUTPUT_OR_NULL(statfs("file", BAD));
    OUTPUT_OR_NULL(fstatfs(fd, BAD));
    OUTPUT_OR_NULL(stat("none", BAD));
    OUTPUT_OR_NULL(fstat(99, BAD));
    OUTPUT_OR_NULL(readlink("symlink", BAD, 64));
    OUTPUT_OR_NULL(readlinkat(here, "symlink", BAD, 64));
    OUTPUT_OR_NULL(readlink("symlink", BAD, 3));
    OUTPUT_OR_NULL(readlink("file", BAD, 3));
    OUTPUT(getcwd(BAD, PAGE) ? 0 : -1);
    int one = open("one", O_RDONLY | O_DIRECTORY);
    OUTPUT_OR_NULL(getdents64(one, BAD, PAGE));
    // A page of which only the first two entries fit before the gap.
    memset(edge, 'x', PAGE);
    ssize_t got = getdents64(one, edge + PAGE - 60, PAGE);
    fprintf(results, "%zd bytes of entries before the gap\n", got);
    int entries = 0;
    while ((got = getdents64(one, edge, PAGE)) > 0)
        for (ssize_t at = 0; at < got; at += ((struct dirent64 *)(edge + at))->d_reclen)
            entries++;
    fprintf(results, "%d entries behind it\n", entries);
    close(one);
}

static void attributes(void) {
    char to[16];
    INPUT(utimensat(here, "file", BAD, 0));
    INPUT(futimens(fd, BAD));
    INPUT_OR_NULL(getxattr(BAD, "user.a", to, sizeof to));
    INPUT_OR_NULL(getxattr("file", BAD, to, sizeof to));
    INPUT_OR_NULL(fgetxattr(fd, BAD, to, sizeof to));
    OUTPUT_OR_NULL(getxattr("file", "user.a", BAD, 16));
    OUTPUT_OR_NULL(fgetxattr(fd, "user.a", BAD, 16));
    OUTPUT_OR_NULL(fgetxattr(fd, "user.a", BAD, 0));
    OUTPUT_OR_NULL(fgetxattr(fd, "user.a", BAD, 2));
    OUTPUT_OR_NULL(fgetxattr(fd, "user.b", BAD, 16));
    INPUT_OR_NULL(setxattr("file", BAD, "v", 1, 0));
    INPUT_OR_NULL(setxattr("file", "user.b", BAD, 8, 0));
    INPUT_OR_NULL(fsetxattr(fd, "user.b", BAD, 8, 0));
    INPUT_OR_NULL(lsetxattr(BAD, "user.b", "v", 1, 0));
    INPUT_OR_NULL(removexattr("file", BAD));
    INPUT_OR_NULL(fremovexattr(fd, BAD));
    INPUT_OR_NULL(listxattr(BAD, to, 0));
    SAY(fgetxattr(fd, "user.b", to, sizeof to));
    char longest[300];
    memset(longest, 'n', sizeof longest);
    longest[299] = 0;
    memcpy(longest, "user.", 5);
    SAY(fgetxattr(fd, longest, to, sizeof to));
}

static void locks(void) {
    INPUT_OR_NULL(fcntl(fd, F_SETLK, BAD));
    INPUT_OR_NULL(fcntl(fd, F_SETLKW, BAD));
    INPUT_OR_NULL(fcntl(fd, F_OFD_SETLK, BAD));
    INPUT_OR_NULL(fcntl(fd, F_GETLK, BAD));
    INPUT_OR_NULL(fcntl(fd, F_OFD_GETLK, BAD));
    SAY(fcntl(fd, F_GETLK, constant));
    OUTPUT_OR_NULL(ioctl(fd, FIONBIO, BAD) * (kind != READ_ONLY));
}

static void reading(void) {
    OUTPUT_OR_NULL(pread(fd, BAD, 10, 0));
    OUTPUT_OR_NULL(pread(fd, BAD, 3, 0));
    OUTPUT_OR_NULL(pread(fd, BAD, 0, 0));
    OUTPUT_OR_NULL(pread(fd, BAD, 10, 10));
    OUTPUT_OR_NULL(pread(fd, BAD, 10, 100));
    OUTPUT_OR_NULL(pread(fd, BAD, 10, 8));
    OUTPUT_OR_NULL(pread(99, BAD, 10, 8));
    OUTPUT_OR_NULL(lseek(fd, 2, SEEK_SET) + read(fd, BAD, 6));
    SAY(lseek(fd, 0, SEEK_CUR));
    memset(edge, 'x', PAGE);
    SAY(pread(fd, edge + PAGE - 4, 9, 2));
    SAY(memcmp(edge + PAGE - 6, "xx2345", 6));
    // The position moves by what was read.
    lseek(fd, 1, SEEK_SET);
    SAY(read(fd, edge + PAGE - 4, 9));
    SAY(lseek(fd, 0, SEEK_CUR));
    // A length far beyond the buffer and the file.
    SAY(pread(fd, edge + PAGE - 10, 1 << 20, 0));
    SAY(pread(fd, edge + PAGE - 9, 1 << 20, 0));
    SAY(pread(fd, edge + PAGE - 9, SSIZE_MAX, 0));
    SAY(pread(fd, edge + PAGE - 9, -1, 0));
}

static void big(void) {
    // Files of some hundred KiB, with a hole, around gaps at each page of a larger buffer.
    int file = open("big", O_RDWR | O_CREAT | O_TRUNC, 0600);
    size_t size = 300000;
    char *data = malloc(size);
    for (size_t at = 0; at < size; at++)
        data[at] = at * 31 + (at >> 10);
    SAY(pwrite(file, data, 100000, 0));
    SAY(pwrite(file, data + 200000, 100000, 200000));
    memset(data + 100000, 0, 100000);
    for (int pages = 1; pages < 60; pages += 7) {
        char *room = mmap(NULL, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                          0);
        munmap(room + pages * PAGE, PAGE);
        for (int shift = 0; shift < 3; shift++) {
            size_t fits = pages * PAGE - shift * 1000;
            ssize_t got = pread(file, room + shift * 1000, size, 7);
            fprintf(results, "%d %d: %zd right %d\n", pages, shift, got,
                    got == (ssize_t)fits && !memcmp(room + shift * 1000, data + 7, got));
        }
        int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
        memcpy(room, data, pages * PAGE);
        ssize_t put = write(copy, room, 100 * PAGE);
        struct stat st;
        fstat(copy, &st);
        char *back = malloc(put);
        ssize_t got = pread(copy, back, put, 0);
        fprintf(results, "%d: %zd written, %ld long, %d, at %ld\n", pages, put, st.st_size,
                got == put && !memcmp(back, data, put), lseek(copy, 0, SEEK_CUR));
        // The same over bytes that are there already.
        put = pwrite(copy, room + 5, 100 * PAGE, 4000);
        fstat(copy, &st);
        fprintf(results, "%d: %zd written over, %ld long\n", pages, put, st.st_size);
        free(back);
        close(copy);
        munmap(room, 100 * PAGE);
    }
    free(data);
    close(file);
}

static void writing(void) {
    int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600);
    INPUT_OR_NULL(write(out, BAD, 10));
    SAY(lseek(out, 0, SEEK_CUR));
    SHOW("out");
    INPUT_OR_NULL(pwrite(out, BAD, 2, 1));
    INPUT_OR_NULL(pwrite(out, BAD, 0, 100));
    INPUT_OR_NULL(pwrite(out, BAD, 9, 20));
    INPUT_OR_NULL(write(fd, BAD, 0));
    SHOW("out");
    SAY(write(out, constant, 5));
    int end = open("out", O_WRONLY | O_APPEND);
    INPUT(write(end, BAD, 9));
    SHOW("out");
    close(end);
    close(out);
}

static void vectors(void) {
    char a[4], b[4];
    int out = open("vectors", O_RDWR | O_CREAT | O_TRUNC, 0600);
    INPUT_OR_NULL(readv(fd, BAD, 2));
    INPUT_OR_NULL(writev(out, BAD, 2));
    INPUT_OR_NULL(preadv(fd, BAD, 1, 0));
    INPUT_OR_NULL(pwritev(out, BAD, 1, 0));
    INPUT_OR_NULL(preadv2(fd, BAD, 1, 0, 0));
    SAY(readv(fd, NULL, 0));
    SAY(readv(fd, NULL, -1));
    SAY(readv(fd, (void *)8, 1025));
    // The list itself ends at a gap.
    struct iovec *list = (struct iovec *)(edge + PAGE) - 2;
    list[0] = (struct iovec){a, 4};
    list[1] = (struct iovec){b, 4};
    SAY(preadv(fd, list, 2, 0));
    SAY(preadv(fd, list, 3, 0));
    EACH(NONE, EDGE, ({
             struct iovec three[] = {{a, 4}, {BAD, 4}, {b, 4}};
             memset(a, 'x', 4), memset(b, 'x', 4);
             ssize_t got = preadv(fd, three, 3, 0);
             fprintf(results, "%.4s %.4s ", a, b);
             got;
         }));
    EACH(NONE, EDGE, ({
             struct iovec two[] = {{BAD, 4}, {b, 4}};
             preadv(fd, two, 2, 0);
         }));
    EACH(NONE, EDGE, ({
             struct iovec empty[] = {{BAD, 0}, {b, 4}, {BAD, 0}};
             preadv(fd, empty, 3, 0);
         }));
    EACH(NONE, EDGE, ({
             struct iovec three[] = {{"abcd", 4}, {BAD, 4}, {"efgh", 4}};
             ftruncate(out, 0);
             ssize_t put = pwritev(out, three, 3, 1);
             struct stat st;
             fstat(out, &st);
             fprintf(results, "%ld ", st.st_size);
             put;
         }));
    struct iovec huge[] = {{a, 4}, {b, (size_t)-1}};
    SAY(preadv(fd, huge, 2, 0));
    SAY(pwritev(out, huge, 2, 0));
    struct iovec sum[] = {{a, 4}, {b, SSIZE_MAX}, {b, SSIZE_MAX}};
    SAY(preadv(fd, sum, 1, 0));
    SAY(preadv(fd, sum, 3, 0));
    close(out);
}

static void offsets(void) {
    int out = open("offsets", O_RDWR | O_CREAT | O_TRUNC, 0600);
    INPUT(sendfile(out, fd, BAD, 4));
    INPUT(copy_file_range(fd, BAD, out, NULL, 4, 0));
    INPUT(copy_file_range(fd, NULL, out, BAD, 4, 0));
    SAY(lseek(out, 0, SEEK_END));
    // Offsets that can be read but not written back: the bytes have moved.
    SAY(sendfile(out, fd, (off_t *)constant, 4));
    SAY(lseek(out, 0, SEEK_CUR));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(copy_file_range(fd, (off_t *)constant, out, NULL, 4, 0));
    SAY(lseek(out, 0, SEEK_CUR));
    int ends[2];
    SAY(pipe(ends));
    INPUT(splice(fd, BAD, ends[1], NULL, 4, 0));
    SAY(splice(fd, (off_t *)constant, ends[1], NULL, 4, 0));
    close(ends[0]), close(ends[1]);
    close(out);
}

static void executing(void) {
    int made = open("program", O_WRONLY | O_CREAT, 0700);
    char text[] = "#!/bin/true\n";
    SAY(write(made, text, sizeof text - 1));
    close(made);
    char *good[] = {"program", NULL};
    INPUT(execve("program", BAD, good));
    INPUT(execve("program", good, BAD));
    INPUT(execve("none", BAD, good));
    EACH(NULL_PAGE, LOCKED, ({
             char *list[] = {"program", BAD, NULL};
             execve("program", list, good);
         }));
    EACH(NULL_PAGE, LOCKED, ({
             char *list[] = {"a=b", BAD, NULL};
             execve("program", good, list);
         }));
}

// Texts that end exactly where memory ends, and those that are too long.
static void lengths(void) {
    struct stat st;
    for (int start = 1; start < 40; start++) {
        char *text = edge + PAGE - start - 4;
        memset(text, '/', start);
        strcpy(text + start - 1 + (start == 1), start == 1 ? "one" : "/one");
        memset(text, '.', 1);
        fprintf(results, "%d: %d %s\n", start, stat(start > 1 ? text : text + 1, &st),
                strerrorname_np(errno));
        edge[PAGE - 1] = 'x';
        fprintf(results, "%d: %d %s\n", start, stat(text, &st), strerrorname_np(errno));
    }
    char *whole = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(whole + 2 * PAGE, PAGE);
    memset(whole, '/', 2 * PAGE);
    memcpy(whole, "./", 2);
    // 4,095 bytes are a path, 4,096 are not, wherever the memory ends.
    whole[4095] = 0;
    SAY(stat(whole, &st));
    whole[4095] = '/', whole[4096] = 0;
    SAY(stat(whole, &st));
    whole[4096] = '/';
    whole[PAGE] = '.';
    SAY(stat(whole + PAGE, &st));
    whole[PAGE + 1] = '.';
    SAY(stat(whole + PAGE + 1, &st));
    SAY(mkdir(whole + PAGE + 1, 0700));
    SAY(symlink(whole + PAGE, "long"));
    SAY(symlink(whole + PAGE + 1, "long"));
    munmap(whole, 2 * PAGE);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    edge = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    munmap(edge + PAGE, PAGE);
    locked = mmap(NULL, 2 * PAGE, PROT_NONE, flags, -1, 0);
    constant = mmap(NULL, 2 * PAGE, PROT_READ, flags, -1, 0);
    put("file", "0123456789");
    SAY(symlink("somewhere/else", "symlink"));
    mkdir("one", 0700);
    close(creat("one/a", 0600)), close(creat("one/b", 0600)), close(creat("one/c", 0600));
    fd = open("file", O_RDWR);
    here = open(".", O_RDONLY);
    SAY(fsetxattr(fd, "user.a", "value", 5, 0));
    struct timespec times[2] = {{1000, 0}, {1000, 0}};
    SAY(futimens(fd, times));
    paths();
    answers();
    attributes();
    locks();
    reading();
    big();
    writing();
    vectors();
    offsets();
    executing();
    lengths();
    check("all");
    return 0;
}
