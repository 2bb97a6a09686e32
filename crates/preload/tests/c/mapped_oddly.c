// Odd uses of mapped files: over and beside others, with odd protections, advice, in calls that get pages, moved,
// and at the ends of files.
#include "say.h"
#include <setjmp.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
enum { PAGE = 4096, MIB = 1 << 20, RW = PROT_READ | PROT_WRITE };

static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    siglongjmp(back, signal * 100 + info->si_code);
}

static int touch(char *at, int value) {
    int caught = sigsetjmp(back, 1);
    if (caught) return caught;
    if (value >= 0) *(volatile char *)at = value;
    return *(volatile unsigned char *)at;
}

static int make(const char *name, off_t size, int fill) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    static char page[PAGE];
    for (off_t at = 0; fill && at < size; at += PAGE) {
        memset(page, 'a' + at / PAGE % 26, PAGE);
        pwrite(fd, page, PAGE, at);
    }
    SAY(ftruncate(fd, size));
    return fd;
}

static char at_of(int fd, off_t at) { char c = 0; pread(fd, &c, 1, at); return c; }

static void fixed(void) {
    int fd = make("fixed", 8 * PAGE, 1), other = make("other", 8 * PAGE, 1);
    char *map = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, fd, 0);
    SAY(mmap(map + 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, other, 5 * PAGE) == map + 2 * PAGE);
    for (int i = 0; i < 8; i++) SAY(touch(map + i * PAGE, -1));
    SAY((long)mmap(map + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0));
    SAY((long)mmap(map + 100, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0));
    SAY(mmap(map + 4 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map + 4 * PAGE);
    SAY(touch(map + 4 * PAGE, 'x'));
    SAY(at_of(fd, 4 * PAGE));
    SAY(mmap(map + 5 * PAGE, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == map + 5 * PAGE);
    SAY(touch(map + 5 * PAGE, 'p'));
    SAY(at_of(fd, 0));
    SAY(munmap(map + PAGE, 6 * PAGE));
    SAY(mmap(map + 3 * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 7 * PAGE) == map + 3 * PAGE);
    for (int i = 0; i < 8; i++) SAY(touch(map + i * PAGE, -1));
    SAY((long)mmap(NULL, PAGE, RW, MAP_SHARED | MAP_PRIVATE | 0x20000000, fd, 0) == -1);
    SAY((long)mmap(NULL, PAGE, RW, 0, fd, 0));
    SAY((long)mmap(NULL, PAGE, RW, MAP_SHARED, fd, -PAGE) == -1);
    WORKS(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 100 * PAGE));
    SAY((long)mmap(NULL, PAGE, RW, MAP_SHARED, 999, 0));
    SAY((long)mmap(NULL, -1UL, RW, MAP_SHARED, fd, 0));
    SAY((long)mmap(NULL, 1UL << 60, RW, MAP_SHARED, fd, 0));
    SAY((long)mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0x7ffffffffffff000));
    SAY((long)mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0x7ffffffffffff000));
    SAY(munmap(map + 1, PAGE));
    SAY(munmap(map, 0));
    SAY(munmap(map, 8 * PAGE));
    SAY(munmap(map, 8 * PAGE));
    close(fd), close(other);
}

static void protections(void) {
    int fd = make("protections", 8 * PAGE, 1);
    char *map = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_SHARED, fd, 0);
    SAY(touch(map, -1));
    SAY(mprotect(map + PAGE, 2 * PAGE, PROT_READ));
    SAY(touch(map + PAGE, -1));
    SAY(touch(map + PAGE, 1));
    SAY(mprotect(map, 8 * PAGE, RW));
    SAY(touch(map + 7 * PAGE, 'y'));
    SAY(at_of(fd, 7 * PAGE));
    SAY(mprotect(map + 1, PAGE, RW));
    SAY(mprotect(map, PAGE, 0x1000));
    SAY(mprotect(map, 0, RW));
    SAY(munmap(map + 4 * PAGE, PAGE));
    SAY(mprotect(map, 8 * PAGE, PROT_READ));
    SAY(touch(map + PAGE, 1));
    SAY(touch(map + 6 * PAGE, 1));
    SAY(mprotect(map, 3 * PAGE, RW));
    SAY(touch(map + PAGE, 1));
    SAY(munmap(map, 8 * PAGE));
    int reader = open("protections", O_RDONLY), writer = open("protections", O_WRONLY);
    int appender = open("protections", O_RDWR | O_APPEND);
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0));
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0));
    SAY((long)mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, writer, 0));
    SAY((long)mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, reader, 0));
    WORKS(mmap(NULL, PAGE, RW, MAP_SHARED, appender, 0));
    map = mmap(NULL, 2 * PAGE, PROT_WRITE, MAP_PRIVATE, reader, 0);
    SAY(touch(map, 'q'));
    SAY(at_of(fd, 0));
    SAY(mprotect(map, 2 * PAGE, PROT_READ | PROT_EXEC));
    SAY(munmap(map, 2 * PAGE));
    char *none = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE, reader, PAGE);
    SAY(touch(none, -1));
    SAY(mprotect(none, 2 * PAGE, RW));
    SAY(touch(none, 'r'));
    SAY(touch(none + PAGE, -1));
    int path = open("protections", O_PATH);
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, path, 0));
    int dir = open(".", O_RDONLY);
    SAY((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, dir, 0));
    close(fd);
}

static void advice(void) {
    int fd = make("advice", 16 * MIB, 0);
    char *map = mmap(NULL, 16 * MIB, RW, MAP_SHARED, fd, 0);
    int kinds[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_COLD,
                   MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_DONTFORK, MADV_DOFORK,
                   MADV_DONTDUMP, MADV_DODUMP, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE,
                   MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_REMOVE, 77};
    map[5 * MIB] = 'k';
    for (int i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fprintf(results, "advice %d: ", kinds[i]);
        SAY(madvise(map + 4 * MIB, 4 * MIB, kinds[i]));
        SAY(touch(map + 5 * MIB, -1));
    }
    SAY(madvise(map + 1, PAGE, MADV_DONTNEED));
    SAY(madvise(map, 0, MADV_DONTNEED));
    char *own = mmap(NULL, 4 * MIB, RW, MAP_PRIVATE, fd, 0);
    SAY(pwrite(fd, "file", 4, MIB));
    SAY(touch(own + MIB, 'o'));
    SAY(madvise(own + MIB, PAGE, MADV_FREE));
    SAY(madvise(own + MIB, PAGE, MADV_DONTNEED));
    SAY(touch(own + MIB, -1));
    SAY(madvise(own, MIB, MADV_POPULATE_WRITE));
    SAY(madvise(own, MIB, MADV_REMOVE));
    SAY(madvise(own, 4 * MIB, MADV_WIPEONFORK));
    SAY(ftruncate(fd, 2 * MIB));
    SAY(madvise(own, 4 * MIB, MADV_POPULATE_READ));
    SAY(madvise(map, 4 * MIB, MADV_POPULATE_WRITE));
    SAY(madvise(map, 2 * MIB, MADV_POPULATE_WRITE));
    char *reads = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    SAY(madvise(reads, 2 * MIB, MADV_POPULATE_WRITE));
    SAY(madvise(reads, 2 * MIB, MADV_POPULATE_READ));
    SAY(madvise(reads, 2 * MIB, MADV_REMOVE));
    unsigned char there[512];
    SAY(mincore(map, 2 * MIB, there));
    SAY(mincore(map + 1, PAGE, there));
    SAY(mlock(map, 2 * MIB));
    SAY(munlock(map, 2 * MIB));
    SAY(mlock(map, 4 * MIB));
    SAY(munlock(map, 2 * MIB));
    SAY(mlock2(map, 2 * MIB, MLOCK_ONFAULT));
    SAY(munlock(map, 2 * MIB));
    SAY(syncfs(fd));
    SAY(msync(map, 2 * MIB, MS_SYNC | MS_INVALIDATE));
    SAY(msync(map, 2 * MIB, MS_INVALIDATE));
    SAY(msync(map, 2 * MIB, 0));
    SAY(msync(map, 2 * MIB, MS_SYNC | MS_ASYNC));
    SAY(msync(map, 2 * MIB, 64));
    SAY(msync(map + 5, 2 * MIB, MS_SYNC));
    SAY(msync(map, 0, MS_SYNC));
    SAY(msync(map, 64 * MIB, MS_SYNC));
    SAY(msync(own, 2 * MIB, MS_SYNC));
    SAY(remap_file_pages(map, MIB, 0, 64, 0));
    SAY(munmap(map, 16 * MIB));
    SAY(msync(map, MIB, MS_SYNC));
    close(fd);
}

static void pages_in_calls(void) {
    int fd = make("calls", 4 * MIB, 0), ends[2], to = make("to", 0, 0);
    char *map = mmap(NULL, 4 * MIB, RW, MAP_SHARED, fd, 0);
    strcpy(map + PAGE, "in a page");
    SAY(pipe(ends));
    struct iovec part = {map + PAGE, 10};
    SAY(vmsplice(ends[1], &part, 1, 0));
    char text[64] = {0};
    SAY(read(ends[0], text, 10));
    SAY_TEXT(text);
    struct iovec hole = {map + 2 * MIB, 10};
    SAY(vmsplice(ends[1], &hole, 1, 0));
    SAY(read(ends[0], text, 10));
    off_t off = PAGE;
    SAY(sendfile(to, fd, &off, 100));
    SAY(off);
    SAY(sendfile(ends[1], fd, NULL, 10));
    SAY(read(ends[0], text, 20));
    off = 0;
    SAY(splice(fd, &off, ends[1], NULL, 2 * PAGE, 0));
    SAY(read(ends[0], map + 3 * MIB - PAGE, 2 * PAGE));
    SAY_TEXT(map + 3 * MIB);
    struct iovec mine = {text, 9}, theirs = {map + 3 * MIB, 9};
    memset(text, 0, sizeof text);
    SAY(process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0));
    SAY_TEXT(text);
    SAY(process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0));
    struct iovec far = {map + MIB + 7, 9};
    SAY(process_vm_readv(getpid(), &far, 1, &theirs, 1, 0));
    SAY_TEXT(map + MIB + 7);
    int direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);
    if (direct < 0) direct = open("direct", O_RDWR | O_CREAT, 0644);
    SAY(write(direct, map, 4 * MIB));
    SAY(pread(direct, map, 4 * MIB, 0));
    SAY_TEXT(map + PAGE);
    SAY(pwrite(fd, map, 4 * MIB, 100));
    SAY(pread(fd, map + PAGE, MIB, 0));
    int mem = open("/proc/self/mem", O_RDWR);
    SAY(pread(mem, text, 9, (long)map + 3 * MIB));
    close(fd);
    SAY(munmap(map, 4 * MIB));
}

static void remaps(void) {
    int fd = make("remaps", 16 * PAGE, 1), one = make("one", 4 * PAGE, 1);
    char *room = mmap(NULL, 128 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *own = mmap(room, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0);
    own[0] = 'O';
    int keeps = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, goes = MREMAP_MAYMOVE | MREMAP_FIXED;
    SAY(mremap(own, 4 * PAGE, 4 * PAGE, keeps, room + 20 * PAGE) == room + 20 * PAGE);
    SAY(touch(own, -1));
    SAY(touch(room + 20 * PAGE, -1));
    SAY(touch(room + 21 * PAGE, -1));
    char *shared = mmap(room + 40 * PAGE, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 4 * PAGE);
    SAY(mremap(shared, 4 * PAGE, 4 * PAGE, keeps, room + 60 * PAGE) == room + 60 * PAGE);
    SAY(touch(shared, 'S'));
    SAY(touch(room + 60 * PAGE, -1));
    SAY((long)mremap(shared, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
    SAY((long)mremap(shared, 4 * PAGE, 5 * PAGE, MREMAP_FIXED, room));
    SAY((long)mremap(shared, 4 * PAGE, 4 * PAGE, 64));
    SAY((long)mremap(shared, 4 * PAGE, 4 * PAGE, goes, shared + PAGE));
    SAY((long)mremap(shared, 4 * PAGE, 4 * PAGE, goes, shared + 50));
    SAY((long)mremap(own, 0, 4 * PAGE, MREMAP_MAYMOVE));
    SAY(mremap(shared, 0, 2 * PAGE, goes, room + 80 * PAGE) == room + 80 * PAGE);
    SAY(touch(room + 80 * PAGE, -1));
    // A shrink into the first of two; the rest goes.
    mmap(room + 100 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
    mmap(room + 102 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, one, 0);
    SAY(mremap(room + 100 * PAGE, 4 * PAGE, PAGE, goes, room + 110 * PAGE) == room + 110 * PAGE);
    for (int i = 100; i < 112; i++) SAY(touch(room + i * PAGE, -1));
    close(fd), close(one);
    SAY(munmap(room, 128 * PAGE));
}

static void ends_of_files(void) {
    int fd = make("ends", 3 * PAGE + 10, 1);
    char *map = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE, fd, 0);
    SAY(touch(map + 3 * PAGE + 11, 'e'));
    SAY(touch(own + 3 * PAGE + 12, 'e'));
    SAY(touch(map + 4 * PAGE, -1));
    SAY(touch(own + 4 * PAGE, -1));
    SAY(touch(own + 4 * PAGE, 1));
    SAY(ftruncate(fd, PAGE + 5));
    SAY(touch(map + 2 * PAGE, -1));
    SAY(touch(own + 3 * PAGE, -1));
    SAY(touch(map + PAGE + 100, -1));
    SAY(ftruncate(fd, 8 * PAGE));
    SAY(touch(map + PAGE + 100, -1));
    SAY(touch(map + 3 * PAGE + 11, -1));
    SAY(touch(own + 3 * PAGE + 12, -1));
    SAY(touch(own + 6 * PAGE, -1));
    SAY(pwrite(fd, "later", 5, 7 * PAGE));
    SAY(touch(own + 7 * PAGE, -1));
    SAY(pwrite(fd, "again", 5, 7 * PAGE));
    SAY(touch(own + 7 * PAGE, -1));
    own[7 * PAGE] = 'm';
    SAY(pwrite(fd, "third", 5, 7 * PAGE));
    SAY(touch(own + 7 * PAGE, -1));
    SAY(unlink("ends"));
    close(fd);
    SAY(touch(map + 5 * PAGE, 'u'));
    SAY(touch(own + 5 * PAGE, -1));
    if (fork() == 0) {
        map[6 * PAGE] = 'c', own[6 * PAGE] = 'd';
        _exit(0);
    }
    wait(NULL);
    SAY(touch(map + 6 * PAGE, -1));
    SAY(touch(own + 6 * PAGE, -1));
    SAY(munmap(map, 8 * PAGE) + munmap(own, 8 * PAGE));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    fixed();
    protections();
    advice();
    pages_in_calls();
    remaps();
    ends_of_files();
    return 0;
}
