// Calls that move bytes between a file and a pipe or socket, and wait there: signals end the wait at
// once, with the counts and positions of the kernel; a cancelled thread ends.
#include "say.h"
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { PIPE = 65536, FILE_BYTES = 300000 };

static volatile int handled, over;
static pthread_t mover;

static void handler(int signal) {
    (void)signal;
    handled++;
}

static void set(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    handled = 0;
    over = 0;
}

// What the other thread does while the first one waits.
struct other {
    pthread_t thread;
    int fd;
    // Bytes that are in the pipe when the first thread waits.
    int full;
    // After some signals: bytes to take out (or, if negative, to put in).
    int then;
};

static void *disturb(void *argument) {
    struct other *other = argument;
    char bytes[PIPE];
    memset(bytes, 'p', sizeof bytes);
    for (int there = -1; there < other->full; usleep(1000))
        ioctl(other->fd, FIONREAD, &there);
    while (!over && (!other->then || handled < 3)) {
        pthread_kill(mover, SIGUSR1);
        usleep(5000);
    }
    if (other->then > 0)
        for (int left = other->then; left > 0;)
            left -= read(other->fd, bytes, left < PIPE ? left : PIPE);
    if (other->then < 0)
        write(other->fd, bytes, -other->then);
    return NULL;
}

static void start(struct other *other) {
    mover = pthread_self();
    pthread_create(&other->thread, NULL, disturb, other);
}

static void end(struct other *other) {
    over = 1;
    pthread_join(other->thread, NULL);
    SAY(handled > 0);
}

static void sends(int file) {
    int ends[2];
    SAY(pipe(ends));
    struct other other = {.fd = ends[0], .full = PIPE};
    // What there is room for, without waiting.
    char room[PIPE];
    off_t at = 100;
    SAY(sendfile(ends[1], file, &at, FILE_BYTES - 100));
    SAY(at);
    SAY(read(ends[0], room, PIPE));
    SAY(lseek(file, 8192, SEEK_SET));
    SAY(sendfile(ends[1], file, NULL, FILE_BYTES));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(read(ends[0], room, PIPE));
    // Nothing was: the position stays, and the handler's flags decide.
    char bytes[PIPE] = {0};
    SAY(write(ends[1], bytes, PIPE));
    set(0);
    SAY(lseek(file, 10, SEEK_SET));
    start(&other);
    SAY(sendfile(ends[1], file, NULL, 4096));
    end(&other);
    SAY(lseek(file, 0, SEEK_CUR));
    set(SA_RESTART);
    other.then = PIPE;
    start(&other);
    SAY(sendfile(ends[1], file, NULL, 4096));
    end(&other);
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(read(ends[0], bytes, PIPE));
    // Nobody waits, and nothing is lost.
    SAY(write(ends[1], bytes, PIPE));
    SAY(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    SAY(sendfile(ends[1], file, NULL, 4096));
    SAY(lseek(file, 0, SEEK_CUR));
    close(ends[0]);
    close(ends[1]);
}

static void splices(int file) {
    int ends[2];
    char bytes[PIPE] = {0};
    SAY(pipe(ends));
    struct other other = {.fd = ends[0], .full = 0};
    set(0);
    loff_t at = 5;
    start(&other);
    SAY(splice(ends[0], NULL, file, &at, 100, 0));
    end(&other);
    SAY(at);
    set(SA_RESTART);
    other.fd = ends[1];
    other.then = -50;
    start(&other);
    SAY(splice(ends[0], NULL, file, &at, 100, 0));
    end(&other);
    SAY(at);
    // To a full pipe.
    SAY(write(ends[1], bytes, PIPE));
    other = (struct other){.fd = ends[0], .full = PIPE};
    set(0);
    start(&other);
    SAY(splice(file, &at, ends[1], NULL, 100, 0));
    end(&other);
    SAY(at);
    set(SA_RESTART);
    other.then = PIPE;
    start(&other);
    SAY(splice(file, &at, ends[1], NULL, 100, 0));
    end(&other);
    SAY(at);
    SAY(read(ends[0], bytes, PIPE));
    close(ends[0]);
    close(ends[1]);
}

static void sockets(int file) {
    int pair[2], there = 0;
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    set(0);
    // How much it takes differs.
    struct other other = {.fd = pair[1], .full = 20000};
    SAY(lseek(file, 0, SEEK_SET));
    start(&other);
    // In how many pieces depends on when the signals come.
    long total = 0, sent, exact = 1;
    while ((sent = sendfile(pair[0], file, NULL, FILE_BYTES)) > 0 && total < 10000000) {
        total += sent;
        exact &= lseek(file, 0, SEEK_CUR) == sent;
        lseek(file, 0, SEEK_SET);
    }
    SAY(exact);
    SAY(sent);
    SAY(lseek(file, 0, SEEK_CUR));
    end(&other);
    ioctl(pair[1], FIONREAD, &there);
    SAY(total > 0 && there == total);
    close(pair[0]);
    close(pair[1]);
}

struct waiter {
    int file, from, started;
};

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    waiter->started = 1;
    splice(waiter->from, NULL, waiter->file, NULL, 100, 0);
    return NULL;
}

static void cancelled(int file) {
    int ends[2];
    SAY(pipe(ends));
    struct waiter waiter = {file, ends[0], 0};
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, waits, &waiter);
    usleep(20000);
    SAY(pthread_cancel(thread));
    SAY(pthread_join(thread, &result));
    SAY(result == PTHREAD_CANCELED);
}

int main(int argc, char **argv) {
    static char bytes[FILE_BYTES];
    enter(argc, argv);
    memset(bytes, 'f', sizeof bytes);
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SAY(write(file, bytes, sizeof bytes));
    sends(file);
    splices(file);
    sockets(file);
    cancelled(file);
    return 0;
}
