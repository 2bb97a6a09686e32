// Answers of calls that programs make seldom, or make to find out what there is: each was another than
// the kernel's at some time. By number the kernel's rule counts, not that of glibc's function.
#include "release.h"
#include "say.h"
#include <ftw.h>
#include <sched.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static char start[4096];

static void times_of(const char *path) {
    struct stat st;
    stat(path, &st);
    fprintf(results, "%s: %ld.%09ld %ld.%09ld\n", path, st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec,
            st.st_mtim.tv_nsec);
}

// The descriptor itself, where there is no path.
static void without_path(void) {
    int fd = open("file", O_RDWR), place = open("file", O_PATH);
    struct timespec times[2] = {{1000, 1}, {2000, 2}}, omitted[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    SAY(syscall(SYS_utimensat, fd, NULL, times, 0));
    times_of("file");
    SAY(syscall(SYS_utimensat, fd, NULL, times, AT_SYMLINK_NOFOLLOW));
    SAY(syscall(SYS_utimensat, fd, NULL, omitted, 0));
    SAY(syscall(SYS_utimensat, AT_FDCWD, NULL, times, 0));
    SAY(syscall(SYS_utimensat, -1, NULL, times, 0));
    SAY(syscall(SYS_utimensat, 99, NULL, times, 0));
    SAY(syscall(SYS_utimensat, place, NULL, times, 0));
    SAY(syscall(SYS_utimensat, AT_FDCWD, "file", times, 0));
    SAY(syscall(SYS_utimensat, fd, "", times, AT_EMPTY_PATH));
    SAY(syscall(SYS_utimensat, fd, "", times, 0));
    SAY(utimensat(fd, NULL, times, 0));
    SAY(utimensat(AT_FDCWD, "missing", omitted, 0));
    SAY(utimensat(AT_FDCWD, "missing", omitted, 1));
    struct timeval both[2] = {{3000, 1}, {4000, 2}};
    SAY(syscall(SYS_futimesat, fd, NULL, both));
    times_of("file");
    SAY(syscall(SYS_futimesat, AT_FDCWD, "file", both));
    SAY(syscall(SYS_futimesat, AT_FDCWD, NULL, both));
    int other = open("/dev/null", O_RDONLY);
    SAY(syscall(SYS_utimensat, other, NULL, omitted, 0));
    struct stat st;
    SAY(syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH));
    SAY(syscall(SYS_newfstatat, fd, NULL, &st, 0));
    struct statx stx;
    if (newer_than(6, 11)) {
        SAY(syscall(SYS_newfstatat, fd, NULL, &st, AT_EMPTY_PATH));
        SAY(syscall(SYS_statx, fd, NULL, AT_EMPTY_PATH, STATX_ALL, &stx));
        SAY(syscall(SYS_statx, AT_FDCWD, NULL, AT_EMPTY_PATH, STATX_ALL, &stx));
        SAY(S_ISDIR(stx.stx_mode));
    }
    SAY(syscall(SYS_fchownat, fd, "", -1, -1, AT_EMPTY_PATH));
    SAY(syscall(SYS_fchownat, fd, "", -1, -1, 0));
    SAY(syscall(439, fd, "", R_OK, AT_EMPTY_PATH));
    SAY(syscall(SYS_faccessat, AT_FDCWD, "file", R_OK, 99));
    SAY(syscall(SYS_fchmodat, AT_FDCWD, "file", 0644, 99));
    SAY(syscall(SYS_linkat, fd, "", AT_FDCWD, "linked", AT_EMPTY_PATH));
    SAY(unlink("linked"));
    SAY(close(fd) | close(place) | close(other));
}

// What stands in the upper half of a register of which the kernel takes the lower.
static void widths(void) {
    const long upper = 0x5a5a5a5a00000000;
    char text[64];
    symlink("file", "link");
    SAY(syscall(SYS_mknod, "node", S_IFREG | 0600, upper));
    SAY(syscall(SYS_mknodat, AT_FDCWD, "node2", S_IFREG | 0600, upper));
    SAY(unlink("node") | unlink("node2"));
    SAY(syscall(SYS_readlink, "link", text, upper | 3));
    SAY(syscall(SYS_readlink, "link", text, 0x80000000));
    SAY(syscall(SYS_readlinkat, AT_FDCWD, "link", text, upper));
    SAY(syscall(SYS_readlink, "link", text, SIZE_MAX));
    int fd = open("file", O_RDWR), directory = open(".", O_RDONLY);
    SAY(syscall(SYS_getdents64, directory, text, upper | 8));
    SAY(syscall(SYS_getdents, directory, text, upper | 8));
    SAY(syscall(SYS_fadvise64, upper | fd, 0, 1, upper | POSIX_FADV_NORMAL));
    SAY(syscall(SYS_fadvise64, fd, 0, -1, POSIX_FADV_NORMAL));
    SAY(syscall(SYS_fadvise64, fd, 0, 1, 99));
    SAY(posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL));
    SAY(syscall(SYS_lseek, upper | fd, 0, upper | SEEK_END));
    SAY(syscall(SYS_flock, upper | fd, upper | LOCK_UN));
    struct iovec all = {text, 4};
    SAY(syscall(SYS_preadv2, upper | fd, &all, 1, 1, upper, 0));
    SAY(syscall(SYS_preadv2, fd, &all, 1, -1, 0, 0));
    SAY(syscall(SYS_preadv, fd, &all, 1, 1, 0));
    SAY(syscall(SYS_readv, fd, &all, 2000));
    SAY(syscall(SYS_access, "file", upper));
    SAY(syscall(SYS_mkdir, "made", upper | 0700));
    SAY(rmdir("made"));
    struct mmsghdr one = {.msg_hdr = {.msg_iov = &all, .msg_iovlen = 1}};
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr *message = &one.msg_hdr;
    message->msg_control = space;
    message->msg_controllen = sizeof space;
    struct cmsghdr *part = CMSG_FIRSTHDR(message);
    *part = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    SAY(syscall(SYS_sendmmsg, pair[0], &one, 1, 0));
    memset(space, 0, sizeof space);
    message->msg_controllen = sizeof space;
    SAY(syscall(SYS_recvmmsg, pair[1], &one, 1, 0, NULL));
    int got = -1;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof got);
    SAY(pread(got, text, 4, 0));
    SAY(close(got) | close(fd) | close(directory) | close(pair[0]) | close(pair[1]));
    SAY(unlink("link"));
}

static void working_directory(void) {
    char text[4096];
    SAY(syscall(SYS_getcwd, (void *)-1, 4096));
    SAY(syscall(SYS_getcwd, text, 0));
    SAY(syscall(SYS_getcwd, NULL, 0));
    SAY(syscall(SYS_getcwd, NULL, 4096));
    SAY(syscall(SYS_getcwd, text, 1));
    SAY(syscall(SYS_getcwd, text, sizeof text) - (long)strlen(text));
    SAY(chroot("file"));
    SAY(chroot("missing"));
    // Deeper than the kernel tells: glibc goes upwards itself.
    for (int i = 0; i < 160; i++) {
        mkdir("a-directory-whose-name-is-rather-long", 0755);
        if (chdir("a-directory-whose-name-is-rather-long"))
            fprintf(results, "cannot enter\n");
    }
    char *whole = getcwd(NULL, 0);
    SAY_TEXT(whole ? whole + strlen(start) : NULL);
    SAY(getcwd(text, sizeof text) != NULL);
    char *room = malloc(65536);
    SAY(getcwd(room, 65536) == room && whole && strcmp(room, whole) == 0);
    SAY(getcwd(NULL, 5000) != NULL);
    SAY(syscall(SYS_getcwd, room, 65536));
    SAY(chdir(start));
}

static void descriptors(void) {
    int fd = open("file", O_RDWR), read_only = open("file", O_RDONLY), empty = open("empty", O_RDONLY | O_CREAT, 0644);
    SAY(sendfile(-1, empty, NULL, 1));
    SAY(sendfile(empty, empty, NULL, 1));
    SAY(sendfile(empty, fd, &(off_t){0}, 1));
    SAY(sendfile(-1, fd, &(off_t){0}, 1));
    SAY(sendfile(fd, -1, NULL, 1));
    SAY(sendfile(fd, empty, NULL, 1));
    int write_only = open("file", O_WRONLY), place = open("file", O_PATH), null = open("/dev/null", O_RDONLY);
    SAY(sendfile(fd, write_only, NULL, 0));
    SAY(sendfile(fd, place, NULL, 1));
    SAY(sendfile(null, fd, NULL, 1));
    SAY(linkat(-1, "file", AT_FDCWD, "made", 0));
    SAY(linkat(AT_FDCWD, "file", -1, "made", 0));
    SAY(linkat(99, "file", AT_FDCWD, "made", 0));
    SAY(linkat(fd, "x", AT_FDCWD, "made", 0));
    SAY(renameat(-1, "file", AT_FDCWD, "made"));
    SAY(renameat(AT_FDCWD, "file", -1, "made"));
    SAY(symlinkat("x", -1, "made"));
    SAY(fcntl(fd, F_SETLEASE, F_UNLCK));
    SAY(fcntl(fd, F_GETLEASE));
    uint64_t hint = 9;
    SAY(fcntl(fd, F_GET_RW_HINT, &hint));
    SAY(hint);
    hint = 2;
    SAY(fcntl(fd, F_SET_RW_HINT, &hint));
    hint = 9;
    SAY(fcntl(read_only, F_GET_RW_HINT, &hint));
    SAY(hint);
    SAY(fcntl(empty, F_GET_RW_HINT, &hint));
    SAY(hint);
    hint = 6;
    SAY(fcntl(fd, F_SET_RW_HINT, &hint));
    SAY(fcntl(fd, F_SET_RW_HINT, 8));
    SAY(fcntl(fd, F_GET_RW_HINT, 8));
    SAY(fcntl(place, F_GET_RW_HINT, &hint));
    hint = 0;
    SAY(fcntl(fd, F_SET_RW_HINT, &hint));
    if (newer_than(6, 10)) {
        int copy = dup(fd);
        SAY(fcntl(fd, 1024 + 3, fd));
        SAY(fcntl(fd, 1024 + 3, copy));
        SAY(fcntl(fd, 1024 + 3, read_only));
        SAY(fcntl(fd, 1024 + 3, null));
        SAY(fcntl(null, 1024 + 3, fd));
        SAY(fcntl(fd, 1024 + 3, -1));
        SAY(fcntl(fd, 1024 + 3, 99));
        SAY(fcntl(place, 1024 + 3, place));
    }
    SAY(close_range(3, 99, 0));
}

static void offsets(void) {
    char bytes[64];
    int fd = open("file", O_RDWR);
    SAY(pwrite(fd, "x", 1, LLONG_MAX));
    SAY(pwrite(fd, "x", 1, -1));
    SAY(pread(fd, bytes, 1, LLONG_MAX));
    SAY(pread(fd, bytes, 4, LLONG_MAX - 3));
    SAY(pread(fd, bytes, 4, LLONG_MAX - 4));
    SAY(pread(fd, bytes, 0, LLONG_MAX));
    SAY(syscall(SYS_pread64, fd, bytes, SIZE_MAX, 0));
    SAY(syscall(SYS_pread64, fd, bytes, SIZE_MAX / 2, 1));
    SAY(pread(fd, bytes, 1, -1));
    SAY(lseek(fd, LLONG_MAX, SEEK_SET) == LLONG_MAX);
    SAY(write(fd, "x", 1));
    SAY(sync_file_range(fd, LLONG_MAX, 1, 1));
    SAY(sync_file_range(fd, -1, 1, 1));
    SAY(sync_file_range(-1, 0, 1, 99));
    SAY(close(fd));
    if (newer_than(6, 9)) {
        int end = open("grown", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
        struct iovec two = {"ab", 2};
        SAY(pwritev2(end, &two, 1, -1, 0));
        SAY(pwritev2(end, &two, 1, 0, 0));
        two.iov_base = "cd";
        SAY(pwritev2(end, &two, 1, 1, 0x20));
        SHOW("grown");
        SAY(lseek(end, 0, SEEK_CUR));
        SAY(pwritev2(end, &two, 1, -1, 0x20));
        SHOW("grown");
        SAY(lseek(end, 0, SEEK_CUR));
        SAY(pwritev2(end, &two, 1, 0, 0x20 | RWF_APPEND));
        SAY(close(end) | unlink("grown"));
    }
}

static void statx_of(const char *path) {
    struct statx is = {0}, other = {0};
    SAY(statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_ALL, &is));
    SAY(is.stx_mask & (STATX_BASIC_STATS | STATX_BTIME | 0x1000));
    SAY(is.stx_attributes_mask & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP | 0x2000));
    SAY(is.stx_attributes);
    // The number of its mount.
    statx(AT_FDCWD, "file", 0, 0, &other);
    SAY(is.stx_mnt_id != 0 && is.stx_mnt_id == other.stx_mnt_id);
    statx(AT_FDCWD, "/proc", 0, 0, &other);
    SAY(is.stx_mnt_id == other.stx_mnt_id);
    if (newer_than(6, 8)) {
        SAY(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | 0x4000, &other));
        SAY(other.stx_mask & 0x5000);
        SAY(other.stx_mnt_id != is.stx_mnt_id && other.stx_mnt_id > 1ul << 31);
    }
}

// A read that finds the end is a read: it moves the time of access, once since the last change.
static void access_times(void) {
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    char byte[8];
    struct stat st;
    for (int way = 0; way < 5; way++) {
        int fd = open("file", O_RDONLY | (way == 4 ? O_NOATIME : 0));
        futimens(fd, times);
        lseek(fd, 0, SEEK_END);
        struct iovec one = {byte, 1};
        long got = way == 0   ? read(fd, byte, 1)
                   : way == 1 ? pread(fd, byte, 1, 1 << 20)
                   : way == 2 ? readv(fd, &one, 1)
                              : read(fd, byte, 8);
        fstat(fd, &st);
        fprintf(results, "way %d: %ld, moved %d\n", way, got, st.st_atim.tv_sec != 1000);
        close(fd);
    }
}

static void locked(void) {
    int fd = open("mapped", O_RDWR | O_CREAT, 0644);
    SAY(ftruncate(fd, 16384));
    char *at = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(msync(at, 16384, MS_INVALIDATE));
    SAY(mlock(at + 4096, 4096));
    SAY(msync(at, 4096, MS_INVALIDATE | MS_SYNC));
    SAY(msync(at, 16384, MS_INVALIDATE));
    SAY(msync(at + 4096, 4096, MS_SYNC | MS_INVALIDATE));
    SAY(msync(at, 16384, MS_SYNC));
    SAY(madvise(at, 4096, MADV_REMOVE));
    SAY(madvise(at + 4096, 4096, MADV_REMOVE));
    SAY(madvise(at, 16384, MADV_REMOVE));
    SAY(syscall(SYS_munlock, at, 16384));
    SAY(madvise(at, 16384, MADV_REMOVE));
    SAY(syscall(SYS_mlock, at, 16384));
    SAY(msync(at, 4096, MS_INVALIDATE));
    SAY(munlock(at, 16384));
    char *one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_LOCKED, fd, 0);
    SAY(msync(one, 4096, MS_INVALIDATE));
    SAY(munmap(at, 16384) | munmap(one, 4096) | close(fd) | unlink("mapped"));
}

static int visit(const char *path, const struct stat *is, int what, struct FTW *at) {
    char here[4096];
    struct stat by_name, whole;
    int found = stat(path + at->base, &by_name);
    fprintf(results, "%s: %d, base %d, level %d, in %s, %s\n", strncmp(path, start, strlen(start)) ? path : path + strlen(start),
            what, at->base - (*path == '/' ? (int)strlen(start) : 0), at->level, getcwd(here, sizeof here) + strlen(start),
            found ? strerrorname_np(errno) : by_name.st_ino == is->st_ino ? "it" : "another");
    return 0;
}

static void tree(void) {
    // One name in each directory: their order is nobody's affair.
    mkdir("tree", 0755);
    mkdir("tree/a", 0755);
    mkdir("tree/a/b", 0755);
    put("tree/a/b/c", "c");
    symlink("tree/a", "way");
    char whole[4200];
    snprintf(whole, sizeof whole, "%s/tree/a", start);
    const char *from[] = {"tree", "tree/", "tree/a", "./tree", "way", "way/", "tree/a/b/c", whole, "missing", "file"};
    for (int i = 0; i < (int)(sizeof from / sizeof *from); i++)
        for (int flags = 0; flags < 16; flags++) {
            // Without FTW_CHDIR the last name alone leads nowhere.
            if (!(flags & FTW_CHDIR))
                continue;
            char here[4096];
            errno = 0;
            int given = nftw(from[i], visit, 10, flags);
            fprintf(results, "%d, flags %x: %d %s, then in %s\n", i, flags, given, given < 0 ? strerrorname_np(errno) : "",
                    getcwd(here, sizeof here) + strlen(start));
        }
    SAY(nftw("tree", visit, 10, 1 << 20));
    SAY(unlink("way"));
}

static char stack[1 << 16];
static int way;

static int without_table(void *unused) {
    (void)unused;
    int failed = way == 0   ? close_range(3, 99, CLOSE_RANGE_UNSHARE)
                 : way == 1 ? syscall(SYS_close_range, 3, 99, CLOSE_RANGE_UNSHARE)
                            : unshare(CLONE_FILES) || close_range(3, 99, 0);
    _exit(failed ? errno : 0);
}

// A child that shares the table of descriptors and then leaves it closes its own.
static void shared_table(void) {
    for (way = 0; way < 3; way++)
        for (int raw = 0; raw < 2; raw++) {
            int ours = open("file", O_RDONLY), kernels = open("/dev/zero", O_RDONLY), status = -1;
            char byte;
            pid_t child = raw ? syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)
                              : clone(without_table, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
            if (raw && child == 0)
                without_table(NULL);
            SAY(child > 0 && waitpid(child, &status, 0) == child);
            SAY(status);
            SAY(read(ours, &byte, 1));
            SAY(read(kernels, &byte, 1));
            SAY(close(ours) | close(kernels));
        }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    mkdir("here", 0755);
    chdir("here");
    getcwd(start, sizeof start);
    put("file", "content");
    without_path();
    widths();
    descriptors();
    offsets();
    statx_of("file");
    statx_of(".");
    access_times();
    locked();
    tree();
    shared_table();
    working_directory();
    return 0;
}
