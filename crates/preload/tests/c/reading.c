// What may be done where everything can be read and nothing changed. First argument: a tree that
// crates/cli/tests/mounts/read_only.rs has made, on a file system that is mounted read-only, or on a volume that the user
// may only read.
#include "say.h"
#include <sys/socket.h>
#include <sys/statvfs.h>

static void changes(void) {
    struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}}, then[2] = {{1, 0}, {1, 0}};
    WORKS(open("file", O_WRONLY));
    WORKS(open("file", O_RDWR));
    WORKS(open("file", O_RDONLY | O_TRUNC));
    WORKS(open("file", O_RDONLY | O_CREAT, 0644));
    WORKS(open("file", O_RDONLY | O_CREAT | O_EXCL, 0644));
    WORKS(open("new", O_RDONLY | O_CREAT, 0644));
    WORKS(open("new", O_WRONLY | O_CREAT | O_EXCL, 0644));
    WORKS(open("new", O_WRONLY));
    WORKS(open("none/new", O_WRONLY | O_CREAT, 0644));
    WORKS(open("directory", O_WRONLY));
    WORKS(open("directory", O_TMPFILE | O_RDWR, 0600));
    WORKS(open("secret", O_RDONLY));
    SAY(mkdir("new", 0755));
    SAY(mkdir("directory", 0755));
    SAY(mkfifo("new", 0644));
    SAY(mknod("new", S_IFREG | 0644, 0));
    SAY(symlink("file", "new"));
    SAY(symlink("file", "link"));
    SAY(link("file", "new"));
    SAY(link("none", "new"));
    SAY(unlink("file"));
    SAY(unlink("none"));
    SAY(unlink("none/none"));
    SAY(rmdir("directory"));
    SAY(rmdir("none"));
    SAY(rmdir("file"));
    SAY(rename("file", "new"));
    SAY(rename("none", "new"));
    SAY(rename("file", "directory/file"));
    SAY(chmod("file", 0600));
    SAY(chmod("none", 0600));
    SAY(chown("file", 5, 5));
    SAY(utimensat(AT_FDCWD, "file", now, 0));
    SAY(utimensat(AT_FDCWD, "file", then, 0));
    SAY(truncate("file", 1));
    SAY(truncate("directory", 1));
    SAY(setxattr("file", "user.name", "value", 5, 0));
    SAY(removexattr("file", "user.name"));
    SAY(access("file", W_OK));
    SAY(access("file", R_OK));
    SAY(access("directory", W_OK));
    SAY(access("fifo", W_OK));
    SAY(access("none", W_OK));
    struct statvfs status;
    SAY(statvfs(".", &status));
    SAY(status.f_flag & ST_RDONLY);
}

static void reads(void) {
    char bytes[64] = "";
    int fd = open("file", O_RDONLY);
    SAY(read(fd, bytes, 10));
    SAY_TEXT(bytes);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(fchmod(fd, 0600));
    SAY(ftruncate(fd, 1));
    SAY(write(fd, "x", 1));
    SAY(fsync(fd));
    SAY(fallocate(fd, 0, 0, 10));
    SAY(futimens(fd, NULL));
    WORKS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    // The page that the file ends in, and what is behind the end in it.
    struct stat status;
    fstat(fd, &status);
    SAY(status.st_size);
    char *map = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    long sum = 0, behind = 0;
    for (long i = 0; i < status.st_size; i++)
        sum += map[i];
    for (long i = status.st_size; i % 4096; i++)
        behind += map[i];
    SAY(sum);
    SAY(behind);
    SAY(mprotect(map, 4096, PROT_READ | PROT_WRITE));
    char *own = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    own[0] = 'x';
    SAY(own[0] - map[0] != 0);
    int holes = open("sparse", O_RDONLY);
    for (int kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++) {
        char *zeros = mmap(NULL, 1 << 20, PROT_READ, kind, holes, 0);
        SAY(zeros[0] + zeros[500000] + zeros[(1 << 20) - 1]);
        SAY(zeros[70000]);
    }
    DIR *list = opendir("directory");
    int count = 0;
    while (readdir(list))
        count++;
    SAY(count);
    SAY(readlink("link", bytes, sizeof bytes));
    SAY(getxattr("file", "user.name", bytes, sizeof bytes));
}

// Position and locks, among processes that come of one another.
static void among_processes(void) {
    int fd = open("file", O_RDONLY), status;
    if (fork() == 0) {
        char bytes[100];
        SAY(read(fd, bytes, 100));
        _exit(0);
    }
    wait(NULL);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(flock(fd, LOCK_EX));
    fflush(NULL);
    if (fork() == 0) {
        int other = open("file", O_RDONLY);
        SAY(flock(other, LOCK_EX | LOCK_NB));
        // The position goes on in another program, and what that reads is seen here.
        dup2(fd, 0);
        execlp("sh", "sh", "-c", "read -r line; echo $line > /dev/null", NULL);
        _exit(9);
    }
    wait(&status);
    SAY(status);
    SAY(lseek(fd, 0, SEEK_CUR));
    int ends[2];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    // A child that is killed leaves nothing locked.
    pid_t child = fork();
    if (child == 0) {
        int other = open("directory/other", O_RDONLY);
        flock(other, LOCK_EX);
        write(ends[1], "l", 1);
        for (;;)
            pause();
    }
    char byte;
    SAY(read(ends[0], &byte, 1));
    int other = open("directory/other", O_RDONLY);
    SAY(flock(other, LOCK_EX | LOCK_NB));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    SAY(flock(other, LOCK_EX));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(chdir(argv[1]));
    changes();
    reads();
    among_processes();
    return 0;
}
