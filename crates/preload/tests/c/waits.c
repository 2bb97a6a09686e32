// Locks that are waited for: who gets them, circles, threads, and who is not inherited.
#include "say.h"
#include <pthread.h>

static struct flock range(int type, long start, long len) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

static int lock(int fd, int command, int type, long start, long len) {
    struct flock wanted = range(type, start, len);
    return fcntl(fd, command, &wanted);
}

static int pipes[2][2];

static void tell(int which) {
    write(pipes[which][1], "x", 1);
}

static void hear(int which) {
    char byte;
    read(pipes[which][0], &byte, 1);
}

// Two processes that lock in opposite order: one of them is told of the circle, the other goes on.
static void circle(void) {
    int fd = open("circle", O_RDWR | O_CREAT, 0600);
    SAY(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    int pid = fork();
    if (pid == 0) {
        lock(fd, F_SETLK, F_WRLCK, 1, 1);
        tell(0);
        int result = lock(fd, F_SETLKW, F_WRLCK, 0, 1);
        int error = errno;
        lock(fd, F_SETLK, F_UNLCK, 0, 0);
        _exit(result == 0 ? 0 : error == EDEADLK ? 1 : 2);
    }
    hear(0);
    int result = lock(fd, F_SETLKW, F_WRLCK, 1, 1);
    int own = result == 0 ? 0 : errno == EDEADLK ? 1 : 2;
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    int status;
    waitpid(pid, &status, 0);
    // Who closes the circle depends on who came first; that there is one who does, not.
    SAY(own + WEXITSTATUS(status));
    close(fd);
}

// A circle of descriptions is nobody's concern; here it is broken by an end.
static void no_circle(void) {
    int a = open("ofd", O_RDWR | O_CREAT, 0600), b = open("ofd", O_RDWR);
    SAY(lock(a, F_OFD_SETLK, F_WRLCK, 0, 1));
    SAY(lock(b, F_OFD_SETLK, F_WRLCK, 1, 1));
    SAY(lock(b, F_OFD_SETLK, F_WRLCK, 0, 1));
    SAY(lock(a, F_SETLK, F_WRLCK, 0, 1));
    int pid = fork();
    if (pid == 0) {
        tell(0);
        _exit(lock(a, F_OFD_SETLKW, F_WRLCK, 1, 1) != 0);
    }
    hear(0);
    usleep(20000);
    SAY(lock(b, F_OFD_SETLK, F_UNLCK, 1, 1));
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    // It locked for both, who share the description.
    SAY(lock(b, F_OFD_SETLK, F_RDLCK, 1, 1));
    SAY(close(a));
    SAY(lock(b, F_OFD_SETLK, F_RDLCK, 1, 1));
    close(b);
}

static int shared_fd;

static void *waits(void *given) {
    long result = lock(shared_fd, F_SETLKW, F_WRLCK, (long)given, 1);
    return (void *)(result == 0 ? 0L : (long)errno);
}

// Threads of a process share its locks, and each waits for itself.
static void threads(void) {
    shared_fd = open("threads", O_RDWR | O_CREAT, 0600);
    int pid = fork();
    if (pid == 0) {
        lock(shared_fd, F_SETLK, F_WRLCK, 0, 10);
        tell(0);
        hear(1);
        lock(shared_fd, F_SETLK, F_UNLCK, 3, 1);
        hear(1);
        _exit(0);
    }
    hear(0);
    pthread_t two[2];
    pthread_create(&two[0], NULL, waits, (void *)3);
    pthread_create(&two[1], NULL, waits, (void *)4);
    usleep(20000);
    tell(1);
    void *result;
    pthread_join(two[0], &result);
    SAY((long)result);
    SAY(lock(shared_fd, F_SETLK, F_WRLCK, 3, 1));
    SAY(lock(shared_fd, F_SETLK, F_WRLCK, 4, 1));
    tell(1);
    waitpid(pid, NULL, 0);
    pthread_join(two[1], &result);
    SAY((long)result);
    close(shared_fd);
}

static void killed(void) {
    int fd = open("killed", O_RDWR | O_CREAT, 0600);
    for (int kind = 0; kind < 3; kind++) {
        int pid = fork();
        if (pid == 0) {
            int own = open("killed", O_RDWR);
            if (kind == 0)
                lock(own, F_SETLK, F_WRLCK, 0, 0);
            else if (kind == 1)
                lock(own, F_OFD_SETLK, F_WRLCK, 0, 0);
            else
                flock(own, LOCK_EX);
            tell(0);
            pause();
        }
        hear(0);
        SAY(kind == 2 ? flock(fd, LOCK_EX | LOCK_NB) : lock(fd, F_SETLK, F_RDLCK, 5, 1));
        struct flock held = range(F_RDLCK, 5, 1);
        SAY(fcntl(fd, F_GETLK, &held));
        SAY(held.l_type);
        SAY(held.l_pid == pid ? 1 : held.l_pid == -1 ? 2 : held.l_pid == 0 ? 0 : 3);
        if (fork() == 0) {
            usleep(20000);
            kill(pid, SIGKILL);
            _exit(0);
        }
        // Waits for one that dies.
        SAY(kind == 2 ? flock(fd, LOCK_EX) : lock(fd, F_SETLKW, F_RDLCK, 5, 1));
        while (wait(NULL) > 0) {
        }
        SAY(lock(fd, F_SETLK, F_UNLCK, 0, 0));
        SAY(flock(fd, LOCK_UN));
    }
    close(fd);
}

static void inherited(void) {
    int fd = open("inherited", O_RDWR | O_CREAT, 0600);
    SAY(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    SAY(flock(fd, LOCK_EX));
    int pid = fork();
    if (pid == 0) {
        int own = open("inherited", O_RDWR);
        SAY(lock(fd, F_SETLK, F_RDLCK, 0, 1));
        SAY(flock(own, LOCK_SH | LOCK_NB));
        SAY(flock(fd, LOCK_SH | LOCK_NB));
        SAY(flock(own, LOCK_SH | LOCK_NB));
        // Closing drops nothing of the parent's.
        close(fd), close(own);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    pid = fork();
    if (pid == 0) {
        int own = open("inherited", O_RDWR);
        SAY(lock(own, F_SETLK, F_RDLCK, 0, 1));
        SAY(flock(own, LOCK_EX | LOCK_NB));
        SAY(flock(own, LOCK_SH | LOCK_NB));
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    // A path is no opening.
    int path = open("inherited", O_PATH);
    SAY(lock(path, F_SETLK, F_UNLCK, 0, 1));
    SAY(flock(path, LOCK_UN));
    struct flock asked = range(F_RDLCK, 0, 1);
    SAY(fcntl(path, F_GETLK, &asked));
    close(path);
    if (fork() == 0) {
        SAY(lock(fd, F_SETLK, F_RDLCK, 0, 1));
        _exit(0);
    }
    wait(NULL);
    close(open("inherited", O_RDONLY));
    if (fork() == 0) {
        SAY(lock(fd, F_SETLK, F_RDLCK, 0, 1));
        _exit(0);
    }
    wait(NULL);
    close(fd);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    pipe(pipes[0]), pipe(pipes[1]);
    circle();
    no_circle();
    threads();
    killed();
    inherited();
    return 0;
}
