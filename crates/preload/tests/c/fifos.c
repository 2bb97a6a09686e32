// Fifos and device nodes that lie on the file system.
#include "say.h"
#include <sys/sysmacros.h>

static void alarmed(int signal) {
    (void)signal;
}

static void between_processes(void) {
    SAY(mkfifo("fifo", 0640));
    SAY(mkfifo("fifo", 0640));
    SAY(open("fifo", O_WRONLY | O_NONBLOCK));
    SAY(open("fifo", O_RDONLY | O_DIRECTORY));
    SAY(open("fifo", O_RDWR | O_CREAT | O_EXCL, 0600));
    SAY(open("fifo/", O_RDONLY));
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("fifo", O_WRONLY);
        _exit(write(fd, "through the fifo", 16) != 16);
    }
    int fd = open("fifo", O_RDONLY | O_CREAT, 0600), status;
    char text[32] = {0};
    SAY(read(fd, text, sizeof text));
    SAY_TEXT(text);
    SAY(read(fd, text, sizeof text));
    SAY(lseek(fd, 0, SEEK_SET));
    waitpid(pid, &status, 0);
    SAY(status);
    struct stat stat;
    SAY(fstat(fd, &stat));
    SAY(S_ISFIFO(stat.st_mode));
    SAY(close(fd));
    // Renamed and linked it is the same one; unlinked it lives on for who has it open.
    SAY(rename("fifo", "moved"));
    SAY(link("moved", "second"));
    int reader = open("moved", O_RDONLY | O_NONBLOCK);
    int writer = open("second", O_WRONLY | O_NONBLOCK);
    SAY(write(writer, "1", 1));
    SAY(unlink("moved"));
    int third = open("second", O_RDWR);
    SAY(write(third, "2", 1));
    SAY(unlink("second"));
    SAY(write(writer, "3", 1));
    SAY(read(reader, text, sizeof text));
    close(writer);
    close(third);
    SAY(read(reader, text, sizeof text));
    close(reader);
    SAY(lstat("second", &stat));
    // Another one of the same name has its own data.
    SAY(mkfifo("fifo", 0600));
    third = open("fifo", O_RDWR);
    struct pollfd asked = {third, POLLIN | POLLOUT, 0};
    SAY(poll(&asked, 1, 0));
    SAY(asked.revents);
    SAY(close(third));
    third = open("fifo", O_PATH);
    SAY(fstat(third, &stat));
    SAY(S_ISFIFO(stat.st_mode));
    SAY(close(third));
    FILE *stream = fopen("fifo", "r+");
    SAY(fputs("text\n", stream) >= 0);
    SAY(fflush(stream));
    SAY(fgets(text, sizeof text, stream) != NULL);
    SAY_TEXT(text);
    SAY(fclose(stream));
}

static void interrupted(void) {
    struct sigaction action = {.sa_handler = alarmed};
    sigaction(SIGALRM, &action, NULL);
    // Again and again: the first one may come before the wait.
    struct itimerval often = {{0, 100000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    SAY(open("fifo", O_RDONLY));
    setitimer(ITIMER_REAL, &never, NULL);
}

// What a number says of a fifo, and what it changes, is its node's: also of a copy, and in another program.
static void attributes(void) {
    struct stat named, opened;
    struct statx extended;
    SAY(mkfifo("attributes", 0640));
    int fd = open("attributes", O_RDWR | O_NONBLOCK);
    SAY(stat("attributes", &named) | fstat(fd, &opened));
    SAY(named.st_ino == opened.st_ino && named.st_dev == opened.st_dev);
    SAY(opened.st_mode);
    SAY(opened.st_uid == getuid());
    SAY(fstatat(fd, "", &opened, AT_EMPTY_PATH));
    SAY(named.st_ino == opened.st_ino);
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
    SAY(named.st_ino == extended.stx_ino);
    SAY(fchmod(fd, 0604));
    SAY(fchown(fd, -1, -1));
    SAY(futimens(fd, (struct timespec[]){{1, 0}, {2, 0}}));
    SAY(stat("attributes", &named));
    SAY(named.st_mode), SAY(named.st_mtime), SAY(named.st_atime);
    int copy = dup(fd);
    SAY(fstat(copy, &opened));
    SAY(opened.st_mode), SAY(opened.st_ino == named.st_ino);
    char line[200], said[64] = {0};
    snprintf(line, sizeof line, "exec stat -c '%%i %%a %%Y' - <&%d", copy);
    FILE *stream = popen(line, "re");
    fgets(said, sizeof said, stream);
    SAY(pclose(stream));
    unsigned long ino = 0;
    int mode = 0, time = 0;
    SAY(sscanf(said, "%lu %d %d", &ino, &mode, &time));
    SAY(ino == named.st_ino), SAY(mode), SAY(time);
    int ends[2];
    pipe(ends);
    SAY(fstat(ends[0], &opened) | fchmod(ends[0], 0600));
    SAY(opened.st_ino == named.st_ino);
    SAY(rename("attributes", "renamed"));
    SAY(fstat(fd, &opened));
    SAY(opened.st_nlink);
    SAY(unlink("renamed"));
    SAY(fstat(fd, &opened));
    SAY(opened.st_nlink);
    close(fd), close(copy), close(ends[0]), close(ends[1]);
}

static void devices(void) {
    SAY(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
    SAY(mknod("zero", S_IFCHR | 0444, makedev(1, 5)));
    SAY(mknod("nothing", S_IFCHR | 0666, makedev(240, 77)));
    int fd = open("null", O_RDWR);
    char bytes[4] = "abc";
    SAY(write(fd, bytes, 4));
    SAY(read(fd, bytes, 4));
    SAY(close(fd));
    fd = open("zero", O_RDONLY);
    SAY(read(fd, bytes, 4));
    SAY(bytes[0] + bytes[3]);
    SAY(close(fd));
    SAY(open("nothing", O_RDONLY));
    put("null", "into nothing");
    struct stat stat;
    SAY(lstat("null", &stat));
    SAY(stat.st_rdev == makedev(1, 3));
    SAY(mknod("socket", S_IFSOCK | 0600, 0));
    SAY(open("socket", O_RDWR));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    between_processes();
    interrupted();
    attributes();
    if (geteuid() == 0)
        devices();
    return 0;
}
