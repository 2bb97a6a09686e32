// Processes that make, move and remove names in two watched directories are killed in the middle.
// Behind that each name is made and removed once: replayed, the events must lead to what is there,
// and nothing that the dead held keeps anybody waiting.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 12, CHANGERS = 2, ROUNDS = 60 };

static char there[2][NAMES];

static void change(unsigned seed) {
    char from[32], to[32];
    for (;;) {
        seed = seed * 1103515245 + 12345;
        unsigned r = seed >> 8;
        sprintf(from, "%c/%u", "ab"[r & 1], (r >> 2) % NAMES);
        sprintf(to, "%c/%u", "ab"[r >> 1 & 1], (r >> 7) % NAMES);
        switch ((r >> 12) % 4) {
        case 0: close(open(from, O_CREAT | O_WRONLY, 0644)); break;
        case 1: unlink(from); break;
        case 2: rename(from, to); break;
        default: link(from, to);
        }
    }
}

static void replay(int watcher, int a) {
    char buffer[65536] __attribute__((aligned(8)));
    ssize_t got;
    while ((got = read(watcher, buffer, sizeof buffer)) > 0)
        for (char *next = buffer; next < buffer + got;) {
            struct inotify_event *event = (void *)next;
            next += sizeof *event + event->len;
            if (event->mask & IN_Q_OVERFLOW)
                puts("overflow");
            if (event->len)
                there[event->wd != a][atoi(event->name)] = !!(event->mask & (IN_CREATE | IN_MOVED_TO));
        }
}

int main(int count, char **arguments) {
    if (count < 2 || (mkdir(arguments[1], 0755) && errno != EEXIST) || chdir(arguments[1]))
        return 2;
    mkdir("a", 0755);
    mkdir("b", 0755);
    int watcher = inotify_init1(IN_NONBLOCK);
    unsigned mask = IN_CREATE | IN_DELETE | IN_MOVE;
    int a = inotify_add_watch(watcher, "a", mask);
    inotify_add_watch(watcher, "b", mask);
    char name[32];
    fflush(stdout);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t changers[CHANGERS];
        for (unsigned i = 0; i < CHANGERS; i++)
            if (!(changers[i] = fork()))
                change(round * 31 + i * 7919 + 1);
        usleep(300 + round * 37 % 1000);
        for (int i = 0; i < CHANGERS; i++)
            kill(changers[i], SIGKILL);
        for (int i = 0; i < CHANGERS; i++)
            waitpid(changers[i], NULL, 0);
        replay(watcher, a);
    }
    for (int i = 0; i < 2 * NAMES; i++) {
        sprintf(name, "%c/%d", "ab"[i & 1], i / 2);
        close(open(name, O_CREAT | O_WRONLY, 0644));
        unlink(name);
        if (i % 3)
            close(open(name, O_CREAT | O_WRONLY, 0644));
    }
    replay(watcher, a);
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
    return 0;
}
