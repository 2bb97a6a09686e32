// usage: watched_random DIRECTORY SEED: random changes in directories of which some are watched, with some
// of the events, and in files that are watched themselves; each with what inotify tells of it.
#include "say.h"
#include <sys/inotify.h>
#include <sys/xattr.h>

enum { STEPS = 150, DIRECTORIES = 4, NAMES = 5, FILES = 2 };

static unsigned long long state;

static unsigned below(unsigned n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % n;
}

static int watcher;
static char watched[256][32];
static unsigned cookies[1024], cookie_count;

static void told(const char *what, long result) {
    char buffer[65536] __attribute__((aligned(8)));
    fprintf(results, "%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "works");
    ssize_t got;
    while ((got = read(watcher, buffer, sizeof buffer)) > 0)
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (void *)at;
            unsigned number = 0;
            while (event->cookie && number < cookie_count && cookies[number] != event->cookie)
                number++;
            if (event->cookie && number == cookie_count && cookie_count < 1024)
                cookies[cookie_count++] = event->cookie;
            fprintf(results, "    %s %x %s %d\n", watched[event->wd], event->mask, event->len ? event->name : "",
                    event->cookie ? (int)number : -1);
            at += sizeof *event + event->len;
        }
    fflush(results);
}

static void watch(const char *path, unsigned mask) {
    int wd = inotify_add_watch(watcher, path, mask);
    char what[64];
    snprintf(what, sizeof what, "watch %s %x", path, mask);
    if (wd >= 0 && wd < 256 && !watched[wd][0])
        snprintf(watched[wd], sizeof watched[wd], "%s", path);
    told(what, wd);
}

static void pick(char *path) {
    static const char *const directories[DIRECTORIES] = {"a", "b", "c", "a/s"};
    sprintf(path, "%s/%c", directories[below(DIRECTORIES)], 'l' + below(NAMES));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *const all[] = {"a", "b", "c", "a/s"};
    for (int i = 0; i < DIRECTORIES; i++)
        mkdir(all[i], 0755);
    char path[64], other[64], what[256];
    for (int i = 0; i < 6; i++) {
        pick(path);
        put(path, "before");
    }
    watcher = inotify_init1(IN_NONBLOCK);
    for (int i = 0; i < DIRECTORIES; i++)
        if (below(3))
            watch(all[i], below(2) ? IN_ALL_EVENTS : IN_CREATE | IN_DELETE | IN_MOVE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE);
    int files = 0;
    for (int i = 0; i < STEPS; i++) {
        pick(path);
        pick(other);
        long result;
        int fd;
        unsigned kind = below(15);
        switch (kind) {
        case 0:
        case 1:
        case 2: {
            static const int flags[] = {O_CREAT | O_WRONLY, O_CREAT | O_EXCL | O_RDWR, O_RDONLY, O_WRONLY | O_TRUNC,
                                        O_CREAT | O_TRUNC | O_RDWR, O_APPEND | O_WRONLY, O_DIRECTORY, O_PATH};
            int flag = flags[below(8)];
            result = fd = open(path, flag, 0644);
            char bytes[16] = "some bytes";
            unsigned acts = below(8);
            if (fd >= 0 && acts & 1)
                write(fd, bytes, 1 + below(10));
            if (fd >= 0 && acts & 2)
                pread(fd, bytes, 5, below(8));
            if (fd >= 0 && acts & 4)
                ftruncate(fd, below(30));
            if (fd >= 0 && !below(3)) {
                // It is another name's by the time of the close.
                sprintf(other, "%.*s/z", (int)(strrchr(path, '/') - path), path);
                if (!(flag & O_PATH) && access(other, F_OK))
                    rename(path, other);
            }
            if (fd >= 0)
                close(fd);
            sprintf(what, "open %s %x %u", path, flag, acts);
            break;
        }
        case 3: result = unlink(path), sprintf(what, "unlink %s", path); break;
        case 4:
        case 5: result = rename(path, other), sprintf(what, "rename %s %s", path, other); break;
        case 6:
            // Of what is exchanged and watched itself the order differs (docs/watches.md).
            result = renameat2(AT_FDCWD, path, AT_FDCWD, other, below(2) && !files ? RENAME_EXCHANGE : RENAME_NOREPLACE);
            sprintf(what, "renameat2 %s %s", path, other);
            break;
        case 7: result = mkdir(path, 0755), sprintf(what, "mkdir %s", path); break;
        case 8: result = rmdir(path), sprintf(what, "rmdir %s", path); break;
        case 9: result = symlink("none", path), sprintf(what, "symlink %s", path); break;
        case 10: result = chmod(path, 0600 + below(64)), sprintf(what, "chmod %s", path); break;
        case 11: result = truncate(path, below(50)), sprintf(what, "truncate %s", path); break;
        case 12: {
            struct timespec times[2] = {{below(99), below(2) ? UTIME_OMIT : 0}, {below(99), below(2) ? UTIME_OMIT : 0}};
            result = utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
            sprintf(what, "utimensat %s", path);
            break;
        }
        case 13: result = setxattr(path, "user.x", "y", 1, 0), sprintf(what, "setxattr %s", path); break;
        default:
            if (files < FILES && !access(path, F_OK)) {
                files++;
                watch(path, IN_ALL_EVENTS | IN_DONT_FOLLOW);
            }
            continue;
        }
        told(what, result);
    }
    return 0;
}
