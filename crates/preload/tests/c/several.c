// Two file systems at once: the working directory is the first argument, the second is on another.
// What a program may do between them, and what stays apart. A third argument: they are not alike.
#include "say.h"
#include <linux/openat2.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum { PAGE = 4096, MIB = 1 << 20 };

extern char **environ;
static const char *here, *there;
static int alike;

// A path of the other one.
static const char *in(const char *name) {
    return path_in(there, name);
}

// An absolute path of this one.
static const char *whole(const char *name) {
    return path_in(here, name);
}

// As `show`, without the path, which differs from run to run.
static void show_as(const char *what, int line, const char *path) {
    char bytes[4096];
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
    fprintf(results, "%d %s: ", line, what);
    if (count < 0)
        fprintf(results, "%s\n", strerrorname_np(errno));
    else
        fprintf(results, "[%.*s]\n", (int)count, bytes);
    if (fd >= 0)
        close(fd);
    fflush(results);
}
#undef SHOW
#define SHOW(path) show_as(#path, __LINE__, path)

static int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

// Each call that would give a file of the one a name on the other.
static void names(void) {
    put("f", "here\n");
    put(in("f"), "there\n");
    SAY(mkdir("d", 0755));
    SAY(mkdir(in("d"), 0755));
    SAY(symlink("f", "s"));
    SAY(rename("f", in("new")));
    SAY(rename("f", in("f")));
    SAY(rename("d", in("d")));
    SAY(rename("d", in("f")));
    SAY(rename("missing", in("new")));
    SAY(rename("missing", in("f")));
    SAY(rename("missing/deeper", in("new")));
    SAY(rename("f/deeper", in("new")));
    SAY(rename("f", in("missing/new")));
    SAY(rename("f", in("f/new")));
    SAY(rename("f/", in("f")));
    SAY(rename(".", in("new")));
    SAY(rename("d/..", in("new")));
    SAY(rename("f", in(".")));
    SAY(rename("d", in("d/..")));
    SAY(rename("", in("new")));
    SAY(rename("f", ""));
    SAY(rename("f", there));
    SAY(rename(there, "new"));
    SAY(rename(in("f"), "new"));
    SAY(rename(in("missing"), "f"));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, in("f"), RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "missing", AT_FDCWD, in("f"), RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, in("f"), RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, in("f"), RENAME_NOREPLACE | RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, in("new"), 64));
    SAY(link("f", in("new")));
    SAY(link("f", in("f")));
    SAY(link("f", in("d")));
    SAY(link("missing", in("new")));
    SAY(link("missing", in("f")));
    SAY(link("f", in("new/")));
    SAY(link("f", in("missing/new")));
    SAY(link("f", in("f/new")));
    SAY(link("f", in(".")));
    SAY(link("f", there));
    SAY(link("d", in("new")));
    SAY(link(".", in("new")));
    SAY(link("s", in("new")));
    SAY(linkat(AT_FDCWD, "s", AT_FDCWD, in("new"), AT_SYMLINK_FOLLOW));
    int fd = open("f", O_RDONLY);
    SAY(linkat(fd, "", AT_FDCWD, in("new"), AT_EMPTY_PATH));
    SAY(linkat(AT_FDCWD, path_in("/proc/self/fd", (char[]){'0' + fd, 0}), AT_FDCWD, in("new"),
               AT_SYMLINK_FOLLOW));
    close(fd);
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    SAY(linkat(fd, "", AT_FDCWD, in("new"), AT_EMPTY_PATH));
    SAY(linkat(fd, "", AT_FDCWD, "nameless", AT_EMPTY_PATH));
    close(fd);
    SAY(access(in("new"), F_OK));
    SHOW("f");
    SHOW(in("f"));
}

static void same(const char *one, const char *other) {
    struct stat a = {0}, b = {0};
    SAY(stat(one, &a) | stat(other, &b));
    fprintf(results, "the same device %d, the same number %d\n", a.st_dev == b.st_dev,
            a.st_dev == b.st_dev && a.st_ino == b.st_ino);
    fflush(results);
}

static void opened(int directory, const char *path, uint64_t resolve) {
    struct open_how how = {.flags = O_RDONLY, .resolve = resolve};
    int fd;
    while ((fd = syscall(SYS_openat2, directory, path, &how, sizeof how)) < 0 && errno == EAGAIN)
        ;
    SAY(fd < 0 ? -1 : 0);
    if (fd >= 0)
        close(fd);
}

// Symlinks, `..` and descriptors that lead from the one to the other.
static void paths(void) {
    put(in("d/deep"), "deep there\n");
    put("d/deep", "deep here\n");
    SAY(symlink(in("d"), "over"));
    SAY(symlink(whole("d"), in("d/back")));
    SAY(symlink(in("round"), "round"));
    SAY(symlink(whole("round"), in("round")));
    SAY(symlink(in("made"), "dangling"));
    SHOW("over/deep");
    SHOW("over/back/deep");
    SHOW("over/../f");
    SHOW("over/back/../f");
    SHOW("round");
    put("dangling", "made through a link\n");
    SHOW(in("made"));
    same("over", in("d"));
    same("over/back", "d");
    same("f", in("f"));
    same(here, there);
    struct stat one, other;
    SAY(stat(".", &one) | stat(there, &other));
    // The roots.
    if (alike)
        SAY(one.st_ino == other.st_ino && one.st_dev != other.st_dev);
    SAY(open("over", O_RDONLY | O_NOFOLLOW));
    SAY(rename("over/deep", "moved"));
    SAY(rename("over/deep", in("moved")));
    SHOW(in("moved"));
    SAY(link("over/back/deep", "linked"));
    SAY(truncate("over/back/deep", 4));
    SHOW("linked");
    char path[PATH_MAX];
    SAY(realpath("over/back/deep", path) ? strcmp(path, whole("d/deep")) : -1);
    SAY(realpath("over/.", path) ? strcmp(path, in("d")) : -1);
    int directory = open("over", O_RDONLY | O_DIRECTORY);
    opened(AT_FDCWD, "over/back/deep", 0);
    opened(AT_FDCWD, "over/back/deep", RESOLVE_NO_XDEV);
    opened(AT_FDCWD, "over/back/deep", RESOLVE_BENEATH);
    opened(AT_FDCWD, "over/back/deep", RESOLVE_NO_SYMLINKS);
    if (alike) {
        opened(AT_FDCWD, "over/back/deep", RESOLVE_IN_ROOT);
        opened(AT_FDCWD, in("f"), RESOLVE_NO_XDEV);
    }
    opened(directory, "../f", RESOLVE_BENEATH);
    opened(directory, "../f", RESOLVE_NO_XDEV);
    opened(directory, "back", RESOLVE_NO_XDEV);
    // A path that is whole ignores the directory's descriptor.
    SAY(faccessat(directory, whole("f"), R_OK, 0));
    SAY(faccessat(directory, "deep", R_OK, 0));
    SAY(mkdirat(directory, whole("d/made"), 0755));
    SAY(unlinkat(directory, whole("d/made"), AT_REMOVEDIR));
    SAY(renameat(directory, "back", AT_FDCWD, "new"));
    SAY(renameat(directory, "back", directory, whole("new")));
    SAY(renameat(directory, "back", directory, "again"));
    SAY(renameat(directory, "again", directory, "back"));
    SAY(symlinkat(in("f"), directory, whole("to-f")));
    SHOW("to-f");
    close(directory);
}

// Where the process is, told without where the two are.
static void tell_place(int line) {
    char path[PATH_MAX], beside[PATH_MAX];
    const char *told = getcwd(path, sizeof path) ? path : "nowhere";
    size_t up = strrchr(here, '/') - here;
    snprintf(beside, sizeof beside, "%.*s", (int)(up ? up : 1), here);
    if (!strncmp(told, here, strlen(here)))
        fprintf(results, "%d: here%s\n", line, told + strlen(here));
    else if (!strncmp(told, there, strlen(there)))
        fprintf(results, "%d: there%s\n", line, told + strlen(there));
    else
        fprintf(results, "%d: %s\n", line, strcmp(told, beside) ? told : "above both");
    fflush(results);
}
#define TELL_PLACE() tell_place(__LINE__)

static void working_directory(void) {
    int back = open(".", O_RDONLY), over = open(there, O_PATH | O_DIRECTORY);
    SAY(fchdir(over));
    TELL_PLACE();
    SHOW("f");
    SAY(chdir("d"));
    TELL_PLACE();
    SAY(system("cat ../f; cat back/deep; echo by a shell > made-by-a-shell"));
    SHOW("made-by-a-shell");
    SAY(chdir("../.."));
    TELL_PLACE();
    const char *name = strrchr(here, '/') + 1;
    SHOW(path_in(name, "f"));
    SAY(chdir(path_in(strrchr(there, '/') + 1, ".")));
    TELL_PLACE();
    char up[PATH_MAX];
    snprintf(up, sizeof up, "../%s/f", name);
    SAY(access(up, R_OK));
    SAY(rename("f", up));
    SAY(chdir(path_in("..", name)));
    TELL_PLACE();
    SAY(chdir("over/back"));
    TELL_PLACE();
    SAY(fchdir(back));
    TELL_PLACE();
    // A directory that is gone.
    SAY(mkdir(in("gone"), 0755));
    SAY(chdir(in("gone")));
    SAY(rmdir(in("gone")));
    SAY(open("x", O_CREAT | O_RDWR, 0600));
    SAY(getcwd(up, sizeof up) ? 0 : -1);
    SAY(chdir(here));
    close(back);
    close(over);
}

// Names of descriptors, and what is asked of a file system.
static void told(void) {
    const char *both[] = {"f", in("f")};
    for (int each = 0; each < 2; each++) {
        int fd = open(both[each], O_RDWR);
        char name[64], path[PATH_MAX] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        WORKS(readlink(name, path, sizeof path));
        SAY(strcmp(path, each ? both[each] : whole("f")));
        SHOW(name);
        SAY(access(path_in(name, "x"), F_OK));
        struct stat one, other;
        SAY(stat(name, &one) | fstat(fd, &other));
        SAY(one.st_dev == other.st_dev && one.st_ino == other.st_ino);
        close(fd);
    }
    struct statfs before[2], after[2];
    SAY(statfs(".", &before[0]) | statfs(there, &before[1]));
    if (alike)
        SAY(before[0].f_type == before[1].f_type);
    int fd = open("large", O_RDWR | O_CREAT, 0644);
    SAY(posix_fallocate(fd, 0, 8 * MIB));
    SAY(fstatfs(fd, &after[0]) | statfs("over", &after[1]));
    SAY(before[0].f_bfree - after[0].f_bfree >= 8 * MIB / before[0].f_bsize);
    SAY(before[1].f_bfree - after[1].f_bfree);
    close(fd);
    SAY(unlink("large"));
    // Attributes of files of the same name.
    SAY(setxattr("f", "user.here", "1", 1, 0));
    SAY(setxattr(in("f"), "user.there", "22", 2, 0));
    SAY(getxattr("f", "user.there", NULL, 0));
    SAY(getxattr(in("f"), "user.there", NULL, 0));
    SAY(removexattr("f", "user.there"));
    SAY(listxattr(in("f"), NULL, 0));
    SAY(syncfs(fd = open(in("f"), O_RDONLY)));
    SAY(close(fd));
    sync();
}

// The kernel refuses between two tmpfs, a volume copies: the bytes are the same in the end.
static long copied(int from, off_t *from_at, int to, off_t *to_at, size_t length) {
    ssize_t count = copy_file_range(from, from_at, to, to_at, length, 0);
    fprintf(stderr, "copy_file_range: %s\n",
            count < 0 && errno == EXDEV ? "EXDEV" : "it copies, or says why not");
    if (count >= 0 || errno != EXDEV)
        return count;
    char bytes[MIB];
    count = from_at ? pread(from, bytes, length, *from_at) : read(from, bytes, length);
    if (count < 0)
        return -1;
    if (to_at ? pwrite(to, bytes, count, *to_at) != count : write(to, bytes, count) != count)
        return -1;
    if (from_at)
        *from_at += count;
    if (to_at)
        *to_at += count;
    return count;
}

static void contents(void) {
    static char bytes[MIB], found[MIB];
    for (int at = 0; at < MIB; at++)
        bytes[at] = at * 31 / 7;
    int from = open("from", O_RDWR | O_CREAT, 0644), to = open(in("to"), O_RDWR | O_CREAT, 0644);
    SAY(write(from, bytes, MIB));
    off_t at = 1001, to_at = 70000;
    SAY(copied(from, &at, to, &to_at, 500000));
    SAY(at);
    SAY(to_at);
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(pread(to, found, MIB, 0));
    SAY(memcmp(found + 70000, bytes + 1001, 500000));
    int other = 0;
    for (int each = 0; each < 70000; each++)
        other |= found[each];
    SAY(other);
    SAY(lseek(from, MIB - 100, SEEK_SET));
    SAY(copied(from, NULL, to, NULL, 1000));
    SAY(copied(from, NULL, to, NULL, 1000));
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(pread(to, found, 100, 0));
    SAY(memcmp(found, bytes + MIB - 100, 100));
    // And back.
    at = 0;
    SAY(lseek(from, 0, SEEK_SET));
    SAY(copied(to, &at, from, NULL, 100));
    SAY(pread(from, found, 200, 0));
    SAY(memcmp(found, bytes + MIB - 100, 100) | memcmp(found + 100, bytes + 100, 100));
    at = 5000;
    SAY(ftruncate(to, 0));
    SAY(lseek(to, 10, SEEK_SET));
    SAY(sendfile(to, from, &at, 300000));
    SAY(at);
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(pread(to, found, MIB, 0));
    SAY(memcmp(found + 10, bytes + 5000, 300000));
    int pipes[2];
    SAY(pipe(pipes));
    at = 200, to_at = 0;
    SAY(splice(from, &at, pipes[1], NULL, 3000, 0));
    SAY(splice(pipes[0], NULL, to, &to_at, 3000, 0));
    SAY(pread(to, found, 3000, 0));
    SAY(memcmp(found, bytes + 200, 3000));
    int reader = open("from", O_RDONLY), appender = open(in("to"), O_WRONLY | O_APPEND);
    SAY(copy_file_range(from, NULL, reader, NULL, 10, 0));
    SAY(copy_file_range(appender, NULL, from, NULL, 10, 0));
    SAY(fcntl(appender, F_GETFL) & O_APPEND);
    close(pipes[0]), close(pipes[1]), close(reader), close(appender), close(from), close(to);
}

static void mappings(void) {
    int one = open("mapped", O_RDWR | O_CREAT, 0644), other = open(in("mapped"), O_RDWR | O_CREAT,
                                                                     0644);
    SAY(ftruncate(one, 8 * PAGE) | ftruncate(other, 8 * PAGE));
    int both = PROT_READ | PROT_WRITE;
    char *here_at = mmap(NULL, 8 * PAGE, both, MAP_SHARED, one, 0);
    char *there_at = mmap(NULL, 8 * PAGE, both, MAP_SHARED, other, 0);
    char *own = mmap(NULL, 8 * PAGE, both, MAP_PRIVATE, other, 0);
    WORKS(here_at);
    WORKS(there_at);
    WORKS(own);
    strcpy(here_at, "mapped here");
    strcpy(there_at, "mapped there");
    char text[32] = "";
    SAY(pread(one, text, sizeof text, 0));
    SAY_TEXT(text);
    SAY(pread(other, text, sizeof text, 0));
    SAY_TEXT(text);
    SAY_TEXT(own);
    strcpy(own + PAGE, "private");
    SAY(there_at[PAGE]);
    // The bytes of the one come from the other's pages.
    SAY(pwrite(one, there_at, 12, PAGE));
    SAY_TEXT(here_at + PAGE);
    SAY(pread(one, there_at + 2 * PAGE, 12, 0));
    SAY(pread(other, text, sizeof text, 2 * PAGE));
    SAY_TEXT(text);
    SAY(msync(here_at, 8 * PAGE, MS_SYNC) | msync(there_at, 8 * PAGE, MS_SYNC));
    // A page of the one in the middle of the other's.
    SAY(mmap(here_at + 2 * PAGE, PAGE, both, MAP_SHARED | MAP_FIXED, other, 0) ==
        here_at + 2 * PAGE);
    SAY_TEXT(here_at + 2 * PAGE);
    strcpy(here_at + 2 * PAGE, "through the hole");
    SAY_TEXT(there_at);
    strcpy(here_at + 3 * PAGE, "behind it");
    SAY(pread(one, text, sizeof text, 3 * PAGE));
    SAY_TEXT(text);
    close(one);
    pid_t pid = fork();
    if (pid == 0) {
        strcpy(here_at, "a child here");
        strcpy(there_at, "a child there");
        strcpy(own, "a child's own");
        _exit(0);
    }
    SAY(status_of(pid));
    SAY_TEXT(here_at);
    SAY_TEXT(there_at);
    // A private page that was not written may follow the file: only that it is not the child's.
    SAY(strcmp(own, "a child's own") != 0);
    SAY(munmap(here_at, 8 * PAGE) | munmap(there_at, 8 * PAGE) | munmap(own, 8 * PAGE));
    SHOW(in("mapped"));
    close(other);
}

static struct flock range(short kind, off_t start) {
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
}

// What another process may lock.
static void test_locks(int line, int one, int other) {
    pid_t pid = fork();
    if (pid == 0) {
        int answers[4];
        int fds[] = {one, other};
        for (int each = 0; each < 2; each++) {
            struct flock lock = range(F_WRLCK, 0);
            answers[each] = fcntl(fds[each], F_SETLK, &lock) ? errno : 0;
            lock = range(F_RDLCK, 100);
            fcntl(fds[each], F_GETLK, &lock);
            answers[2 + each] = lock.l_type == F_UNLCK ? 0 : lock.l_pid == getppid() ? 1 : 2;
        }
        fprintf(results, "%d: %d %d, %d %d\n", line, answers[0], answers[1], answers[2], answers[3]);
        fflush(results);
        _exit(0);
    }
    status_of(pid);
}

static void locks(void) {
    put("locked", "");
    put(in("locked"), "");
    int one = open("locked", O_RDWR), other = open(in("locked"), O_RDWR);
    struct flock low = range(F_WRLCK, 0), high = range(F_WRLCK, 100);
    SAY(fcntl(one, F_SETLK, &low) | fcntl(one, F_SETLK, &high));
    test_locks(__LINE__, one, other);
    SAY(fcntl(other, F_SETLK, &low) | fcntl(other, F_SETLK, &high));
    test_locks(__LINE__, one, other);
    // A close drops the locks of that file only.
    close(open("locked", O_RDONLY));
    test_locks(__LINE__, one, other);
    SAY(fcntl(one, F_SETLK, &low) | fcntl(one, F_SETLK, &high));
    close(dup(other));
    test_locks(__LINE__, one, other);
    // They outlast an exec, and the number that it closes drops its file's.
    int told[2], held[2];
    SAY(pipe(told) | pipe(held));
    pid_t pid = fork();
    if (pid == 0) {
        struct flock mine = range(F_WRLCK, 200);
        SAY(fcntl(one, F_SETLK, &mine) | fcntl(other, F_SETLK, &mine));
        fcntl(open("locked", O_RDONLY), F_SETFD, FD_CLOEXEC);
        dup2(told[1], 1);
        dup2(held[0], 0);
        execl("/bin/sh", "sh", "-c", "echo; read line", (char *)NULL);
        _exit(9);
    }
    char byte = 0;
    SAY(read(told[0], &byte, 1));
    struct flock probe = range(F_WRLCK, 200);
    SAY(fcntl(one, F_GETLK, &probe));
    SAY(probe.l_type == F_UNLCK);
    probe = range(F_WRLCK, 200);
    SAY(fcntl(other, F_GETLK, &probe));
    SAY(probe.l_pid == pid);
    SAY(write(held[1], "\n", 1));
    SAY(status_of(pid));
    close(told[0]), close(told[1]), close(held[0]), close(held[1]);
    int again = open("locked", O_RDWR), elsewhere = open(in("locked"), O_RDWR);
    SAY(flock(one, LOCK_EX));
    SAY(flock(elsewhere, LOCK_EX | LOCK_NB));
    SAY(flock(again, LOCK_SH | LOCK_NB));
    SAY(flock(other, LOCK_SH | LOCK_NB));
    SAY(flock(one, LOCK_UN));
    SAY(flock(again, LOCK_SH | LOCK_NB));
    // Two processes that wait for each other, one on each.
    close(again), close(elsewhere);
    SAY(fcntl(one, F_SETLK, &low));
    int pipes[2];
    SAY(pipe(pipes));
    pid = fork();
    if (pid == 0) {
        struct flock mine = range(F_WRLCK, 300);
        char byte = fcntl(other, F_SETLK, &mine) ? '-' : '+';
        if (write(pipes[1], &byte, 1) != 1)
            _exit(1);
        mine = range(F_WRLCK, 0);
        _exit(fcntl(one, F_SETLKW, &mine) ? errno : 0);
    }
    SAY(read(pipes[0], &byte, 1));
    SAY(byte);
    high = range(F_WRLCK, 300);
    SAY(fcntl(other, F_SETLK, &high));
    usleep(20000);
    low.l_type = F_UNLCK;
    SAY(fcntl(one, F_SETLK, &low));
    SAY(status_of(pid));
    close(pipes[0]), close(pipes[1]), close(one), close(other);
}

static void processes(void) {
    int one = open("out", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int other = open(in("out"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int hidden = open(in("f"), O_RDONLY | O_CLOEXEC);
    char script[3 * PATH_MAX];
    snprintf(script, sizeof script,
             "echo a child here >&%d; echo a child there >&%d; cat <&%d 2>/dev/null || echo closed; "
             "cat f; cat %s; cd %s && cat f && cd - >/dev/null && cat f",
             one, other, hidden, in("f"), there);
    char *arguments[] = {"sh", "-c", script, NULL};
    for (int way = 0; way < 3; way++) {
        pid_t pid = way == 0 ? fork() : way == 1 ? vfork() : -1;
        if (pid == 0) {
            dup2(other, 1);
            execv("/bin/sh", arguments);
            _exit(9);
        }
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, in("f"), O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_RDWR | O_CREAT | O_TRUNC, 0644);
        posix_spawn_file_actions_adddup2(&actions, other, 2);
        if (way == 2)
            SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ));
        posix_spawn_file_actions_destroy(&actions);
        SAY(status_of(pid));
        SHOW("out");
        SHOW(in("out"));
    }
    SHOW("spawned");
    // A program that lies there, run from here, and a script whose interpreter lies there.
    SAY(system(strcpy(script, "cp /bin/cat over/cat; cp /bin/sh over/sh")));
    put("script", "#!");
    snprintf(script, sizeof script, "{ echo '#!%s'; echo 'cat f'; } > script; chmod 755 script; "
             "over/cat f > out; ./script >> out; cd over && ./cat ../f > out", in("d/sh"));
    SAY(system(script));
    SHOW("out");
    SHOW(in("d/out"));
    // A number of the one becomes the other's.
    SAY(dup2(one, other) == other);
    SAY(write(other, "by dup2\n", 8));
    SHOW("out");
    SAY(dup3(hidden, one, O_CLOEXEC) == one);
    char text[16] = "";
    SAY(read(one, text, sizeof text));
    SAY_TEXT(text);
    SAY(lseek(hidden, 0, SEEK_CUR));
    SAY(close(one) | close(other) | close(hidden));
    SAY(fcntl(other, F_GETFD));
}

static long carry(int socket, int *fds, int count, int flags) {
    char byte = 'x';
    struct iovec data = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[128];
    } control = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof *fds)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof *fds);
    if (flags < 0) {
        memcpy(CMSG_DATA(header), fds, count * sizeof *fds);
        return sendmsg(socket, &message, 0);
    }
    long result = recvmsg(socket, &message, flags);
    memcpy(fds, CMSG_DATA(header), count * sizeof *fds);
    return result;
}

// Descriptors of both, and of the kernel's, in one message.
static void sent(void) {
    int sockets[2];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pid_t pid = fork();
    if (pid == 0) {
        int fds[] = {open("f", O_RDONLY), open("/dev/null", O_RDWR), open(in("f"), O_RDWR),
                     open(there, O_RDONLY)};
        lseek(fds[2], 2, SEEK_SET);
        _exit(carry(sockets[0], fds, 4, -1) != 1);
    }
    SAY(status_of(pid));
    int fds[4] = {-1, -1, -1, -1};
    SAY(carry(sockets[1], fds, 4, MSG_CMSG_CLOEXEC));
    char text[16] = "";
    SAY(read(fds[0], text, sizeof text));
    SAY_TEXT(text);
    SAY(read(fds[1], text, sizeof text));
    memset(text, 0, sizeof text);
    SAY(read(fds[2], text, sizeof text));
    SAY_TEXT(text);
    SAY(fcntl(fds[2], F_GETFD));
    SAY(faccessat(fds[3], "d/deep", F_OK, 0));
    SAY(faccessat(fds[3], "made", F_OK, 0));
    struct stat one, other;
    SAY(fstat(fds[2], &one) | stat(in("f"), &other));
    SAY(one.st_dev == other.st_dev && one.st_ino == other.st_ino);
    for (int each = 0; each < 4; each++)
        SAY(close(fds[each]));
    close(sockets[0]), close(sockets[1]);
}

// Fifos and sockets of both between processes.
static void met(void) {
    const char *directories[] = {".", there};
    for (int each = 0; each < 2; each++) {
        const char *fifo = path_in(directories[each], "fifo");
        const char *name = path_in(directories[each], "socket");
        SAY(mkfifo(fifo, 0644));
        pid_t pid = fork();
        if (pid == 0) {
            int fd = open(fifo, O_WRONLY);
            _exit(write(fd, each ? "there" : "here.", 5) != 5);
        }
        char text[16] = "";
        int fd = open(fifo, O_RDONLY);
        SAY(read(fd, text, sizeof text));
        SAY_TEXT(text);
        SAY(status_of(pid));
        close(fd);
        SAY(rename(fifo, path_in(directories[!each], "fifo-moved")));
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        SAY(bind(listener, (void *)&address, sizeof address));
        SAY(listen(listener, 1));
        pid = fork();
        if (pid == 0) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            _exit(connect(fd, (void *)&address, sizeof address) || write(fd, "met", 3) != 3);
        }
        fd = accept(listener, NULL, NULL);
        SAY(read(fd, text, sizeof text));
        SAY(status_of(pid));
        struct sockaddr_un own = {0};
        socklen_t length = sizeof own;
        SAY(getsockname(listener, (void *)&own, &length));
        SAY(strcmp(own.sun_path, name));
        SAY(unlink(name));
        close(fd), close(listener);
    }
}

// Who writes to another one's file takes its set-user-id bit, wherever it lies.
static void bits(void) {
    struct stat stat_of_it;
    for (int each = 0; each < 2; each++) {
        for (int way = 0; way < 5; way++) {
            const char *path = path_in(each ? there : ".", "bits");
            int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666), from = open("f", O_RDONLY);
            SAY(write(fd, "text", 4));
            SAY(fchmod(fd, 06777));
            pid_t pid = fork();
            if (pid == 0) {
                if (setgid(1000) || setuid(1000))
                    _exit(9);
                off_t at = 0;
                _exit(way == 0   ? write(fd, "x", 1) != 1
                      : way == 1 ? pwrite(fd, "x", 1, 0) != 1
                      : way == 2 ? ftruncate(fd, 1)
                      : way == 3 ? truncate(path, 2)
                                 : sendfile(fd, from, &at, 3) != 3);
            }
            SAY(status_of(pid));
            SAY(stat(path, &stat_of_it));
            SAY(stat_of_it.st_mode);
            close(fd), close(from);
            SAY(unlink(path));
        }
    }
}

static void *writes(void *argument) {
    long number = (long)argument;
    char name[32], other[32];
    for (int each = 0; each < 300; each++) {
        snprintf(name, sizeof name, "t%ld-%d", number, each);
        snprintf(other, sizeof other, "u%ld-%d", number, each);
        const char *directory = each % 2 == number % 2 ? here : there;
        char path[PATH_MAX], moved[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", directory, name);
        snprintf(moved, sizeof moved, "%s/%s", directory, other);
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || write(fd, name, strlen(name)) != (ssize_t)strlen(name))
            return "write";
        char found[32] = "";
        if (pread(fd, found, sizeof found, 0) < 0 || strcmp(found, name) || close(fd))
            return "read";
        if (rename(path, moved) || unlink(moved))
            return "rename";
    }
    return NULL;
}

// Threads that are on both at once.
static void threads(void) {
    pthread_t all[4];
    for (long each = 0; each < 4; each++)
        pthread_create(&all[each], NULL, writes, (void *)each);
    for (int each = 0; each < 4; each++) {
        void *failed;
        pthread_join(all[each], &failed);
        SAY_TEXT(failed ? (char *)failed : "all is well");
    }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    here = argv[1], there = argv[2], alike = argc < 4;
    names();
    paths();
    working_directory();
    told();
    contents();
    mappings();
    locks();
    processes();
    sent();
    met();
    if (geteuid() == 0)
        bits();
    threads();
    return 0;
}
