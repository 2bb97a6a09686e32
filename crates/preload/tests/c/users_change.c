// One process that is many users, one after the other: every call that asks whom it is, on every kind of
// file, with every kind of mode. A process that had attached as root and became somebody else wrote to
// set-user-id files without taking the bits from them, could not `chown` files to nobody new, and could
// not open fifos. Started by root.
#include "say.h"
#include <linux/capability.h>
#include <pthread.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

enum { OWNER = 1000, GROUP = 1001, MEMBER = 2000, OTHER = 3000, NONE = -1 };

// ---- whom the process is

static const struct who {
    const char *name;
    int uid, gid, group;
    // Effective capabilities, where they are not all or none.
    uint64_t can;
} all[] = {
    {"root", 0, 0, NONE},
    {"owner", OWNER, OWNER, NONE},
    {"owner-in-group", OWNER, GROUP, NONE},
    {"owner-with-group", OWNER, OWNER, GROUP},
    {"in-group", MEMBER, GROUP, NONE},
    {"with-group", MEMBER, MEMBER, GROUP},
    {"other", OTHER, OTHER, NONE},
    {"root-without", 0, 0, NONE, 1ULL << CAP_SETUID | 1ULL << CAP_SETGID},
    {"chown", OTHER, OTHER, NONE, 1ULL << CAP_CHOWN},
    {"override", OTHER, OTHER, NONE, 1ULL << CAP_DAC_OVERRIDE},
    {"search", OTHER, OTHER, NONE, 1ULL << CAP_DAC_READ_SEARCH},
    {"owns", OTHER, OTHER, NONE, 1ULL << CAP_FOWNER},
    {"keeps-bits", OTHER, OTHER, NONE, 1ULL << CAP_FSETID},
    {"makes", OTHER, OTHER, NONE, 1ULL << CAP_MKNOD},
    {"administers", OTHER, OTHER, NONE, 1ULL << CAP_SYS_ADMIN},
    {"all-but-ids", OTHER, OTHER, NONE, 0x1FFULL & ~(1ULL << CAP_SETGID | 1ULL << CAP_SETUID)},
};
#define COUNT(list) (int)(sizeof list / sizeof *list)

static const struct who *me = all;
// How it becomes somebody: by glibc's functions or by number.
static int by_number;

static void effective(uint64_t can) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    syscall(SYS_capget, &head, sets);
    for (int half = 0; half < 2; half++)
        sets[half].effective = sets[half].permitted & (uint32_t)(can >> 32 * half);
    if (by_number ? syscall(SYS_capset, &head, sets) : capset(&head, sets))
        fprintf(results, "capset: %s\n", strerrorname_np(errno));
}

static void be_root(void) {
    if (by_number)
        syscall(SYS_setresuid, -1, 0, -1);
    else
        seteuid(0);
    effective(~0ULL);
    if (by_number)
        syscall(SYS_setresgid, -1, 0, -1), syscall(SYS_setgroups, 0, NULL);
    else
        setegid(0), setgroups(0, NULL);
}

static void become(const struct who *who) {
    gid_t group = who->group;
    int groups = who->group != NONE;
    if (by_number) {
        syscall(SYS_setgroups, groups, &group), syscall(SYS_setresgid, -1, who->gid, -1);
        syscall(SYS_setresuid, -1, who->uid, -1);
    } else {
        setgroups(groups, &group), setresgid(-1, who->gid, -1), setresuid(-1, who->uid, -1);
    }
    if (who->can)
        effective(who->can);
    me = who;
}

// ---- what is there

enum kind { REGULAR, DIRECTORY, FIFO, CHARACTER, BLOCK, SOCKET, SYMLINK, KINDS };
static const char *const kinds[] = {"file", "dir", "fifo", "char", "block", "socket", "symlink"};
static int held = -1;

static void clear(void) {
    static const char *const names[] = {"f/new", "f", "g/new", "g", "target"};
    for (int at = 0; at < (int)(sizeof names / sizeof *names); at++)
        if (unlink(names[at]) && errno == EISDIR)
            rmdir(names[at]);
    if (held >= 0)
        close(held), held = -1;
}

static void make(enum kind kind, int mode) {
    clear();
    switch (kind) {
    case REGULAR: put("f", "fifteen letters"), held = open("f", O_RDWR); break;
    case DIRECTORY: mkdir("f", 0700), held = open("f", O_RDONLY); break;
    case FIFO: mkfifo("f", 0600); break;
    case CHARACTER: mknod("f", S_IFCHR | 0600, makedev(1, 3)); break;
    case BLOCK: mknod("f", S_IFBLK | 0600, makedev(7, 201)); break;
    case SOCKET: mknod("f", S_IFSOCK | 0600, 0); break;
    default: put("target", "t"), chown("target", OWNER, GROUP), symlink("target", "f");
    }
    if (held < 0)
        held = open("f", O_PATH | O_NOFOLLOW);
    lchown("f", OWNER, GROUP);
    chmod("f", mode);
}

// ---- calls

#define CALLS(X) \
    X(chown("f", -1, -1)) X(lchown("f", -1, -1)) X(fchownat(AT_FDCWD, "f", -1, -1, 0)) \
    X(fchownat(AT_FDCWD, "f", -1, -1, AT_SYMLINK_NOFOLLOW)) X(fchown(held, -1, -1)) \
    X(fchownat(held, "", -1, -1, AT_EMPTY_PATH)) X(syscall(SYS_chown, "f", -1, -1)) \
    X(chown("f", OWNER, -1)) X(lchown("f", OWNER, GROUP)) X(chown("f", OTHER, -1)) \
    X(chown("f", -1, GROUP)) X(chown("f", -1, OTHER)) X(lchown("f", -1, OWNER)) \
    X(chown("f", 0, 0)) X(fchown(held, MEMBER, GROUP)) \
    X(chmod("f", 0)) X(chmod("f", 06777)) X(chmod("f", 02755)) X(fchmod(held, 03666)) \
    X(fchmodat(AT_FDCWD, "f", 07701, 0)) \
    X(access("f", R_OK)) X(access("f", W_OK)) X(access("f", X_OK)) X(access("f", F_OK)) \
    X(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS)) X(faccessat(AT_FDCWD, "f", W_OK, AT_EACCESS)) \
    X(faccessat(AT_FDCWD, "f", X_OK, AT_EACCESS)) X(faccessat(AT_FDCWD, "f", R_OK | W_OK, AT_EACCESS)) \
    X(utimensat(AT_FDCWD, "f", NULL, 0)) X(utimensat(AT_FDCWD, "f", now_both, 0)) \
    X(utimensat(AT_FDCWD, "f", omit_both, 0)) X(utimensat(AT_FDCWD, "f", one_each, 0)) \
    X(utimensat(AT_FDCWD, "f", now_one, 0)) \
    X(utimensat(AT_FDCWD, "f", NULL, AT_SYMLINK_NOFOLLOW)) \
    X(utimensat(AT_FDCWD, "f", one_each, AT_SYMLINK_NOFOLLOW)) \
    X(truncate("f", 3)) X(truncate("f", 15)) X(ftruncate(held, 3)) X(ftruncate(held, 15)) \
    X(ftruncate(held, 99)) X(write(held, "y", 1)) X(write(held, "y", 0)) X(pwrite(held, "yy", 2, 9)) \
    X(writev(held, two, 2)) X(syscall(SYS_write, held, "z", 1)) X(pwritev2(held, two, 2, -1, RWF_APPEND)) \
    X(posix_fallocate(held, 0, 4096)) X(fallocate(held, FALLOC_FL_KEEP_SIZE, 0, 9000)) \
    X(fallocate(held, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)) \
    X(copied()) X(by_stream()) X(sent()) X(mapped()) \
    X(opened(O_RDONLY)) X(opened(O_WRONLY)) X(opened(O_RDWR)) X(opened(O_PATH)) \
    X(opened(O_WRONLY | O_TRUNC)) X(opened(O_RDONLY | O_TRUNC)) X(opened(O_RDWR | O_CREAT)) \
    X(opened(O_RDONLY | O_NOATIME)) X(opened(O_RDONLY | O_DIRECTORY)) X(opened(O_ACCMODE)) \
    X(written(O_WRONLY)) X(written(O_RDWR)) X(written(O_WRONLY | O_APPEND)) \
    X(setxattr("f", "user.a", "b", 1, 0)) X(lsetxattr("f", "user.a", "b", 1, 0)) \
    X(getxattr("f", "user.a", text, 9)) X(setxattr("f", "trusted.a", "b", 1, 0)) \
    X(getxattr("f", "trusted.a", text, 9)) X(lsetxattr("f", "trusted.a", "b", 1, 0)) \
    X(removexattr("f", "user.a")) X(removexattr("f", "security.capability")) \
    X(setxattr("f", "security.capability", capability, sizeof capability, 0)) \
    X(readlink("f", text, 9)) X(stat("f", &info)) X(lstat("f", &info)) X(chdir_and_back()) \
    X(listed()) X(link_to("f", "g")) X(rename("f", "g")) X(unlink("f")) X(rmdir("f")) \
    X(open_in("f/new")) X(mkfifo("f/new", 0777)) X(stat("f/none", &info)) X(linkat_held())

static const struct timespec now_both[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
static const struct timespec omit_both[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
static const struct timespec one_each[2] = {{1, 0}, {1, 0}};
static const struct timespec now_one[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
static const struct iovec two[2] = {{"ab", 2}, {"c", 1}};
static const unsigned char capability[20] = {1, 0, 0, 2, 32};
static char text[16];
static struct stat info;
static int links_protected;

static int opened(int flags) {
    // The kernel's block devices are not the point.
    if (lstat("f", &info) == 0 && S_ISBLK(info.st_mode))
        return -2;
    int fd = open("f", flags | O_NONBLOCK, 0644), error = errno;
    if (fd >= 0)
        close(fd), fd = 0;
    errno = error;
    return fd;
}

static int written(int flags) {
    if (lstat("f", &info) == 0 && S_ISBLK(info.st_mode))
        return -2;
    int fd = open("f", flags | O_NONBLOCK), result = fd < 0 ? -1 : write(fd, "w", 1), error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return result;
}

static int by_stream(void) {
    FILE *stream = S_ISREG(info.st_mode) ? fopen("f", "r+") : NULL;
    if (!stream)
        return -1;
    int done = fputs("s", stream);
    return fclose(stream) ? -1 : done > 0;
}

static int copied(void) {
    off_t from = 9, to = 1;
    return copy_file_range(held, &from, held, &to, 2, 0);
}

static int sent(void) {
    int ends[2];
    pipe(ends), write(ends[1], "pipe", 4);
    int result = splice(ends[0], NULL, held, NULL, 4, 0), error = errno;
    close(ends[0]), close(ends[1]);
    errno = error;
    return result;
}

// A store through a mapping takes no bits.
static int mapped(void) {
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0);
    if (at == MAP_FAILED)
        return -1;
    at[0] = 'm';
    return munmap(at, 4096);
}

static int chdir_and_back(void) {
    int here = open(".", O_PATH), result = chdir("f"), error = errno;
    fchdir(here), close(here);
    errno = error;
    return result;
}

static int listed(void) {
    DIR *list = opendir("f");
    return list ? closedir(list) : -1;
}

static int open_in(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY, 0666);
    return fd < 0 ? -1 : close(fd) | unlink(path);
}

static int link_to(const char *from, const char *to) {
    return links_protected ? -2 : link(from, to);
}

static int linkat_held(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", held);
    return links_protected ? -2 : linkat(AT_FDCWD, path, AT_FDCWD, "g", AT_SYMLINK_FOLLOW);
}

// What became of a name.
static void state(const char *name) {
    struct stat now;
    if (lstat(name, &now)) {
        fprintf(results, " -");
        return;
    }
    fprintf(results, " %o %d:%d", now.st_mode & 07777, now.st_uid, now.st_gid);
    if (S_ISREG(now.st_mode))
        fprintf(results, " %ld %d", (long)now.st_size,
                (int)getxattr(name, "security.capability", NULL, 0));
}

static void said(const char *what, long result, int error) {
    fprintf(results, " %s = %ld %s", what, result, result == -1 ? strerrorname_np(error) : "");
    state("f"), state("g"), state("target");
    fprintf(results, "\n");
}

static const char *call_number(int number, long *result) {
    int at = 0;
#define X(call) \
    if (at++ == number) { \
        errno = 0; \
        *result = (call); \
        return #call; \
    }
    CALLS(X)
#undef X
    return NULL;
}

static void each_call(enum kind kind, int mode, const struct who *who) {
    for (int number = 0;; number++) {
        make(kind, mode);
        lstat("f", &info);
        if (kind == REGULAR)
            setxattr("f", "security.capability", capability, sizeof capability, 0);
        long result;
        become(who);
        const char *what = call_number(number, &result);
        int error = errno;
        be_root();
        if (!what)
            break;
        fprintf(results, "%s %s %o:", who->name, kinds[kind], mode);
        said(what, result, error);
    }
}

static void files(void) {
    static const int of_files[] = {0, 0600, 0060, 0006, 0644, 04777, 02777, 06777, 02666, 06644, 01711};
    static const int of_others[] = {0600, 0060, 0006, 06755, 01777};
    for (int number = 0; number < COUNT(all); number++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int *modes = kind == REGULAR ? of_files : of_others;
            int count = kind == REGULAR ? COUNT(of_files) : COUNT(of_others);
            if (kind == SYMLINK || by_number)
                count = kind == REGULAR ? 6 : 1;
            for (int at = by_number ? count - 1 : 0; at < count; at++)
                each_call(kind, modes[at], all + number);
        }
}

// ---- names in directories of several modes

static int made_open(int mode) {
    int fd = open("d/n", O_CREAT | O_EXCL | O_WRONLY, mode);
    return fd < 0 ? -1 : close(fd);
}

static int made_temporary(int mode) {
    int fd = open("d", O_TMPFILE | O_WRONLY, mode);
    if (fd < 0)
        return -1;
    int result = fstat(fd, &info);
    close(fd);
    return result ? -1 : (int)(info.st_mode & 07777);
}

#define NAMES(X) \
    X(made_open(0666)) X(made_open(02666)) X(made_open(06777)) X(made_open(02707)) \
    X(made_temporary(02770)) X(mkdir("d/n", 0777)) X(mkdir("d/n", 02700)) X(mkfifo("d/n", 02770)) \
    X(mknod("d/n", S_IFREG | 02770, 0)) X(mknod("d/n", S_IFCHR | 0666, makedev(1, 3))) \
    X(mknod("d/n", S_IFCHR | 0666, 0)) X(mknod("d/n", S_IFBLK | 0666, makedev(7, 201))) \
    X(mknod("d/n", S_IFBLK | 0666, 0)) X(mknod("d/n", S_IFSOCK | 0777, 0)) X(symlink("x", "d/n")) \
    X(mknod("d/old", S_IFCHR | 0666, makedev(1, 3))) X(mkdir("d/old", 0777)) \
    X(unlink("d/old")) X(rename("d/old", "g")) X(rename("f", "d/old")) X(rename("f", "d/n")) \
    X(rename("f", "d/dir")) X(rmdir("d/dir")) X(rename("d/dir", "g")) X(link_to("f", "d/n")) \
    X(renameat2(AT_FDCWD, "f", AT_FDCWD, "d/old", RENAME_EXCHANGE)) X(unlink("d/none")) \
    X(rmdir("d/none")) X(rename("d/none", "g")) X(setxattr("d", "user.a", "b", 1, 0)) \
    X(utimensat(AT_FDCWD, "d", NULL, 0)) X(stat("d/old", &info)) X(access("d/old", F_OK)) X(listed_d())

static int listed_d(void) {
    DIR *list = opendir("d");
    return list ? closedir(list) : -1;
}

static const char *name_number(int number, long *result) {
    int at = 0;
#define X(call) \
    if (at++ == number) { \
        errno = 0; \
        *result = (call); \
        return #call; \
    }
    NAMES(X)
#undef X
    return NULL;
}

static void names(void) {
    static const int modes[] = {0777, 01777, 0755, 0070, 0007, 02777, 03770, 0333, 0555};
    static const int owners[][2] = {{0, 0}, {OWNER, GROUP}, {0, GROUP}};
    int runs = COUNT(modes) * COUNT(owners) * COUNT(all);
    for (int run = 0, number = 0; run < runs; run++, number = 0) {
        const struct who *who = all + run % COUNT(all);
        const int *owner = owners[run / COUNT(all) % COUNT(owners)];
        int mode = modes[run / COUNT(all) / COUNT(owners)];
        for (;; number++) {
            make(REGULAR, 0644);
            mkdir("d", 0777), mkdir("d/dir", 0755), put("d/old", "old");
            chown("d/old", OWNER, GROUP), chown("d/dir", OWNER, GROUP);
            chown("d", owner[0], owner[1]), chmod("d", mode);
            long result;
            become(who);
            const char *what = name_number(number, &result);
            int error = errno;
            be_root();
            if (what) {
                fprintf(results, "%s d %o %d:%d", who->name, mode, owner[0], owner[1]);
                state("d/n"), state("d/old"), state("d/dir");
                said(what, result, error);
            }
            unlink("d/n") && rmdir("d/n"), unlink("d/old") && rmdir("d/old");
            unlink("d/dir") && rmdir("d/dir"), rmdir("g"), rmdir("d");
            if (!what)
                break;
        }
    }
}

// ---- threads that are different users, and ids for files alone

static pthread_barrier_t step;

static int writes_to(const char *path) {
    int fd = open(path, O_WRONLY), result = fd < 0 ? -errno : write(fd, "x", 1);
    if (fd >= 0)
        close(fd);
    return result;
}

static void pass(void) {
    pthread_barrier_wait(&step), pthread_barrier_wait(&step);
}

static void *another(void *result) {
    int *got = result;
    got[0] = writes_to("private");
    syscall(SYS_setresgid, -1, OTHER, -1), syscall(SYS_setresuid, -1, OTHER, -1);
    got[1] = writes_to("private");
    pass();
    got[2] = writes_to("private");
    got[3] = close(open("of-thread", O_CREAT | O_WRONLY, 0644));
    // All threads become root once more, then somebody else.
    pass();
    got[4] = writes_to("private");
    pass();
    got[5] = writes_to("members");
    got[6] = writes_to("private");
    got[7] = close(open("of-member", O_CREAT | O_WRONLY, 0644));
    return NULL;
}

static void *later(void *result) {
    *(int *)result = writes_to("private");
    return NULL;
}

static void threads(void) {
    int got[8], inherited;
    pthread_t thread, child;
    put("private", "roots"), chmod("private", 0600);
    put("members", "members"), chown("members", MEMBER, MEMBER), chmod("members", 0600);
    pthread_barrier_init(&step, NULL, 2);
    pthread_create(&thread, NULL, another, got);
    pthread_barrier_wait(&step);
    SAY(writes_to("private"));
    SAY(setfsuid(OTHER));
    SAY(writes_to("private"));
    pthread_create(&child, NULL, later, &inherited), pthread_join(child, NULL);
    SAY(inherited);
    SAY(setfsuid(0));
    SAY(writes_to("private"));
    pthread_barrier_wait(&step), pthread_barrier_wait(&step);
    SAY(setresuid(-1, 0, -1) | setresgid(-1, 0, -1));
    pthread_barrier_wait(&step), pthread_barrier_wait(&step);
    SAY(setresgid(-1, MEMBER, -1) | setresuid(-1, MEMBER, -1));
    SAY(writes_to("members"));
    SAY(writes_to("private"));
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    for (int at = 0; at < 8; at++)
        SAY(got[at]);
    fflush(results);
    SAY(fork() ? wait(NULL) > 0 : (_exit(writes_to("private") != -EACCES), 0));
    SAY(setresuid(-1, 0, -1) | setresgid(-1, 0, -1));
    SAY(stat("of-thread", &info) || info.st_uid != OTHER || info.st_gid != OTHER);
    SAY(stat("of-member", &info) || info.st_uid != MEMBER);
    SAY(setfsgid(GROUP));
    put("by-group", "");
    SAY(stat("by-group", &info) ? -1 : (int)info.st_gid);
    SAY(setfsgid(0));
}

// ---- fifos and sockets of one user, met by another

static int in_child(const struct who *who, int (*act)(const char *), const char *path) {
    fflush(results);
    pid_t pid = fork();
    if (pid == 0) {
        become(who);
        _exit(act(path) & 0xFF);
    }
    int status;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static int connects(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), result = connect(fd, (void *)&name, sizeof name);
    return result ? errno : 0;
}

static int binds(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), result = bind(fd, (void *)&name, sizeof name);
    if (result)
        return errno;
    listen(fd, 99);
    // Others come while it is there.
    fflush(results);
    for (int at = 0; at < COUNT(all); at++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (me->uid)
                _exit(0);
            become(all + at);
            _exit(connects(path));
        }
        waitpid(pid, NULL, 0);
    }
    return 0;
}

static int opens_pipe(const char *path) {
    int fd = open(path, O_RDWR | O_NONBLOCK);
    return fd < 0 ? errno : write(fd, "p", 1) != 1;
}

static int reads_pipe(const char *path) {
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    return fd < 0 ? errno : 0;
}

static void meeting(void) {
    static const int modes[] = {0644, 0060, 0006, 0666, 0600};
    chmod(".", 0777), umask(077);
    for (int at = 0; at < COUNT(modes) * COUNT(all); at++) {
        const struct who *who = all + at % COUNT(all);
        char path[32], unused[32];
        snprintf(path, sizeof path, "pipe-%d", at), snprintf(unused, sizeof unused, "none-%d", at);
        mkfifo(path, 0600), chown(path, OWNER, GROUP), chmod(path, modes[at / COUNT(all)]);
        mkfifo(unused, 0600), chown(unused, OWNER, GROUP), chmod(unused, modes[at / COUNT(all)]);
        fprintf(results, "%s meets %o\n", who->name, modes[at / COUNT(all)]);
        // Who comes first makes the kernel's.
        SAY(in_child(who, reads_pipe, unused));
        int fd = open(path, O_RDWR | O_NONBLOCK);
        char byte = 0;
        SAY(in_child(who, opens_pipe, path));
        SAY(read(fd, &byte, 1));
        close(fd);
        become(who);
        SAY(opens_pipe(path));
        SAY(opens_pipe(unused));
        be_root();
        SAY(unlink(path) | unlink(unused));
    }
    mkdir("open", 0777), chmod("open", 0777);
    for (int at = 0; at < COUNT(all); at++) {
        SAY(in_child(all + at, binds, "open/socket"));
        SAY(lstat("open/socket", &info) ? -1 : (int)info.st_uid);
        chmod("open/socket", at % 2 ? 0777 : 0600);
        SAY(unlink("open/socket"));
    }
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "open/server"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    SAY(bind(server, (void *)&name, sizeof name) | listen(server, 999));
    for (int mode = 0600; mode <= 0666; mode += 033)
        for (int at = 0; at < COUNT(all); at++) {
            chmod("open/server", mode);
            SAY(in_child(all + at, connects, "open/server"));
        }
    umask(0);
}

// The change time moves also where `chown` changes nothing.
static void times(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < 3; how++) {
            make(kind, 0644);
            lstat("f", &info);
            usleep(20000);
            become(all + COUNT(all) - how * 5 - 1);
            int result = lchown("f", -1, -1);
            be_root();
            struct stat after;
            lstat("f", &after);
            fprintf(results, "%s lchown = %d %d\n", kinds[kind], result,
                    after.st_ctim.tv_nsec != info.st_ctim.tv_nsec);
        }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    umask(0);
    int protection = open("/proc/sys/fs/protected_hardlinks", O_RDONLY);
    links_protected = read(protection, text, 1) == 1 && text[0] != '0';
    close(protection);
    chmod(".", 0777);
    for (by_number = 0; by_number < 2; by_number++)
        files();
    by_number = 0;
    names();
    times();
    clear();
    meeting();
    threads();
    return 0;
}
