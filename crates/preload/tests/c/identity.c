// What a file is called and who it is, by every way of asking: all ways must agree. Paths are printed
// relative to the directory of the test, numbers only as far as they must be equal.
#include "say.h"
#include <mntent.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

static char base[4096];

// A path without the directory of the test.
static const char *tail(const char *path) {
    size_t length = strlen(base);
    return path && !strncmp(path, base, length) ? path + length : path ? path : "NULL";
}

static const char *link_of(const char *path) {
    static char to[4096];
    ssize_t got = readlink(path, to, sizeof to - 1);
    if (got < 0)
        return strerrorname_np(errno);
    to[got] = 0;
    return tail(to);
}

static const char *link_of_fd(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return link_of(path);
}

static int equal(struct stat *a, struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode &&
           a->st_nlink == b->st_nlink && a->st_size == b->st_size &&
           a->st_blksize == b->st_blksize && a->st_blocks == b->st_blocks;
}

// All ways of asking about what `directory/name` is.
static void faces(const char *directory, const char *name) {
    char path[8192], text[8192];
    struct stat by_path, other;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    SAY(stat(path, &by_path));
    int fd = open(path, O_RDONLY), dir = open(directory, O_RDONLY);
    SAY(fstat(fd, &other) || !equal(&by_path, &other));
    SAY(lstat(path, &other) || !equal(&by_path, &other));
    SAY(fstatat(dir, name, &other, 0) || !equal(&by_path, &other));
    SAY(fstatat(fd, "", &other, AT_EMPTY_PATH) || !equal(&by_path, &other));
    snprintf(text, sizeof text, "%s/.//../%s/%s", directory, strrchr(directory, '/') + 1, name);
    SAY(stat(text, &other) || !equal(&by_path, &other));
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd);
    SAY(stat(text, &other) || !equal(&by_path, &other));
    int again = open(text, O_RDONLY);
    SAY(fstat(again, &other) || !equal(&by_path, &other));
    snprintf(text, sizeof text, "/proc/%d/fd/%d", getpid(), fd);
    SAY_TEXT(link_of(text));
    SAY_TEXT(link_of_fd(again));
    struct statx x;
    SAY(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &x));
    SAY(x.stx_ino == by_path.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == by_path.st_dev &&
        x.stx_nlink == by_path.st_nlink && x.stx_mode == by_path.st_mode);
    DIR *list = fdopendir(dup(dir));
    for (struct dirent *entry; (entry = readdir(list));)
        if (!strcmp(entry->d_name, name))
            SAY(entry->d_ino == by_path.st_ino &&
                entry->d_type == (S_ISDIR(by_path.st_mode) ? DT_DIR : DT_REG));
    closedir(list);
    char *real = realpath(path, NULL);
    SAY_TEXT(tail(real));
    free(real);
    close(fd), close(again), close(dir);
}

static void directories(void) {
    struct stat here, up, dots;
    SAY(mkdir("d", 0755));
    SAY(mkdir("d/e", 0755));
    put("d/file", "text");
    SAY(stat("d", &here));
    SAY(here.st_nlink >= 2 && stat("d/e/..", &up) == 0 && equal(&here, &up));
    DIR *list = opendir("d/e");
    for (struct dirent *entry; (entry = readdir(list));) {
        if (!strcmp(entry->d_name, ".."))
            SAY(entry->d_ino == here.st_ino);
        if (!strcmp(entry->d_name, "."))
            SAY(stat("d/e", &dots) == 0 && entry->d_ino == dots.st_ino);
    }
    closedir(list);
    char path[8192];
    snprintf(path, sizeof path, "%s/d", base);
    faces(path, "file");
    faces(path, "e");
}

static void working_directory(void) {
    char text[4096];
    SAY(chdir("d/e"));
    SAY_TEXT(tail(getcwd(text, sizeof text)));
    SAY_TEXT(link_of("/proc/self/cwd"));
    struct stat a, b;
    SAY(stat("/proc/self/cwd", &a) || stat(".", &b) || !equal(&a, &b));
    SAY(lstat("/proc/self/cwd", &a) || !S_ISLNK(a.st_mode));
    SAY(stat("/proc/self/cwd/../file", &a) || stat("../file", &b) || !equal(&a, &b));
    char *real = realpath("/proc/self/cwd/../file", NULL);
    SAY_TEXT(tail(real));
    free(real);
    real = realpath(".", NULL);
    SAY_TEXT(tail(real));
    free(real);
    snprintf(text, sizeof text, "%s/d", base);
    char to[4096];
    snprintf(to, sizeof to, "%s/moved", base);
    SAY(rename(text, to));
    SAY_TEXT(tail(getcwd(text, sizeof text)));
    SAY_TEXT(link_of("/proc/self/cwd"));
    SAY(rename(to, "../../d"));
    SAY(rmdir("../e"));
    SAY(getcwd(text, sizeof text) ? 0 : -1);
    SAY(open("new", O_CREAT | O_WRONLY, 0600));
    SAY(chdir(base));
    SAY(mkdir("d/e", 0755));
}

static void open_files(void) {
    int fd = open("d/file", O_RDWR);
    SAY_TEXT(link_of_fd(fd));
    SAY(rename("d/file", "d/other"));
    SAY_TEXT(link_of_fd(fd));
    SAY(rename("d", "dd"));
    SAY_TEXT(link_of_fd(fd));
    SAY(rename("dd", "d"));
    SAY(rename("d/other", "d/file"));
    int dir = open("d", O_RDONLY), copy = dup(fd), made = open("d/made", O_CREAT | O_RDWR, 0600);
    SAY_TEXT(link_of_fd(dir));
    SAY_TEXT(link_of_fd(copy));
    SAY_TEXT(link_of_fd(made));
    int relative = openat(dir, "e/../made", O_RDONLY);
    SAY_TEXT(link_of_fd(relative));
    SAY(unlink("d/made"));
    // What it was called is gone; that it is gone is told.
    const char *gone = link_of_fd(made);
    SAY(!strncmp(gone, "/d/", 3) && !strcmp(gone + strlen(gone) - 10, " (deleted)"));
    int pid = fork();
    if (pid == 0) {
        SAY_TEXT(link_of_fd(fd));
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    close(fd), close(dir), close(copy), close(made), close(relative);
}

// The lines of a list of mappings that lie in a range: what they say of the file.
static void lines(const char *list, char *start, size_t length, dev_t device, ino_t ino) {
    FILE *maps = fopen(list, "r");
    char line[8192];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, offset, inode;
        unsigned major_number, minor_number;
        char access[5], path[4096] = "";
        if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %[^\n]", &from, &to, access, &offset,
                   &major_number, &minor_number, &inode, path) < 7)
            continue;
        if (from >= (unsigned long)start + length || to <= (unsigned long)start)
            continue;
        fprintf(results, "%s+%lx-%lx %s %lx %d %s\n", tail(list), from - (unsigned long)start,
                to - (unsigned long)start, access, offset,
                inode == ino && makedev(major_number, minor_number) == device, tail(path));
    }
    fclose(maps);
}

static void mappings(void) {
    int fd = open("d/mapped", O_CREAT | O_RDWR, 0600);
    ftruncate(fd, 8 * 4096);
    struct stat st;
    fstat(fd, &st);
    char *all = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *part = mmap(NULL, 2 * 4096, PROT_READ, MAP_PRIVATE, fd, 3 * 4096);
    char own[64];
    snprintf(own, sizeof own, "/proc/%d/maps", getpid());
    lines("/proc/self/maps", all, 8 * 4096, st.st_dev, st.st_ino);
    lines("/proc/self/maps", part, 2 * 4096, st.st_dev, st.st_ino);
    lines("/proc/self/smaps", part, 2 * 4096, st.st_dev, st.st_ino);
    SAY(rename("d/mapped", "d/renamed"));
    SAY(close(fd));
    lines("/proc/self/maps", part, 2 * 4096, st.st_dev, st.st_ino);
    int list = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    SAY(fcntl(list, F_GETFD));
    char byte;
    SAY(read(list, &byte, 1));
    SAY(write(list, &byte, 1));
    close(list);
    SAY(access(own, R_OK));
    munmap(part, 2 * 4096);
    mprotect(all + 4096, 4096, PROT_READ);
    lines("/proc/self/maps", all, 8 * 4096, st.st_dev, st.st_ino);
    munmap(all, 8 * 4096);
}

static void space(void) {
    struct statfs fs, by_fd;
    struct statvfs vfs;
    SAY(statfs(base, &fs));
    int fd = open("d/file", O_RDONLY);
    SAY(fstatfs(fd, &by_fd));
    SAY(fs.f_type == by_fd.f_type && fs.f_blocks == by_fd.f_blocks && fs.f_bsize == by_fd.f_bsize &&
        !memcmp(&fs.f_fsid, &by_fd.f_fsid, sizeof fs.f_fsid) && fs.f_namelen == by_fd.f_namelen);
    SAY(fstatvfs(fd, &vfs));
    unsigned long id;
    memcpy(&id, &fs.f_fsid, sizeof id);
    SAY(id != 0 && vfs.f_fsid == id);
    SAY(vfs.f_blocks == fs.f_blocks && vfs.f_bsize == fs.f_bsize && vfs.f_frsize == fs.f_frsize);
    SAY(vfs.f_namemax);
    SAY((fs.f_flags & 0x20) != 0);
    SAY(vfs.f_flag & ST_RDONLY);
    SAY(pathconf(base, _PC_NAME_MAX));
    SAY(fpathconf(fd, _PC_PATH_MAX));
    SAY(fpathconf(fd, _PC_PIPE_BUF));
    SAY(fpathconf(fd, _PC_NO_TRUNC));
    SAY(fpathconf(fd, _PC_CHOWN_RESTRICTED));
    close(fd);
}

// The mount that the test's directory lies on is among the mounts, with its device.
static void mounts(void) {
    struct stat st;
    stat(base, &st);
    FILE *info = fopen("/proc/self/mountinfo", "r");
    char line[8192];
    int found = 0;
    while (fgets(line, sizeof line, info)) {
        unsigned number, parent, major_number, minor_number;
        char place[4096];
        if (sscanf(line, "%u %u %u:%u %*s %4095s", &number, &parent, &major_number, &minor_number,
                   place) == 5)
            found |= makedev(major_number, minor_number) == st.st_dev && number != parent &&
                     !strncmp(base, place, strlen(place));
    }
    SAY(found);
    fclose(info);
    FILE *table = fopen("/proc/self/mounts", "r");
    size_t longest = 0;
    dev_t device = 0;
    for (struct mntent *entry; (entry = getmntent(table));) {
        struct stat mount;
        size_t length = strlen(entry->mnt_dir);
        if (!strncmp(base, entry->mnt_dir, length) && length >= longest &&
            stat(entry->mnt_dir, &mount) == 0)
            longest = length, device = mount.st_dev;
    }
    endmntent(table);
    SAY(device == st.st_dev);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    realpath(argv[1], base);
    directories();
    working_directory();
    open_files();
    mappings();
    space();
    mounts();
    errno = ENOSPC;
    SAY_TEXT(strerror(errno));
    return 0;
}
