// Over a kernel file system: what other ways to a file find of appends that were just made, and what becomes
// of these when its names, limits and descriptors change.
// Usage: safety DIRECTORY; each line of output must be the kernel's.
#include "say.h"
#include <sys/resource.h>
#include <sys/sendfile.h>

static char bytes[10000];

static unsigned long sum(int fd) {
    static char buffer[1 << 16];
    unsigned long sum = 5381;
    ssize_t got;
    for (off_t at = 0; (got = pread(fd, buffer, sizeof buffer, at)) > 0; at += got)
        for (ssize_t each = 0; each < got; each++)
            sum = sum * 31 + buffer[each];
    return sum;
}

static unsigned long sum_of(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return errno;
    unsigned long found = sum(fd);
    close(fd);
    return found;
}

// A file of which some is at its place, and some was just appended.
static int begin(const char *name, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
    for (int each = 0; each < 4; each++)
        SAY(write(fd, bytes + each, 3000));
    SAY(fsync(fd));
    for (int each = 0; each < 5; each++)
        SAY(write(fd, bytes + 7 * each, 2500 + each));
    return fd;
}

static void limits(void) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, before;
    getrlimit(RLIMIT_FSIZE, &before);
    int fd = begin("limits", 0);
    limit = before;
    limit.rlim_cur = 26000;
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    SAY(write(fd, bytes, 3000));
    SAY(write(fd, bytes, 3000));
    SAY(write(fd, bytes, 3000));
    SAY(pwrite(fd, bytes, 100, 25990));
    SAY(setrlimit(RLIMIT_FSIZE, &before));
    SAY(write(fd, bytes, 3000));
    SAY(sum(fd));
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = fd + 1;
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    SAY(open("limits", O_RDONLY));
    SAY(write(fd, bytes, 3000));
    SAY(fsync(fd));
    SAY(write(fd, bytes, 300));
    SAY(setrlimit(RLIMIT_NOFILE, &before));
    SAY(close(fd));
    SAY(sum_of("limits"));
}

static void names(void) {
    struct stat stat;
    int fd = begin("old", 0), other = begin("new", O_APPEND);
    SAY(rename("old", "new"));
    SAY(write(other, bytes, 2000));
    SAY(write(fd, bytes, 1000));
    SAY(sum(other));
    SAY(sum_of("new"));
    SAY(fstat(other, &stat) | stat.st_nlink);
    SAY(unlink("new"));
    SAY(write(fd, bytes, 1000));
    SAY(fstat(fd, &stat));
    SAY(stat.st_size);
    SAY(sum(fd));
    int path = open("again", O_RDWR | O_CREAT, 0644);
    SAY(sum(path));
    SAY(close(fd) | close(other) | close(path));
    // Without a name, then with one.
    fd = open(".", O_RDWR | O_TMPFILE, 0600);
    for (int each = 0; each < 6; each++)
        SAY(write(fd, bytes + each, 1500));
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    SAY(linkat(AT_FDCWD, link, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    SAY(write(fd, bytes, 1500));
    SAY(sum_of("named"));
    SAY(close(fd));
    SAY(sum_of("named"));
    // By links, and by a descriptor that is only a place.
    fd = begin("target", 0);
    SAY(symlink("target", "pointer"));
    SAY(sum_of("pointer"));
    SAY(write(fd, bytes, 700));
    path = open("target", O_PATH);
    SAY(fstat(path, &stat));
    SAY(stat.st_size);
    SAY(read(path, bytes, 1));
    SAY(truncate("pointer", 20000));
    SAY(write(fd, bytes, 700));
    SAY(sum(fd));
    SAY(fchmod(fd, 0));
    SAY(write(fd, bytes, 700));
    SAY(fsync(fd) | fchmod(fd, 0644));
    SAY(close(fd) | close(path));
    SAY(sum_of("target"));
}

static void ways(void) {
    int fd = begin("ways", 0), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    loff_t from = 100;
    SAY(copy_file_range(fd, &from, to, NULL, 22000, 0));
    SAY(write(to, bytes, 900));
    from = 20000;
    SAY(sendfile(to, fd, &from, 4000));
    SAY(write(to, bytes, 900));
    SAY(sum(to));
    SAY(write(fd, bytes, 1000));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 20000, 100000));
    SAY(write(fd, bytes, 1000));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 15000, 12000));
    SAY(sum(fd));
    SAY(write(fd, bytes, 1000));
    SAY(fallocate(fd, 0, 0, 40000));
    SAY(pwrite(fd, bytes, 1000, 39500));
    SAY(sum(fd));
    int direct = open("ways", O_RDWR | O_DIRECT);
    if (direct >= 0)
        close(direct);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(write(fd, bytes, 2000));
    char *shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    SAY(memcmp(shared, private, 42000));
    SAY(shared[41000] == bytes[500] && private[39600] == bytes[100]);
    private[41000] = 1;
    shared[41001] = 2;
    SAY(write(fd, bytes, 1000));
    SAY(memcmp(shared + 42500, bytes, 500 - 0));
    SAY(sum(fd));
    SAY(munmap(shared, 1 << 16) | munmap(private, 1 << 16));
    SAY(close(fd) | close(to));
}

// Descriptors that others have as well.
static void others(void) {
    int fd = begin("others", O_APPEND), copy = dup(fd), status;
    for (int each = 0; each < 3; each++) {
        SAY(write(copy, bytes, 333));
        if (fork() == 0) {
            write(fd, "child", 5);
            int own = open("others", O_WRONLY | O_APPEND);
            for (int more = 0; more < 5; more++)
                write(own, "own", 3);
            write(copy, "other", 5);
            _exit(0);
        }
        SAY(wait(&status) > 0 && status == 0);
        SAY(write(fd, bytes, 444));
        SAY(lseek(copy, 0, SEEK_CUR));
    }
    SAY(sum(copy));
    char command[60];
    snprintf(command, sizeof command, "echo told >&%d; wc -c < others", fd);
    SAY(write(fd, bytes, 555));
    fflush(stdout);
    SAY(system(command));
    SAY(close(fd));
    SAY(write(copy, bytes, 555));
    SAY(sum(copy));
    SAY(close(copy));
    SAY(sum_of("others"));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (char)(1 + at * 37 % 250);
    names();
    ways();
    others();
    limits();
    return 0;
}
