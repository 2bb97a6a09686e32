// A slash behind the last name. A call that makes, removes or moves a name means that name, also if it
// is a symlink's: rmdir("link/") once removed the directory behind the link, and mkdir("dangling/")
// made what it leads to. Calls that only look follow the link. After each call the whole tree is told.
#include "say.h"
#include <sys/syscall.h>

#define BENEATH 8

static const char *const names[] = {"dir/", "file/", "to-dir/", "to-file/", "dangling/", "nowhere/", "missing/",
                                    "to-dir//", "./", "dir/./", "../here/to-dir/", "around/"};
static const char *const all[] = {"dir",     "dir/inner", "file",     "to-dir",  "to-file", "dangling", "nowhere",
                                  "missing", "target",    "other",    "other-dir", "around", "none"};

static void build(void) {
    mkdir("dir", 0755);
    put("file", "file");
    put("other", "other");
    mkdir("other-dir", 0755);
    symlink("dir", "to-dir");
    symlink("file", "to-file");
    symlink("target", "dangling");
    symlink("none/x", "nowhere");
    symlink("to-dir/", "around");
}

static void tell(void) {
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        struct stat st;
        if (lstat(all[i], &st) == 0)
            fprintf(results, " %s:%o:%d", all[i], st.st_mode & S_IFMT, (int)st.st_nlink);
    }
    fprintf(results, "\n");
}

static void raze(void) {
    for (int times = 0; times < 2; times++)
        for (int i = (int)(sizeof all / sizeof *all) - 1; i >= 0; i--)
            if (unlink(all[i]))
                rmdir(all[i]);
}

#define TRY(call) \
    do { \
        build(); \
        errno = 0; \
        long given = (long)(call); \
        fprintf(results, #call ", %s: %s;", name, given < 0 ? strerrorname_np(errno) : "works"); \
        tell(); \
        raze(); \
    } while (0)

static long opened(int fd) {
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return fd;
}

static long opened2(const char *name, uint64_t flags, uint64_t rules) {
    uint64_t how[3] = {flags, flags & O_CREAT ? 0600 : 0, rules};
    return opened(syscall(SYS_openat2, AT_FDCWD, name, how, sizeof how));
}

static void one(const char *name) {
    struct stat st;
    char text[64];
    TRY(mkdir(name, 0755));
    TRY(mkdirat(AT_FDCWD, name, 0755));
    TRY(rmdir(name));
    TRY(unlink(name));
    TRY(unlinkat(AT_FDCWD, name, 0));
    TRY(unlinkat(AT_FDCWD, name, AT_REMOVEDIR));
    TRY(syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
    TRY(remove(name));
    TRY(mknod(name, S_IFREG | 0644, 0));
    TRY(mkfifo(name, 0644));
    TRY(symlink("other", name));
    TRY(link("other", name));
    TRY(link(name, "none"));
    TRY(linkat(AT_FDCWD, name, AT_FDCWD, "none", AT_SYMLINK_FOLLOW));
    TRY(rename(name, "none"));
    TRY(rename("other", name));
    TRY(rename("other-dir", name));
    TRY(renameat2(AT_FDCWD, "other", AT_FDCWD, name, RENAME_NOREPLACE));
    TRY(renameat2(AT_FDCWD, "other", AT_FDCWD, name, RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "other-dir", AT_FDCWD, name, RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, name, AT_FDCWD, "other", RENAME_EXCHANGE));
    TRY(opened(open(name, O_RDONLY)));
    TRY(opened(open(name, O_WRONLY | O_CREAT, 0644)));
    TRY(opened(open(name, O_WRONLY | O_CREAT | O_EXCL, 0644)));
    TRY(opened(open(name, O_RDONLY | O_NOFOLLOW)));
    TRY(opened(open(name, O_PATH | O_NOFOLLOW)));
    TRY(opened2(name, O_WRONLY | O_CREAT | O_EXCL, BENEATH));
    TRY(opened2(name, O_WRONLY | O_CREAT, BENEATH));
    TRY(opened(creat(name, 0644)));
    TRY(readlink(name, text, sizeof text));
    TRY(lstat(name, &st));
    TRY(stat(name, &st));
    TRY(lchown(name, -1, -1));
    TRY(chmod(name, 0700));
    TRY(truncate(name, 0));
    TRY(access(name, F_OK));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    mkdir("here", 0755);
    chdir("here");
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        one(names[i]);
    return 0;
}
