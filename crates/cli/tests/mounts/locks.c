// One of two programs that use the same files by different faces: it does what it is told on standard
// input, a line each, and answers a number for each (an error as its number, negative).
//
//   lock N      locks file N (0 to 3) whole, and waits for it; where that would never end it gives up
//               what it has
//   unlock N    and unlocks it
//   owner N     the process whose lock stands in the way of locking file N
//   alarms      from now on a signal comes every few milliseconds, to be restarted after; the handler
//               says so on standard error
//   write N     opens file N for writing, and keeps it so
//   close       closes it
//   truncate N  makes file N as long as it is
//   run N       executes file N in a child, and gives its number
//   end         ends the child
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int files[4], writing = -1;
static pid_t child;

static void on_alarm(int number) {
    write(2, "s", 1);
}

static long set(int file, int kind, int command) {
    struct flock all = {.l_type = kind};
    if (fcntl(files[file], command, &all) != 0) {
        return -errno;
    }
    return command == F_GETLK ? (all.l_type == F_UNLCK ? 0 : all.l_pid) : 0;
}

static long lock(int file) {
    long result = set(file, F_WRLCK, F_SETLKW);
    for (int other = 0; result == -EDEADLK && other < 4; other++) {
        set(other, F_UNLCK, F_SETLK);
    }
    return result;
}

static void alarms(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval time = {{0, 5000}, {0, 5000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &time, NULL);
}

static long run(const char *path) {
    int ends[2], failed = 0;
    pipe2(ends, O_CLOEXEC);
    child = fork();
    if (child == 0) {
        execl(path, path, "1000", NULL);
        failed = errno;
        write(ends[1], &failed, sizeof failed);
        _exit(1);
    }
    close(ends[1]);
    read(ends[0], &failed, sizeof failed);
    close(ends[0]);
    if (failed) {
        waitpid(child, NULL, 0);
        child = 0;
        return -failed;
    }
    return child;
}

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1]) != 0) {
        return 1;
    }
    for (int file = 0; file < 4; file++) {
        char name[2] = {'0' + file};
        // A file that another executes cannot be opened for writing, and needs no locks.
        files[file] = open(name, file < 2 ? O_RDWR | O_CREAT : O_RDONLY, 0755);
    }
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        const char *space = strchr(line, ' ');
        int file = space ? atoi(space) & 3 : 0;
        char path[4] = {'.', '/', '0' + file};
        long result = 0;
        struct stat status;
        if (!strncmp(line, "lock", 4)) {
            result = lock(file);
        } else if (!strncmp(line, "unlock", 6)) {
            result = set(file, F_UNLCK, F_SETLK);
        } else if (!strncmp(line, "owner", 5)) {
            result = set(file, F_WRLCK, F_GETLK);
        } else if (!strncmp(line, "alarms", 6)) {
            alarms();
        } else if (!strncmp(line, "write", 5)) {
            writing = open(path, O_WRONLY);
            result = writing < 0 ? -errno : 0;
        } else if (!strncmp(line, "close", 5)) {
            result = close(writing) ? -errno : 0;
        } else if (!strncmp(line, "truncate", 8)) {
            stat(path, &status);
            result = truncate(path, status.st_size) ? -errno : 0;
        } else if (!strncmp(line, "run", 3)) {
            result = run(path);
        } else {
            kill(child, SIGKILL);
            result = waitpid(child, NULL, 0) == child ? 0 : -errno;
        }
        printf("%ld\n", result);
        fflush(stdout);
    }
    return 0;
}
