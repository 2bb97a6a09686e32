// usage: watcher DIRECTORY NAME: prints what comes, goes and is closed after writing in a directory,
// until NAME has come.
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

static const struct {
    unsigned bit;
    const char *name;
} bits[] = {{IN_CREATE, "create"}, {IN_DELETE, "delete"}, {IN_MOVED_FROM, "moved_from"},
            {IN_MOVED_TO, "moved_to"}, {IN_CLOSE_WRITE, "close_write"}};

int main(int count, char **arguments) {
    int watcher = inotify_init1(0);
    unsigned mask = IN_CREATE | IN_DELETE | IN_MOVE | IN_CLOSE_WRITE;
    if (count < 3 || inotify_add_watch(watcher, arguments[1], mask) < 0)
        return perror("watch"), 1;
    puts("ready");
    fflush(stdout);
    char buffer[65536] __attribute__((aligned(8)));
    for (;;) {
        ssize_t got = read(watcher, buffer, sizeof buffer);
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (void *)at;
            at += sizeof *event + event->len;
            for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
                if (event->mask & bits[i].bit)
                    printf("%s %s\n", bits[i].name, event->name);
            if (event->mask & IN_CREATE && !strcmp(event->name, arguments[2]))
                return 0;
        }
    }
}
