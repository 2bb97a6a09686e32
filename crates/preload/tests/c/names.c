// Names made, moved and removed; symlinks; attributes; extended attributes; directories read.
#include "say.h"
#include <ftw.h>
#include <glob.h>
#include <sys/syscall.h>
#include <utime.h>

static int in_order(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void making(void) {
    SAY(mkdir("d", 0777));
    SAY(mkdir("d", 0777));
    SAY(mkdir("d/e/", 0700));
    SAY(mkdir("none/e", 0700));
    SAY(mkdir(".", 0700));
    put("f", "f");
    SAY(mkdir("f/x", 0700));
    SAY(symlink("f", "l"));
    SAY(symlink("f", "l"));
    SAY(symlink("", "m"));
    SAY(symlink("../d", "d/up"));
    SAY(link("f", "g"));
    SAY(link("d", "h"));
    SAY(link("none", "h"));
    SAY(link("none", "f/h"));
    SAY(linkat(AT_FDCWD, "l", AT_FDCWD, "ll", 0));
    SAY(linkat(AT_FDCWD, "l", AT_FDCWD, "lf", AT_SYMLINK_FOLLOW));
    SAY(mkfifo("p", 0644));
    SAY(mknod("n", S_IFREG | 0644, 0));
    SAY(mknod("s", S_IFSOCK | 0644, 0));
    char text[64] = {0};
    SAY(readlink("l", text, sizeof text));
    SAY_TEXT(text);
    SAY(readlink("l", text, 0));
    SAY(readlink("f", text, 8));
    SAY(readlink("ll", text, 1));
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    SAY(mkdir(name, 0777));
    name[255] = 0;
    SAY(mkdir(name, 0777));
    SAY(rmdir(name));
}

static void describe(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) {
        fprintf(results, "%s: %s\n", path, strerrorname_np(errno));
        return;
    }
    fprintf(results, "%s: mode %o links %ld uid %d gid %d size %ld\n", path, info.st_mode,
            (long)info.st_nlink, info.st_uid, info.st_gid,
            S_ISDIR(info.st_mode) ? 0 : (long)info.st_size);
}

static void attributes(void) {
    const char *all[] = {"d", "d/e", "f", "g", "l", "ll", "lf", "p", "n", "s", "none", "d/up/e"};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        describe(all[at]);
    struct stat info;
    SAY(stat("l", &info));
    SAY(info.st_mode);
    SAY(chmod("f", 0604));
    SAY(chmod("l", 04755));
    describe("f");
    SAY(fchmodat(AT_FDCWD, "f", 0600, 0));
    SAY(chmod("none", 0600));
    SAY(chown("f", 12, 13));
    SAY(lchown("l", 14, 15));
    SAY(chown("f", -1, 16));
    describe("f");
    describe("l");
    struct timespec times[2] = {{100, 5}, {200, 7}};
    SAY(utimensat(AT_FDCWD, "f", times, 0));
    stat("f", &info);
    SAY(info.st_atim.tv_sec * 1000 + info.st_atim.tv_nsec);
    SAY(info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = 1000000000;
    SAY(utimensat(AT_FDCWD, "f", times, 0));
    times[1] = (struct timespec){-5, 3};
    SAY(utimensat(AT_FDCWD, "f", times, 0));
    stat("f", &info);
    SAY(info.st_atim.tv_sec);
    SAY(info.st_mtim.tv_sec * 10 + info.st_mtim.tv_nsec);
    struct utimbuf seconds = {7, 8};
    SAY(utime("f", &seconds));
    struct timeval micros[2] = {{9, 1}, {10, 2}};
    SAY(utimes("l", micros));
    SAY(lutimes("l", micros));
    stat("f", &info);
    SAY(info.st_mtim.tv_nsec);
    SAY(utime("none", &seconds));
    SAY(access("f", R_OK | W_OK));
    SAY(access("f", X_OK));
    SAY(access("none", F_OK));
    SAY(access("f", 99));
    SAY(faccessat(AT_FDCWD, "l", R_OK, AT_EACCESS));
    struct statx more;
    SAY(statx(AT_FDCWD, "f", 0, STATX_ALL, &more));
    SAY(more.stx_mode);
    SAY(more.stx_mtime.tv_nsec);
    int fd = open("f", O_RDONLY);
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &more));
    SAY(fstatat(fd, "", &info, AT_EMPTY_PATH));
    SAY(fstatat(fd, "", &info, 0));
    SAY(fchmod(fd, 0644));
    SAY(fchown(fd, 0, 0));
    times[1].tv_nsec = UTIME_NOW;
    SAY(futimens(fd, times));
    SAY(pathconf("f", _PC_NAME_MAX));
    SAY(fpathconf(fd, _PC_PATH_MAX));
    close(fd);
}

static void extended(void) {
    char value[64] = {0};
    SAY(setxattr("f", "user.one", "1", 1, 0));
    SAY(setxattr("f", "user.one", "1", 1, XATTR_CREATE));
    SAY(setxattr("f", "user.two", "22", 2, XATTR_REPLACE));
    SAY(setxattr("f", "user.two", "22", 2, XATTR_CREATE));
    SAY(getxattr("l", "user.two", value, sizeof value));
    SAY_TEXT(value);
    SAY(getxattr("f", "user.two", value, 1));
    SAY(getxattr("f", "user.two", NULL, 0));
    SAY(getxattr("f", "user.none", value, 8));
    SAY(getxattr("f", "wrong", value, 8));
    SAY(lgetxattr("l", "user.two", value, 8));
    SAY(listxattr("f", NULL, 0));
    SAY(listxattr("f", value, 1));
    SAY(removexattr("f", "user.one"));
    SAY(removexattr("f", "user.one"));
    SAY(listxattr("f", value, sizeof value));
    SAY_TEXT(value);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path) {
    char *names[100];
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir) {
        fprintf(results, "opendir %s: %s\n", path, strerrorname_np(errno));
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        char text[300];
        snprintf(text, sizeof text, "%s/%d", entry->d_name, entry->d_type);
        names[count++] = strdup(text);
    }
    qsort(names, count, sizeof *names, by_name);
    for (int at = 0; at < count; at++)
        fprintf(results, "%s: %s\n", path, names[at]);
    rewinddir(dir);
    int again = 0;
    long place = -1;
    while (readdir(dir))
        if (++again == 2)
            place = telldir(dir);
    int rest = 0;
    seekdir(dir, place);
    while (readdir(dir))
        rest++;
    fprintf(results, "again %d, after the second %d, closed %d\n", again, rest, closedir(dir));
}

static int skip_dots(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int files_seen, directories_seen, links_seen;
static int visit(const char *path, const struct stat *info, int what, struct FTW *place) {
    (void)path, (void)info, (void)place;
    files_seen += what == FTW_F;
    directories_seen += what == FTW_D || what == FTW_DP;
    links_seen += what == FTW_SL;
    return 0;
}

static void directories(void) {
    list(".");
    list("d");
    list("none");
    list("f");
    struct dirent **entries;
    int count = scandir(".", &entries, skip_dots, alphasort);
    SAY(count);
    for (int at = 0; at < count; at++)
        SAY_TEXT(entries[at]->d_name);
    SAY(scandir("none", &entries, NULL, NULL));
    glob_t found = {0};
    SAY(glob("*", 0, NULL, &found));
    for (size_t at = 0; at < found.gl_pathc; at++)
        SAY_TEXT(found.gl_pathv[at]);
    globfree(&found);
    SAY(glob("d/*/", 0, NULL, &found));
    SAY(glob("z*", 0, NULL, &found));
    SAY(nftw(".", visit, 8, FTW_PHYS | FTW_DEPTH));
    SAY(files_seen * 10000 + directories_seen * 100 + links_seen);
    SAY(nftw("none", visit, 8, 0));
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    DIR *dir = fdopendir(fd);
    SAY(dirfd(dir) - fd);
    closedir(dir);
    SAY(fcntl(fd, F_GETFD));
    char small[8];
    fd = open(".", O_RDONLY);
    SAY(getdents64(fd, small, sizeof small));
    SAY(syscall(SYS_getdents, fd, small, sizeof small));
    // The old call: the name at byte 18, the kind in the last one.
    char bytes[4096], *listed[64];
    int names = 0;
    for (long got; (got = syscall(SYS_getdents, fd, bytes, sizeof bytes)) > 0;) {
        for (long at = 0; at < got;) {
            unsigned short length = *(unsigned short *)(bytes + at + 16);
            asprintf(&listed[names++], "%s %d", bytes + at + 18, bytes[at + length - 1]);
            at += length;
        }
    }
    qsort(listed, names, sizeof *listed, in_order);
    for (int at = 0; at < names; at++)
        SAY_TEXT(listed[at]);
    close(fd);
    fd = open("f", O_RDONLY);
    WORKS(fdopendir(fd) ? 0 : -1);
    close(fd);
}

static void leaving_whiteouts(void) {
    SAY(mkdir("w", 0700));
    put("w/one", "one");
    SAY(renameat2(AT_FDCWD, "w/one", AT_FDCWD, "w/two", RENAME_WHITEOUT));
    describe("w/one");
    describe("w/two");
    SAY(renameat2(AT_FDCWD, "w/two", AT_FDCWD, "w/one", RENAME_WHITEOUT | RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "w/two", AT_FDCWD, "w/one", RENAME_WHITEOUT | RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "w/two", AT_FDCWD, "w/two", RENAME_WHITEOUT));
    describe("w/two");
    SAY(renameat2(AT_FDCWD, "w/two", AT_FDCWD, "w/one", RENAME_WHITEOUT));
    SAY(renameat2(AT_FDCWD, "w/none", AT_FDCWD, "w/one", RENAME_WHITEOUT));
    SAY(renameat2(AT_FDCWD, "w", AT_FDCWD, "w/one/w", RENAME_WHITEOUT));
    SAY(renameat2(AT_FDCWD, "w", AT_FDCWD, "v", RENAME_WHITEOUT));
    describe("v");
    describe("w");
    describe("v/one");
    describe("v/two");
    SAY(unlink("v/one"));
    SAY(unlink("v/two"));
    SAY(rmdir("v"));
    SAY(unlink("w"));
}

static void moving(void) {
    SAY(rename("f", "moved"));
    SAY(rename("f", "moved"));
    SAY(rename("moved", "d"));
    SAY(rename("d", "moved"));
    SAY(rename("d", "d/e/d"));
    SAY(rename("d", "d/../dd"));
    SAY(rename("dd/.", "x"));
    SAY(rename("moved", "dd/f"));
    SAY(rename("dd/f", "f/"));
    SAY(rename("dd/f", "f"));
    SAY(rename("f", "f"));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "dd", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "none", RENAME_EXCHANGE));
    describe("f");
    describe("dd");
    SAY(renameat2(AT_FDCWD, "f", AT_FDCWD, "dd", RENAME_EXCHANGE));
    SAY(rmdir("dd"));
    SAY(rmdir("f"));
    SAY(rmdir("dd/e"));
    SAY(unlink("dd"));
    SAY(unlink("dd/up"));
    SAY(rmdir("dd/."));
    SAY(rmdir("dd/.."));
    SAY(rmdir("dd"));
    leaving_whiteouts();
    SAY(unlink("none"));
    SAY(unlink("f/"));
    SAY(remove("f"));
    SAY(unlinkat(AT_FDCWD, "g", 0));
    SAY(unlinkat(AT_FDCWD, "l", AT_REMOVEDIR));
    // An open file lives on without a name.
    put("gone", "still here");
    int fd = open("gone", O_RDONLY);
    SAY(unlink("gone"));
    char text[16] = {0};
    SAY(read(fd, text, 15));
    SAY_TEXT(text);
    struct stat info;
    SAY(fstat(fd, &info));
    SAY(info.st_nlink);
    close(fd);
    list(".");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    making();
    attributes();
    extended();
    directories();
    moving();
    return 0;
}
