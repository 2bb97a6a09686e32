// A call that succeeds leaves `errno` as it was, unless the C library itself changes it: what it does
// for the program along its way does not show. Each line says what `errno` is behind the call.
#include "say.h"
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

// No error has this number.
#define STRANGE 4242
#define CALL(expression) \
    do { \
        errno = STRANGE; \
        long given = (long)(expression); \
        int error = errno; \
        fprintf(results, "%d %s: %s, errno %d\n", __LINE__, #expression, \
                given == -1 ? "FAILED" : "good", error); \
        fflush(results); \
    } while (0)

static int visit(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)path, (void)info, (void)kind, (void)at;
    return 0;
}

static volatile int seen;

static void on_signal(int signal) {
    struct stat info;
    seen = signal + stat("missing", &info);
}

// It says nothing before its maker has.
static volatile int begins;

static void *thread(void *unused) {
    while (!begins)
        usleep(100);
    CALL(mkdir("by-thread", 0700));
    CALL(rmdir("by-thread"));
    return unused;
}

static long touched(volatile char *at, long length) {
    long sum = 0;
    for (long offset = 0; offset < length; offset += 4096)
        sum += at[offset] + (at[offset] = 1);
    return sum;
}

static void numbers(void) {
    char bytes[100] = "";
    struct iovec parts = {bytes, 10};
    struct stat info;
    struct statvfs whole;
    struct flock lock = {.l_type = F_WRLCK};
    int fd, other, ends[2];
    CALL(fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, "some text\nand more\n", 19));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(read(fd, bytes, 10));
    CALL(pread(fd, bytes, 10, 5));
    CALL(readv(fd, &parts, 1));
    CALL(pwrite(fd, "x", 1, 3));
    CALL(fstat(fd, &info));
    CALL(stat("file", &info));
    CALL(lstat("file", &info));
    CALL(access("file", R_OK));
    CALL(fstatvfs(fd, &whole));
    CALL(fcntl(fd, F_GETFL));
    CALL(fcntl(fd, F_OFD_SETLK, &lock));
    CALL(flock(fd, LOCK_EX));
    CALL(fsync(fd));
    CALL(ftruncate(fd, 65536));
    CALL(fchmod(fd, 0600));
    CALL(other = dup(fd));
    CALL(dup2(fd, 50));
    CALL(close(50));
    CALL(close(other));
    CALL(pipe(ends));
    CALL(write(ends[1], "pipe", 4));
    CALL(splice(ends[0], NULL, fd, NULL, 4, 0));
    char *at;
    CALL(at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CALL(touched(at, 65536));
    CALL(msync(at, 65536, MS_SYNC));
    CALL(mprotect(at, 65536, PROT_READ));
    CALL(munmap(at, 65536));
    CALL(close(fd));
}

static void names(void) {
    char path[PATH_MAX];
    struct stat info;
    DIR *directory;
    glob_t found;
    CALL(mkdir("directory", 0755));
    CALL(symlink("file", "link"));
    CALL(readlink("link", path, sizeof path));
    CALL(link("file", "directory/second"));
    CALL(rename("directory/second", "directory/third"));
    CALL(chmod("file", 0644));
    CALL(utimensat(AT_FDCWD, "file", NULL, 0));
    CALL(setxattr("file", "user.name", "value", 5, 0));
    CALL(getxattr("file", "user.name", path, sizeof path));
    CALL(directory = opendir("."));
    // The end, which is no error, is -1 of nothing here.
    CALL(readdir(directory) != NULL);
    CALL(readdir(directory) != NULL);
    CALL(telldir(directory) != -1);
    for (int entry = 0; entry < 10; entry++)
        readdir(directory);
    CALL(readdir(directory) == NULL);
    CALL(closedir(directory));
    CALL(chdir("directory"));
    CALL(getcwd(path, sizeof path) != NULL);
    CALL(chdir(".."));
    CALL(realpath("link", path) != NULL);
    CALL(glob("*", 0, NULL, &found));
    CALL(nftw(".", visit, 5, FTW_PHYS));
    CALL(unlink("link"));
    CALL(unlink("directory/third"));
    CALL(rmdir("directory"));
    CALL(stat("file", &info));
}

static void streams(void) {
    char line[100];
    FILE *file;
    CALL(file = fopen("stream", "w+"));
    CALL(fprintf(file, "%d lines\n%s\n", 2, "of text"));
    CALL(fflush(file));
    CALL(fseek(file, 0, SEEK_SET));
    CALL(fgets(line, sizeof line, file) != NULL);
    CALL(fgetc(file));
    CALL(ftell(file));
    CALL(fflush(NULL));
    CALL(fclose(file));
    CALL(file = fopen("stream", "a"));
    CALL(fputs("more", file));
    CALL(fclose(file));
    CALL(unlink("stream"));
    CALL(file = tmpfile());
    CALL(fclose(file));
}

static void processes(void) {
    int status;
    pid_t pid;
    char *arguments[] = {"true", NULL};
    CALL(pid = fork());
    if (pid == 0)
        _exit(errno == STRANGE ? 0 : 1);
    CALL(waitpid(pid, &status, 0) == pid);
    SAY(status);
    CALL(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ));
    CALL(waitpid(pid, &status, 0) == pid);
    CALL(system("true"));
    pthread_t other;
    CALL(pthread_create(&other, NULL, thread, NULL));
    begins = 1;
    CALL(pthread_join(other, NULL));
    struct sigaction action = {.sa_handler = on_signal};
    CALL(sigaction(SIGUSR1, &action, NULL));
    // The handler's own call fails: that shows, as on any file system.
    CALL(raise(SIGUSR1));
    CALL(umask(022));
    CALL(setuid(getuid()));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    numbers();
    names();
    streams();
    processes();
    // Once more, with nothing that is done for the first time.
    numbers();
    names();
    streams();
    return 0;
}
