// usage: watches DIRECTORY: times changes of names, nanoseconds each, in directories that nobody watches,
// that are watched with the events that libuv asks for, that are watched with all events, and in one
// beside those. A line for each.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, TURNS = 7 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void empty(int watcher) {
    char buffer[65536];
    while (read(watcher, buffer, sizeof buffer) > 0) {
    }
}

static void measure(int watcher, const char *where, const char *name) {
    double best = 1e18, best_open = 1e18;
    for (int turn = 0; turn < TURNS; turn++) {
        double begun = now();
        for (int i = 0; i < CALLS; i++) {
            mknod(name, S_IFREG | 0644, 0);
            unlink(name);
        }
        double took = (now() - begun) / CALLS;
        empty(watcher);
        best = took < best ? took : best;
        begun = now();
        for (int i = 0; i < CALLS; i++) {
            close(open(name, O_CREAT | O_WRONLY, 0644));
            unlink(name);
        }
        took = (now() - begun) / CALLS;
        empty(watcher);
        best_open = took < best_open ? took : best_open;
    }
    printf("create, unlink: %s\t%.0f\n", where, best);
    printf("create, close, unlink: %s\t%.0f\n", where, best_open);
}

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1]))
        return perror("directory"), 1;
    mkdir("few", 0755);
    mkdir("all", 0755);
    mkdir("beside", 0755);
    int watcher = inotify_init1(IN_NONBLOCK);
    measure(watcher, "nothing watched", "beside/x");
    unsigned few = IN_ATTRIB | IN_CREATE | IN_MODIFY | IN_DELETE | IN_DELETE_SELF | IN_MOVE | IN_MOVE_SELF;
    if (inotify_add_watch(watcher, "few", few) < 0)
        return perror("watch"), 1;
    measure(watcher, "watched, libuv's events", "few/x");
    measure(watcher, "beside it", "beside/x");
    int file = open("beside/y", O_CREAT | O_RDWR, 0644);
    char block[4096] = {0};
    double begun = now();
    for (int i = 0; i < 10 * CALLS; i++)
        pwrite(file, block, sizeof block, 0);
    printf("pwrite 4 KiB: beside it\t%.0f\n", (now() - begun) / (10 * CALLS));
    if (inotify_add_watch(watcher, "all", IN_ALL_EVENTS) < 0)
        return perror("watch"), 1;
    measure(watcher, "watched, all events", "all/x");
    return 0;
}
