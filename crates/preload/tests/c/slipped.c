// System calls that slip past the library, on numbers and in directories of the volume:
// each that should fail prints a line if it does not. What succeeds must harm nobody.
#include "raw.h"
#include "say.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

#define FAILS(call, ...) \
    do { \
        if (raw(SYS_##call, __VA_ARGS__) >= 0) \
            printf("%d %s succeeded %s\n", __LINE__, #call, where); \
    } while (0)

static const char *where;
static char byte;

static void on_a_file(int fd) {
    struct flock lock = {.l_type = F_WRLCK};
    FAILS(read, fd, (long)&byte, 1, 0);
    FAILS(pread64, fd, (long)&byte, 1, 0);
    FAILS(write, fd, (long)"x", 1, 0);
    FAILS(pwrite64, fd, (long)"x", 1, 0);
    FAILS(ftruncate, fd, 3, 0, 0);
    FAILS(fallocate, fd, 0, 0, 100);
    FAILS(fcntl, fd, F_SETLK, (long)&lock, 0);
    FAILS(fcntl, fd, F_NOTIFY, DN_CREATE, 0);
    FAILS(fchdir, fd, 0, 0, 0);
}

static void on_a_directory(int fd) {
    FAILS(openat, fd, (long)"new", O_CREAT | O_RDWR, 0644);
    FAILS(openat, fd, (long)"../new", O_CREAT | O_RDWR, 0644);
    FAILS(openat, fd, (long)"..", O_RDONLY, 0);
    FAILS(openat, fd, (long)".", O_RDWR | O_TMPFILE, 0644);
    FAILS(mkdirat, fd, (long)"new", 0755, 0);
    FAILS(mknodat, fd, (long)"new", S_IFIFO | 0644, 0);
    FAILS(symlinkat, (long)"x", fd, (long)"new", 0);
    FAILS(unlinkat, fd, (long)"f", 0, 0);
    FAILS(renameat, fd, (long)"f", fd, (long)"h");
    FAILS(faccessat, fd, (long)"f", F_OK, 0);
    FAILS(fchdir, fd, 0, 0, 0);
}

// Modes are the volume's, whatever was done to what stands behind the numbers.
static void keeps_its_modes(int file, int directory) {
    struct stat info;
    raw(SYS_fchmod, file, 0200, 0, 0);
    raw(SYS_fchmod, directory, 0200, 0, 0);
    if (fstat(file, &info) || (info.st_mode & 07777) != 0640)
        printf("the file's mode has changed %s\n", where);
    if (fstat(directory, &info) || (info.st_mode & 07777) != 0750)
        printf("the directory's mode has changed %s\n", where);
}

static void in_the_working_directory(void) {
    static const char *const names[] = {"new", "./new", "../new", "../../new", "../../../../../new"};
    for (int at = 0; at < 5; at++) {
        FAILS(open, (long)names[at], O_CREAT | O_RDWR, 0644, 0);
        FAILS(mkdir, (long)names[at], 0755, 0, 0);
        FAILS(symlink, (long)"x", (long)names[at], 0, 0);
    }
    FAILS(access, (long)"f", F_OK, 0, 0);
}

// The numbers of an image that was executed, with those that it inherits.
static void inherited(int file, int other, int directory) {
    where = "on what is inherited";
    FAILS(read, file, (long)&byte, 1, 0);
    FAILS(write, file, (long)"x", 1, 0);
    FAILS(ftruncate, file, 3, 0, 0);
    on_a_directory(directory);
    keeps_its_modes(file, directory);
    // Another file's lock is not in the way.
    if (raw(SYS_flock, file, LOCK_EX | LOCK_NB, 0, 0) == 0
        && raw(SYS_flock, other, LOCK_EX | LOCK_NB, 0, 0) != 0)
        printf("a lock is on all files\n");
}

static int goes(int argc, char **argv) {
    static char file_text[16], other_text[16], directory_text[16];
    if (argc > 4) {
        int file = atoi(argv[2]), other = atoi(argv[3]), directory = atoi(argv[4]);
        char text[8] = {0};
        if (pread(file, text, 7, 0) != 4 || strcmp(text, "text"))
            printf("it is not the file: %s\n", text);
        if (faccessat(directory, "g", F_OK, 0))
            printf("it is not the directory\n");
        inherited(file, other, directory);
        // It says who it is all the same.
        raw(SYS_lseek, file, 0x700000001, SEEK_SET, 0);
        raw(SYS_lseek, directory, 5, SEEK_SET, 0);
        if (strcmp(argv[1], "once")) {
            fflush(stdout);
            char *again[] = {argv[0], "once", argv[2], argv[3], argv[4], NULL};
            execv(argv[0], again);
        }
        printf("over\n");
        return 0;
    }
    if (chdir(argv[1]) != 0)
        return 2;
    umask(0);
    mkdir("d", 0750);
    put("f", "text");
    put("d/g", "other");
    chmod("f", 0640);
    int file = open("f", O_RDWR), other = open("d/g", O_RDWR), directory = open("d", O_RDONLY);
    where = "on a number";
    on_a_file(file);
    on_a_file(directory);
    on_a_directory(directory);
    FAILS(getdents64, directory, (long)directory_text, sizeof directory_text, 0);
    FAILS(flock, file, LOCK_EX | LOCK_NB, 0, 0);
    FAILS(flock, directory, LOCK_SH | LOCK_NB, 0, 0);
    keeps_its_modes(file, directory);
    struct pollfd asked = {.fd = file, .events = POLLIN | POLLOUT};
    if (raw(SYS_poll, (long)&asked, 1, 0, 0) != 1 || asked.revents != (POLLIN | POLLOUT))
        printf("the file is not ready: %d\n", asked.revents);
    where = "in the working directory";
    in_the_working_directory();
    for (int at = 0; at < 3; at++)
        if (fcntl((int[]){file, other, directory}[at], F_SETFD, 0))
            printf("the flag stays\n");
    snprintf(file_text, sizeof file_text, "%d", file);
    snprintf(other_text, sizeof other_text, "%d", other);
    snprintf(directory_text, sizeof directory_text, "%d", directory);
    fflush(stdout);
    char *image[] = {argv[0], "twice", file_text, other_text, directory_text, NULL};
    execv(argv[0], image);
    return 3;
}

static int count;
static char **words;

static void *in_thread(void *code) {
    *(int *)code = goes(count, words);
    return NULL;
}

// In a thread that begins behind a filter of system calls, which allows all: only what it calls by the C
// library arrives.
int main(int argc, char **argv) {
    struct sock_filter rule = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &rule};
    pthread_t thread;
    int code = 9;
    count = argc, words = argv;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 8;
    pthread_create(&thread, NULL, in_thread, &code);
    pthread_join(thread, NULL);
    return code;
}
