// Watches: what inotify tells of a directory, of files and of what is in it, by this process and by
// its children, must be what it tells on a kernel file system.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int watcher;
static char *names[64];
static unsigned cookies[64], cookie_count;

static const struct {
    unsigned bit;
    const char *name;
} bits[] = {
    {IN_ACCESS, "access"}, {IN_MODIFY, "modify"}, {IN_ATTRIB, "attrib"},
    {IN_CLOSE_WRITE, "close_write"}, {IN_CLOSE_NOWRITE, "close_nowrite"}, {IN_OPEN, "open"},
    {IN_MOVED_FROM, "moved_from"}, {IN_MOVED_TO, "moved_to"}, {IN_CREATE, "create"},
    {IN_DELETE, "delete"}, {IN_DELETE_SELF, "delete_self"}, {IN_MOVE_SELF, "move_self"},
    {IN_UNMOUNT, "unmount"}, {IN_Q_OVERFLOW, "overflow"}, {IN_IGNORED, "ignored"},
    {IN_ISDIR, "isdir"},
};

// Prints what has come since the last time.
static void told(const char *what) {
    char buffer[65536] __attribute__((aligned(8)));
    struct pollfd ready = {watcher, POLLIN, 0};
    int bytes = 0;
    ioctl(watcher, FIONREAD, &bytes);
    printf("%s: poll %d, %s\n", what, poll(&ready, 1, 0), bytes ? "bytes" : "nothing");
    ssize_t got;
    while ((got = read(watcher, buffer, sizeof buffer)) > 0) {
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (void *)at;
            printf("  %s:", event->wd < 0 ? "?" : names[event->wd]);
            for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
                if (event->mask & bits[i].bit)
                    printf(" %s", bits[i].name);
            if (event->len)
                printf(" %s", event->name);
            if (event->cookie) {
                unsigned number = 0;
                while (number < cookie_count && cookies[number] != event->cookie)
                    number++;
                if (number == cookie_count && cookie_count < 64)
                    cookies[cookie_count++] = event->cookie;
                printf(" #%u", number);
            }
            puts("");
            at += sizeof *event + event->len;
        }
    }
    if (got < 0 && errno != EAGAIN)
        printf("  read: %s\n", strerror(errno));
}

static void watch(char *path, unsigned mask) {
    int wd = inotify_add_watch(watcher, path, mask);
    if (wd < 0)
        printf("watch %s: %s\n", path, strerror(errno));
    else if (!names[wd])
        names[wd] = path;
    else
        printf("watch %s: as %s\n", path, names[wd]);
}

static void put(const char *path, int flags, const char *text) {
    int fd = open(path, flags, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd))
        printf("%s: %s\n", path, strerror(errno));
}

static void child(void (*act)(void)) {
    fflush(stdout);
    if (!fork()) {
        act();
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

static void changes(void) {
    put("d/by-child", O_CREAT | O_WRONLY, "child");
    rename("d/by-child", "d/renamed");
    unlink("d/renamed");
}

static void holds(void) {
    // Killed with it open: the kernel tells of the end.
    open("d/one", O_WRONLY);
    kill(getpid(), 9);
}

static void executes(void) {
    // What was opened before an exec is closed after it.
    int fd = open("d/one", O_WRONLY | O_APPEND);
    dup2(fd, 1);
    close(fd);
    execlp("echo", "echo", "by an exec", NULL);
}

int main(int count, char **arguments) {
    if (count < 2 || (mkdir(arguments[1], 0755) && errno != EEXIST) || chdir(arguments[1]))
        return 2;
    mkdir("d", 0755);
    mkdir("e", 0755);
    mkdir("d/sub", 0755);
    put("d/before", O_CREAT | O_WRONLY, "before");
    put("alone", O_CREAT | O_WRONLY, "alone");
    int early = open("d/early", O_CREAT | O_RDWR, 0644);
    watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    // ---- what is refused
    watch("nothing", IN_ALL_EVENTS);
    watch("alone", IN_ALL_EVENTS | IN_ONLYDIR);
    watch("alone", 0);
    watch("alone", IN_MASK_ADD | IN_MASK_CREATE | IN_MODIFY);
    watch("alone/x", IN_MODIFY);
    watch("", IN_MODIFY);
    printf("bad: %d %s\n", inotify_add_watch(-1, "d", IN_MODIFY), strerror(errno));
    printf("no watcher: %d %s\n", inotify_add_watch(0, "d", IN_MODIFY), strerror(errno));
    printf("pointer: %d %s\n", inotify_add_watch(watcher, (char *)8, IN_MODIFY), strerror(errno));

    // ---- what was open before the watch, and is asked for alone
    watch("d", IN_MODIFY | IN_CLOSE_WRITE);
    write(early, "early", 5);
    told("open before");
    rename("d/early", "d/late");
    write(early, "late", 4);
    told("under another name");
    close(early);
    told("closed");
    close(watcher);
    watcher = inotify_init1(IN_NONBLOCK);
    names[1] = NULL;

    // ---- all events
    watch("d", IN_ALL_EVENTS);
    watch("d/.", IN_ALL_EVENTS);
    watch("./d", IN_MASK_CREATE | IN_MODIFY);
    told("nothing yet");

    // ---- names
    put("d/one", O_CREAT | O_WRONLY, "one");
    told("made, written, closed");
    put("d/one", O_TRUNC | O_WRONLY, "1");
    told("emptied and written");
    put("d/one", O_APPEND | O_WRONLY, "2");
    told("appended");
    mkdir("d/dir", 0755);
    symlink("one", "d/link");
    mkfifo("d/fifo", 0644);
    told("a directory, a symlink, a fifo");
    link("d/one", "d/two");
    link("d/one", "e/three");
    link("e/three", "d/four");
    told("links");
    rename("d/two", "d/five");
    rename("d/five", "e/five");
    rename("e/five", "d/six");
    told("moved within, out and in");
    put("d/tmp", O_CREAT | O_WRONLY, "new");
    told("made");
    rename("d/tmp", "d/before");
    told("moved over another");
    rename("d/dir", "d/dir2");
    rename("d/dir2", "e/dir");
    rename("e/dir", "d/dir");
    told("a directory moved");
    renameat2(AT_FDCWD, "d/one", AT_FDCWD, "d/sub", RENAME_EXCHANGE);
    told("exchanged within");
    renameat2(AT_FDCWD, "d/one", AT_FDCWD, "d/sub", RENAME_EXCHANGE);
    renameat2(AT_FDCWD, "d/one", AT_FDCWD, "e/three", RENAME_EXCHANGE);
    told("exchanged with one outside");
    rename("d/one", "d/four");
    told("two names of one file");
    unlink("d/link");
    unlink("d/fifo");
    rmdir("d/dir");
    unlink("d/four");
    told("removed");
    printf("%d", mkdir("d/sub", 0755));
    printf("%d", unlink("d/none"));
    printf("%d\n", rename("d/none", "d/some"));
    told("what failed");

    // ---- files
    chmod("d/one", 0600);
    told("mode");
    chown("d/one", getuid(), getgid());
    told("owner");
    struct timespec both[2] = {{1, 0}, {2, 0}}, last[2] = {{0, UTIME_OMIT}, {3, 0}};
    struct timespec first[2] = {{4, 0}, {0, UTIME_OMIT}};
    utimensat(AT_FDCWD, "d/one", both, 0);
    told("times");
    utimensat(AT_FDCWD, "d/one", last, 0);
    told("the second");
    utimensat(AT_FDCWD, "d/one", first, 0);
    told("the first");
    truncate("d/one", 100);
    told("size");
    setxattr("d/one", "user.a", "b", 1, 0);
    removexattr("d/one", "user.a");
    told("attributes");
    int fd = open("d/one", O_RDWR);
    char byte;
    told("opened");
    printf("%zd", pread(fd, &byte, 1, 0));
    told("read");
    printf("%zd", pread(fd, &byte, 1, 1000));
    told("read at the end");
    printf("%zd", pwrite(fd, "x", 1, 0));
    told("written");
    fchmod(fd, 0644);
    ftruncate(fd, 10);
    told("by the number");
    fallocate(fd, 0, 0, 8192);
    told("allocated");
    int other = dup(fd);
    close(fd);
    told("one of two");
    close(other);
    told("the other");
    close(open("d/one", O_PATH));
    told("a path alone");
    struct stat stat_of;
    stat("d/one", &stat_of);
    access("d/one", R_OK);
    told("looked at");
    DIR *list = opendir("d");
    while (readdir(list)) {
    }
    closedir(list);
    told("listed");
    list = opendir("d/sub");
    closedir(list);
    chmod("d/sub", 0700);
    told("a directory in it");
    chmod("d", 0700);
    told("itself");

    // ---- by others
    child(changes);
    told("a child");
    child(holds);
    told("a child that was killed");
    child(executes);
    told("a child that executed");
    system("echo shell > d/by-shell; mv d/by-shell d/sub/; rm d/sub/by-shell");
    told("a shell");

    // ---- files and directories themselves
    watch("alone", IN_ALL_EVENTS);
    watch("d/sub", IN_ALL_EVENTS);
    watch("d/one", IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF);
    put("alone", O_WRONLY | O_APPEND, "a");
    told("a file");
    put("d/one", O_WRONLY | O_APPEND, "a");
    told("a file in a directory");
    rename("alone", "moved");
    told("the file moved");
    rename("moved", "d/moved");
    told("into the directory");
    rename("d/sub", "d/sub2");
    told("the directory moved");
    put("d/sub2/in", O_CREAT | O_WRONLY, "in");
    rename("d/sub2", "e/sub3");
    put("e/sub3/in2", O_CREAT | O_WRONLY, "in");
    told("twice");
    unlink("d/moved");
    told("its name removed");
    link("d/one", "e/one");
    told("linked");
    unlink("d/one");
    told("unlinked");
    unlink("e/one");
    told("for the last time");
    unlink("e/sub3/in");
    unlink("e/sub3/in2");
    rename("e/sub3", "d/sub4");
    rmdir("d/sub4");
    told("the directory removed");

    // ---- flags
    watch("e", IN_CREATE | IN_ONESHOT);
    put("e/x", O_CREAT | O_WRONLY, "x");
    put("e/y", O_CREAT | O_WRONLY, "y");
    told("once");
    symlink("d", "to-d");
    watch("to-d", IN_CREATE | IN_MASK_ADD);
    watch("to-d", IN_ATTRIB | IN_DONT_FOLLOW);
    lchown("to-d", getuid(), getgid());
    told("a symlink itself");
    int all = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(all, EPOLL_CTL_ADD, watcher, &event);
    printf("epoll %d", epoll_wait(all, &event, 1, 0));
    put("d/last", O_CREAT | O_WRONLY, "x");
    printf(" %d\n", epoll_wait(all, &event, 1, 0));
    told("by epoll");
    for (int wd = 1; wd < 64; wd++)
        if (names[wd] && !strcmp(names[wd], "d"))
            printf("removed %d\n", inotify_rm_watch(watcher, wd));
    put("d/unseen", O_CREAT | O_WRONLY, "x");
    told("no more");
    rename("d", "f");
    told("ended");
    return 0;
}
