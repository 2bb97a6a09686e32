// RLIMIT_FSIZE: writes go up to it, sizes do not go beyond it, the signal comes, and what is larger
// already may be overwritten and shortened.
#include "say.h"
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

static volatile int signals;

static void count(int signal) {
    signals++;
}

static long size_of(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static void limit(rlim_t bytes) {
    struct rlimit now = {bytes, RLIM_INFINITY};
    SAY(setrlimit(RLIMIT_FSIZE, &now));
}

static void writes(void) {
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    struct iovec parts[2] = {{bytes, 3000}, {bytes, 3000}};
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(pwrite(fd, bytes, 4096, 6000));
    SAY(pwrite(fd, bytes, 1, 8192));
    SAY(pwrite(fd, bytes, 0, 9000));
    SAY(signals);
    SAY(pwritev(fd, parts, 2, 4000));
    SAY(pwritev(fd, parts, 2, 8191));
    SAY(pwritev2(fd, parts, 2, 0, RWF_APPEND));
    SAY(lseek(fd, 8000, SEEK_SET));
    SAY(write(fd, bytes, 4096));
    SAY(write(fd, bytes, 4096));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(size_of("file"));
    SAY(signals);
    close(fd);
    fd = open("file", O_WRONLY | O_APPEND);
    SAY(pwrite(fd, bytes, 1, 0));
    SAY(ftruncate(fd, 8190));
    SAY(write(fd, bytes, 5));
    SAY(write(fd, bytes, 5));
    SAY(signals);
    close(fd);
    SAY(syscall(SYS_write, 0, bytes, 0) >= -1);
}

static void sizes(void) {
    int fd = open("file", O_RDWR);
    SAY(ftruncate(fd, 8192));
    SAY(ftruncate(fd, 8193));
    SAY(truncate("file", 1 << 20));
    SAY(fallocate(fd, 0, 0, 8192));
    SAY(fallocate(fd, 0, 8000, 4096));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 8000, 4096));
    SAY(posix_fallocate(fd, 0, 10000));
    SAY(signals);
    SAY(size_of("file"));
    limit(4096);
    SAY(ftruncate(fd, 8192));
    SAY(ftruncate(fd, 8000));
    SAY(pwrite(fd, "y", 1, 100));
    SAY(pwrite(fd, "y", 1, 5000));
    SAY(signals);
    close(fd);
}

static void copies(void) {
    char bytes[4096] = "";
    limit(RLIM_INFINITY);
    int from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int at = 0; at < 4; at++)
        SAY(write(from, bytes, 4096));
    limit(6000);
    off_t start = 0, end = 2000;
    SAY(copy_file_range(from, &start, to, &end, 16384, 0));
    SAY(copy_file_range(from, &start, to, &end, 16384, 0));
    SAY(end);
    SAY(ftruncate(to, 0));
    start = 0;
    SAY(lseek(to, 5000, SEEK_SET));
    SAY(sendfile(to, from, &start, 1000));
    SAY(sendfile(to, from, &start, 1000));
    int ends[2];
    SAY(pipe(ends));
    SAY(write(ends[1], bytes, 100));
    start = 5950;
    SAY(splice(ends[0], NULL, to, &start, 50, 0));
    SAY(splice(ends[0], NULL, to, &start, 50, 0));
    SAY(size_of("to"));
    SAY(signals);
    close(from);
    close(to);
}

// What has no handler ends the process.
static void dies(void) {
    signal(SIGXFSZ, SIG_DFL);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = open("dead", O_WRONLY | O_CREAT, 0644);
        pwrite(fd, "x", 1, 1 << 20);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    SAY(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("ignored", O_WRONLY | O_CREAT, 0644);
    SAY(pwrite(fd, "x", 1, 1 << 20));
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, old;
    SAY(prlimit(0, RLIMIT_FSIZE, &none, &old));
    SAY(old.rlim_cur);
    SAY(pwrite(fd, "x", 1, 1 << 20));
    SAY(system("(ulimit -f 1; trap '' XFSZ; head -c 3000 /dev/zero > of-a-shell) 2>/dev/null") != 0);
    SAY(size_of("of-a-shell"));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    signal(SIGXFSZ, count);
    limit(8192);
    writes();
    sizes();
    copies();
    dies();
    return 0;
}
