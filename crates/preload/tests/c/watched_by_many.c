// Four processes make, move and remove names in two watched directories at once. Replayed in their
// order, the events must lead to what the directories hold at the end: none is lost, none comes out
// of turn, and each move has both its halves.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 12, CHANGERS = 4, CHANGES = 1500 };

static char there[2][NAMES];
static int wrong;

static void change(unsigned seed) {
    char from[32], to[32];
    for (int i = 0; i < CHANGES; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned r = seed >> 8;
        sprintf(from, "%c/%u", "ab"[r & 1], (r >> 2) % NAMES);
        sprintf(to, "%c/%u", "ab"[r >> 1 & 1], (r >> 7) % NAMES);
        switch ((r >> 12) % 6) {
        case 0:
        case 1: close(open(from, O_CREAT | O_WRONLY, 0644)); break;
        case 2: mknod(from, S_IFREG | 0644, 0); break;
        case 3: unlink(from); break;
        case 4: rename(from, to); break;
        default: link(from, to);
        }
    }
    _exit(0);
}

static void replay(struct inotify_event *event, int a) {
    static unsigned cookie;
    static int moved;
    int dir = event->wd != a, name = event->len ? atoi(event->name) : -1;
    char *at = name >= 0 ? &there[dir][name] : NULL;
    if (event->mask & IN_Q_OVERFLOW)
        wrong++, puts("overflow");
    if (cookie && !(event->mask & IN_MOVED_TO))
        wrong++, puts("half a move");
    if (event->mask & IN_CREATE)
        wrong += *at, *at = 1;
    if (event->mask & IN_DELETE)
        wrong += !*at, *at = 0;
    if (event->mask & IN_MOVED_FROM)
        wrong += !*at, *at = 0, cookie = event->cookie, moved = 1;
    if (event->mask & IN_MOVED_TO)
        wrong += !moved || event->cookie != cookie, *at = 1, cookie = 0, moved = 0;
}

int main(int count, char **arguments) {
    if (count < 2 || (mkdir(arguments[1], 0755) && errno != EEXIST) || chdir(arguments[1]))
        return 2;
    mkdir("a", 0755);
    mkdir("b", 0755);
    int watcher = inotify_init1(0);
    unsigned mask = IN_CREATE | IN_DELETE | IN_MOVE;
    int a = inotify_add_watch(watcher, "a", mask);
    inotify_add_watch(watcher, "b", mask);
    int end[2];
    pipe(end);
    fflush(stdout);
    if (!fork()) {
        for (unsigned i = 0; i < CHANGERS; i++)
            if (!fork())
                change(i * 7919 + 1);
        for (int i = 0; i < CHANGERS; i++)
            wait(NULL);
        // The last event of all.
        close(open("a/11", O_CREAT | O_WRONLY, 0644));
        unlink("a/11");
        mkdir("b/99", 0755);
        _exit(0);
    }
    char buffer[65536] __attribute__((aligned(8)));
    for (int ends = 0; !ends;) {
        ssize_t got = read(watcher, buffer, sizeof buffer);
        for (char *next = buffer; next < buffer + got;) {
            struct inotify_event *event = (void *)next;
            next += sizeof *event + event->len;
            if (event->mask & IN_CREATE && event->mask & IN_ISDIR)
                ends = 1;
            else
                replay(event, a);
        }
    }
    wait(NULL);
    rmdir("b/99");
    for (int dir = 0; dir < 2; dir++) {
        DIR *list = opendir(dir ? "b" : "a");
        struct dirent *entry;
        char found[NAMES] = {0};
        while ((entry = readdir(list)))
            if (entry->d_name[0] != '.')
                found[atoi(entry->d_name)] = 1;
        closedir(list);
        printf("%c: %s\n", "ab"[dir], memcmp(found, there[dir], NAMES) ? "others" : "the same");
    }
    printf("%d events that could not be\n", wrong);
    return 0;
}
