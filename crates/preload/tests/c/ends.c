// What runs while its process ends, until the kernel has ended it: handlers on the thread that ends it,
// and other threads. No call of theirs may fail for that. Usage: ends DIRECTORY.
#include "say.h"
#include <pthread.h>

enum { CHILDREN = 300, THREADS = 3 };

static int fd;

static void reads(void) {
    char byte;
    struct stat info;
    if (pread(fd, &byte, 1, 3) != 1 || byte != '3' || stat("file", &info) != 0 || info.st_size != 10)
        _exit(1);
}

static void *goes_on(void *unused) {
    for (;;)
        reads();
    return unused;
}

static void handles(int signal) {
    reads();
}

// How many children end otherwise than with 0.
static int wrong(void (*child)(void)) {
    int count = 0, status;
    for (int each = 0; each < CHILDREN; each++) {
        pid_t pid = fork();
        if (pid == 0) {
            child();
            _exit(0);
        }
        count += waitpid(pid, &status, 0) != pid || status != 0;
    }
    return count;
}

static void with_handlers(void) {
    struct itimerval each = {{0, 20}, {0, 20}};
    signal(SIGALRM, handles);
    setitimer(ITIMER_REAL, &each, NULL);
    reads();
}

static void with_threads(void) {
    pthread_t thread;
    for (int each = 0; each < THREADS; each++)
        if (pthread_create(&thread, NULL, goes_on, NULL) != 0)
            _exit(2);
    reads();
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "0123456789");
    fd = open("file", O_RDONLY);
    SAY(wrong(with_handlers));
    SAY(wrong(with_threads));
    return 0;
}
