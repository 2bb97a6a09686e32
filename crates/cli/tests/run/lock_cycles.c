// Record locks on files of two volumes, by two processes and by three.
//   circles closed A B [C]: each process locks its file and waits for the next one's; the last one
//     closes a circle, and gets EDEADLK.
//   circles stopped A B: one closes a circle again and again, and is stopped for a while at any moment of
//     that; the other waits on.
//   circles passed A B: a lock is given up before its holder waits in turn: no circle, 200 times.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int files[3];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    kill(0, SIGKILL);
    _exit(1);
}

static int set(int file, int type, int waits) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(files[file], waits ? F_SETLKW : F_SETLK, &lock);
}

static void say(int pipe) {
    if (write(pipe, "x", 1) != 1) fail("write");
}

static void hear(int pipe) {
    char byte;
    if (read(pipe, &byte, 1) != 1) fail("read");
}

// Waits until a process sleeps.
static void asleep(pid_t process) {
    char path[40], line[200], *end;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    do {
        usleep(1000);
        FILE *stat = fopen(path, "r");
        if (!stat || !fgets(line, sizeof line, stat) || !(end = strrchr(line, ')'))) fail(path);
        fclose(stat);
    } while (end[2] != 'S');
}

static void closed(int count) {
    int ready[2], go[2], status;
    pid_t others[3];
    if (pipe(ready) || pipe(go)) fail("pipe");
    // Process n holds file n, and waits for file n + 1.
    for (int n = 1; n < count; n++) {
        if ((others[n] = fork())) continue;
        if (set(n, F_WRLCK, 0)) fail("a free lock");
        say(ready[1]);
        hear(go[0]);
        say(ready[1]);
        if (set((n + 1) % count, F_WRLCK, 1)) fail("a wait that closes nothing");
        _exit(0);
    }
    if (set(0, F_WRLCK, 0)) fail("the first lock");
    for (int n = 1; n < count; n++) hear(ready[0]);
    for (int n = 1; n < count; n++) say(go[1]);
    for (int n = 1; n < count; n++) hear(ready[0]);
    for (int n = 1; n < count; n++) asleep(others[n]);
    if (set(1, F_WRLCK, 1) == 0 || errno != EDEADLK) fail("the wait that closes the circle");
    if (set(0, F_UNLCK, 0)) fail("unlock");
    for (int n = 1; n < count; n++)
        if (wait(&status) < 0 || status) fail("another process");
}

static void stopped(void) {
    int to[2], status;
    pid_t first = getpid(), waits, stops;
    if (pipe(to)) fail("pipe");
    if (set(0, F_WRLCK, 0)) fail("the first lock");
    if (!(waits = fork())) {
        if (set(1, F_WRLCK, 0)) fail("a free lock");
        say(to[1]);
        if (set(0, F_WRLCK, 1)) fail("the wait of the other");
        _exit(0);
    }
    hear(to[0]);
    asleep(waits);
    if (!(stops = fork())) {
        for (int i = 0; i < 30; i++) {
            usleep(700 + 37 * i);
            kill(first, SIGSTOP);
            usleep(45000);
            kill(first, SIGCONT);
        }
        _exit(0);
    }
    while (waitpid(stops, &status, WNOHANG) == 0)
        if (set(1, F_WRLCK, 1) == 0 || errno != EDEADLK) fail("the wait that closes the circle");
    if (set(0, F_UNLCK, 0)) fail("unlock");
    if (wait(&status) < 0 || status) fail("the one that waited");
}

static void passed(void) {
    int to[2], back[2], status;
    if (pipe(to) || pipe(back)) fail("pipe");
    if (fork() == 0) {
        for (int i = 0; i < 200; i++) {
            if (set(1, F_WRLCK, 1)) fail("the second lock");
            say(back[1]);
            if (set(0, F_WRLCK, 1)) fail("the first lock, which was given");
            if (set(0, F_UNLCK, 0) || set(1, F_UNLCK, 0)) fail("unlock");
            say(back[1]);
            hear(to[0]);
        }
        _exit(0);
    }
    for (int i = 0; i < 200; i++) {
        if (set(0, F_WRLCK, 1)) fail("the first lock");
        hear(back[0]);
        usleep(300);
        if (set(0, F_UNLCK, 0)) fail("unlock");
        if (set(1, F_WRLCK, 1)) fail("a wait behind an unlock");
        if (set(1, F_UNLCK, 0)) fail("unlock");
        hear(back[0]);
        say(to[1]);
    }
    if (wait(&status) < 0 || status) fail("the other process");
}

int main(int count, char **arguments) {
    if (count < 4 || count > 5) return 2;
    setpgid(0, 0);
    alarm(30);
    for (int i = 2; i < count; i++)
        if ((files[i - 2] = open(arguments[i], O_RDWR | O_CREAT, 0600)) < 0) fail(arguments[i]);
    if (strcmp(arguments[1], "closed") == 0) closed(count - 2);
    else if (strcmp(arguments[1], "stopped") == 0) stopped();
    else passed();
    puts("as expected");
}
