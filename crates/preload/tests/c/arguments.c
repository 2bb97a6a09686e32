// Each system call with a path, a descriptor or a buffer, by its number, with wrong arguments: one wrong
// one beside right ones, then several by chance. The rows come from the table of crate `calls`:
// `number name argument..`, arguments as in its `Argument`, with the number of their `Debug` form behind
// a colon. What each gives is printed; a call that kills says so.
//
// usage: arguments DIRECTORY ROWS SEED CASES-BY-CHANCE
#include "say.h"
#include <sys/socket.h>
#include <sys/syscall.h>

#define PAGE 4096L
#define FILE_BYTES (2 * PAGE)
#define VALUES_MAX 48
#define CASES_MAX 4096
// Where the file is mapped, far from all else.
#define MAPPED ((char *)0x200000000000)

struct value {
    char label[24];
    long value;
};
struct argument {
    char kind[16];
    long number;
    struct value base, bad[VALUES_MAX];
    int count;
};
struct row {
    long number;
    char name[32];
    struct argument arguments[6];
    int count;
};
struct slot {
    int begun, done, error;
    long value;
};
struct one {
    long values[6];
    char labels[6][24];
};

static struct slot *slots;
static struct one cases[CASES_MAX];
static int total;
static const char *place;
static unsigned long chance;
static char *buffer, *readonly, *edge, *structures, long_path[8192], long_name[300];
static struct iovec *lists;
enum { RW = 50, RO, WO, DIRECTORY, PLACE, PIPE_READ, PIPE_WRITE, SOCKET, APPEND, CLOSED = 60, OTHER, FREE = 70 };

static unsigned long below(unsigned long limit) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % limit;
}

static void bad(struct argument *argument, const char *label, long value) {
    struct value *new = &argument->bad[argument->count++];
    snprintf(new->label, sizeof new->label, "%s", label);
    new->value = value;
}

static void base(struct argument *argument, const char *label, long value) {
    snprintf(argument->base.label, sizeof argument->base.label, "%s", label);
    argument->base.value = value;
}

static int is(const struct argument *argument, const char *kind) { return !strcmp(argument->kind, kind); }

// Text that ends with the last byte of a page, with or without its NUL.
static char *at_edge(const char *text, int ends) {
    size_t bytes = strlen(text) + ends;
    char *at = edge + PAGE - bytes;
    memcpy(at, text, bytes);
    return at;
}

static void pointers(struct argument *argument, long bytes, int written) {
    bad(argument, "NULL", 0);
    bad(argument, "unmapped", 0x1000);
    bad(argument, "kernel's", -4096);
    bad(argument, "before a page's end", (long)(edge + PAGE - (bytes > 4 ? 4 : 1)));
    if (written)
        bad(argument, "read-only", (long)readonly);
}

static void bits(struct argument *argument) {
    char label[24];
    base(argument, "0", 0);
    for (int bit = 0; bit < 32; bit++) {
        snprintf(label, sizeof label, "%x", 1u << bit);
        bad(argument, label, 1u << bit);
    }
    bad(argument, "all", 0xffffffff);
}

static void numbers(struct argument *argument, int from, int to) {
    char label[24];
    for (int number = from; number <= to; number++) {
        snprintf(label, sizeof label, "%d", number);
        bad(argument, label, number);
    }
}

// What is right and what is wrong for one argument; `paths`, `fds`: how many came before.
static void prepare(struct row *row, struct argument *argument, int paths, int fds) {
    const char *makers[] = {"mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "creat"};
    int makes = paths > 0;
    for (int at = 0; at < 7; at++)
        makes |= !strcmp(row->name, makers[at]);
    if (is(argument, "Fd") || is(argument, "Dir")) {
        int of_directory = is(argument, "Dir") || strstr(row->name, "getdents") || !strcmp(row->name, "fchdir");
        if (of_directory)
            base(argument, "directory", DIRECTORY);
        else if (fds && !strncmp(row->name, "dup", 3))
            base(argument, "free", FREE);
        else if (fds && !strcmp(row->name, "tee") || !strcmp(row->name, "vmsplice"))
            base(argument, "pipe, writes", PIPE_WRITE);
        else if (!fds && (!strcmp(row->name, "tee") || !strcmp(row->name, "splice")))
            base(argument, "pipe, reads", PIPE_READ);
        else
            base(argument, fds ? "other" : "file", fds ? OTHER : RW);
        bad(argument, "-1", -1);
        bad(argument, "closed", CLOSED);
        bad(argument, "AT_FDCWD", AT_FDCWD);
        bad(argument, "huge", 1 << 30);
        bad(argument, "file", RW);
        bad(argument, "directory", DIRECTORY);
        bad(argument, "O_PATH", PLACE);
        bad(argument, "pipe, reads", PIPE_READ);
        bad(argument, "pipe, writes", PIPE_WRITE);
        bad(argument, "reads only", RO);
        bad(argument, "writes only", WO);
        bad(argument, "appends", APPEND);
        bad(argument, "socket", SOCKET);
        bad(argument, "upper half", 0x5a5a5a5a00000000 | RW);
    } else if (is(argument, "Path")) {
        const char *named = !strcmp(row->name, "rmdir") ? "empty" : strstr(row->name, "readlink") ? "link" : "file";
        base(argument, makes ? "made" : named, (long)(makes ? "made" : named));
        pointers(argument, 1, 0);
        bad(argument, "without an end", (long)at_edge("file", 0));
        bad(argument, "empty text", (long)"");
        bad(argument, "missing", (long)"missing");
        bad(argument, "below missing", (long)"missing/name");
        bad(argument, "through a file", (long)"file/inside");
        bad(argument, "file/", (long)"file/");
        bad(argument, "file/.", (long)"file/.");
        bad(argument, "dir", (long)"dir");
        bad(argument, "dir/", (long)"dir/");
        bad(argument, "dir/.", (long)"dir/.");
        bad(argument, "inside", (long)"dir/inside");
        bad(argument, ".", (long)".");
        bad(argument, "link", (long)"link");
        bad(argument, "link/", (long)"link/");
        bad(argument, "loop", (long)"loop");
        bad(argument, "dangling", (long)"dangling");
        bad(argument, "long path", (long)long_path);
        bad(argument, "long name", (long)long_name);
    } else if (is(argument, "Text")) {
        base(argument, "user.name", (long)"user.name");
        pointers(argument, 1, 0);
        bad(argument, "without an end", (long)at_edge("user.nam", 0));
        bad(argument, "empty text", (long)"");
        bad(argument, "other name", (long)"user.other");
        bad(argument, "no class", (long)"name");
        bad(argument, "class alone", (long)"user.");
        bad(argument, "trusted.name", (long)"trusted.name");
        bad(argument, "system.name", (long)"system.name");
        bad(argument, "long name", (long)long_name);
    } else if (is(argument, "In") || is(argument, "Out")) {
        base(argument, "buffer", (long)buffer);
        pointers(argument, 16, is(argument, "Out"));
    } else if (is(argument, "ListIn") || is(argument, "ListOut")) {
        base(argument, "list", (long)lists);
        pointers(argument, 16, 0);
        bad(argument, "piece, NULL", (long)(lists + 16));
        bad(argument, "piece, unmapped", (long)(lists + 32));
        bad(argument, "piece, page's end", (long)(lists + 48));
        bad(argument, "piece, negative", (long)(lists + 64));
        bad(argument, "piece, huge", (long)(lists + 80));
        bad(argument, "piece, empty", (long)(lists + 96));
        bad(argument, "second one, NULL", (long)(lists + 112));
        bad(argument, "list, read-only piece", (long)(lists + 128));
    } else if (is(argument, "Reads") || is(argument, "Writes") || is(argument, "Updates")) {
        int of_pipe = !strcmp(row->name, "splice") && fds == 1;
        base(argument, of_pipe ? "NULL" : "structure", of_pipe ? 0 : (long)structures);
        bad(argument, "a structure", (long)structures);
        pointers(argument, argument->number, !is(argument, "Reads"));
        bad(argument, "of -1", (long)(structures + 1024));
        bad(argument, "odd", (long)(structures + 1));
    } else if (is(argument, "Pointer") || is(argument, "Texts")) {
        base(argument, "structure", (long)structures);
        pointers(argument, 16, 0);
    } else if (is(argument, "Address")) {
        base(argument, "mapped", (long)MAPPED);
        bad(argument, "0", 0);
        bad(argument, "odd", (long)MAPPED + 1);
        bad(argument, "second page", (long)MAPPED + PAGE);
        bad(argument, "before", (long)MAPPED - PAGE);
        bad(argument, "behind", (long)MAPPED + 4 * PAGE);
        bad(argument, "kernel's", -4096);
    } else if (is(argument, "Len")) {
        int of_list = row->arguments[1].kind[0] == 'L';
        base(argument, of_list ? "1" : "16", of_list ? 1 : 16);
        bad(argument, "0", 0);
        bad(argument, of_list ? "2" : "1", of_list ? 2 : 1);
        bad(argument, of_list ? "1024" : "4096", of_list ? 16 : 4096);
        bad(argument, "1025", 1025);
        bad(argument, "24", 24);
        bad(argument, "8", 8);
        if (!strcmp(row->name, "openat2"))
            base(argument, "24", 24);
        bad(argument, "5000", 5000);
        bad(argument, "negative", -1);
        bad(argument, "2^31", 1L << 31);
        bad(argument, "2^31 - 1", (1L << 31) - 1);
        bad(argument, "2^32 + 1", (1L << 32) + 1);
        bad(argument, "2^63 - 1", LONG_MAX);
    } else if (is(argument, "Offset")) {
        base(argument, "0", 0);
        bad(argument, "1", 1);
        bad(argument, "4096", 4096);
        bad(argument, "the end", FILE_BYTES);
        bad(argument, "-1", -1);
        bad(argument, "2^40", 1L << 40);
        bad(argument, "2^63 - 1", LONG_MAX);
        bad(argument, "-2^63", LONG_MIN);
    } else if (is(argument, "Mode")) {
        base(argument, "644", 0644);
        bad(argument, "0", 0);
        bad(argument, "7777", 07777);
        bad(argument, "regular", S_IFREG | 0600);
        bad(argument, "directory", S_IFDIR | 0700);
        bad(argument, "type of none", 0170644);
        bad(argument, "all", 0xffffffff);
    } else if (is(argument, "Flags") || is(argument, "AnyFlags")) {
        bits(argument);
        if (!strcmp(row->name, "mmap") && argument->bad[3].value == 8 && !is(argument, "Flags"))
            base(argument, "shared", MAP_SHARED);
        if (!strcmp(row->name, "mmap") && is(argument, "Flags"))
            base(argument, "reads", PROT_READ);
    } else {
        base(argument, "0", 0);
        bad(argument, "-1", -1);
        numbers(argument, 1, 16);
        bad(argument, "2^31", 1L << 31);
        bad(argument, "2^31 - 1", (1L << 31) - 1);
        if (!strcmp(row->name, "fcntl"))
            numbers(argument, 1024, 1042);
    }
}

static void put_there(int to, const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd != to) {
        dup2(fd, to);
        close(fd);
    }
}

// Everything as it was, whatever the call before has done.
static void restore(void) {
    int ends[2];
    chdir(place);
    umask(022);
    chmod(".", 0755);
    const char *within[] = {"made/inside", "made/file", "missing/inside", "missing/file"};
    for (int at = 0; at < 4; at++)
        unlink(within[at]);
    unlink("made");
    rmdir("made");
    unlink("missing");
    rmdir("missing");
    rename("dir/file", "file");
    struct stat st;
    if (lstat("file", &st) || !S_ISREG(st.st_mode)) {
        rmdir("file");
        unlink("file");
    }
    chmod("file", 0644);
    put_there(RW, "file", O_RDWR | O_CREAT);
    if (fstat(RW, &st) == 0 && (st.st_size != FILE_BYTES || st.st_nlink != 1)) {
        ftruncate(RW, 0);
        pwrite(RW, structures + 2048, FILE_BYTES, 0);
    } else
        pwrite(RW, structures + 2048, 64, 0);
    if (lstat("dir", &st) || !S_ISDIR(st.st_mode))
        unlink("dir"), mkdir("dir", 0755);
    chmod("dir", 0755);
    mkdir("empty", 0755);
    put_there(OTHER, "dir/inside", O_RDWR | O_CREAT);
    ftruncate(OTHER, 100);
    if (lstat("link", &st) || !S_ISLNK(st.st_mode))
        unlink("link"), symlink("file", "link");
    if (lstat("loop", &st) || !S_ISLNK(st.st_mode))
        unlink("loop"), symlink("loop", "loop");
    if (lstat("dangling", &st) || !S_ISLNK(st.st_mode))
        unlink("dangling"), symlink("missing", "dangling");
    fsetxattr(RW, "user.name", "value", 5, 0);
    const char *others[] = {".", "dir", "dir/inside", "empty"};
    for (int at = 0; at < 4; at++) {
        removexattr(others[at], "user.name");
        removexattr(others[at], "user.other");
        removexattr(others[at], "trusted.name");
    }
    fremovexattr(RW, "user.other");
    fremovexattr(RW, "trusted.name");
    put_there(RO, "file", O_RDONLY);
    put_there(WO, "file", O_WRONLY);
    put_there(APPEND, "file", O_RDWR | O_APPEND);
    put_there(DIRECTORY, ".", O_RDONLY | O_DIRECTORY);
    put_there(PLACE, "file", O_PATH);
    // One of its own: a device, or what else others have, would keep what is changed.
    int socket_of_own = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    dup2(socket_of_own, SOCKET);
    close(socket_of_own);
    pipe2(ends, O_NONBLOCK);
    dup2(ends[0], PIPE_READ);
    dup2(ends[1], PIPE_WRITE);
    close(ends[0]);
    close(ends[1]);
    write(PIPE_WRITE, "piped", 5);
    close(CLOSED);
    close(FREE);
    mmap(MAPPED, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    munmap(MAPPED, 4 * PAGE);
    mmap(MAPPED, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, RW, 0);
    memset(structures, 0, 1024);
    memset(structures + 1024, 0xff, 1024);
    memcpy(buffer, "bytes of the buffer", 20);
    memcpy(edge + PAGE - 8, "user.nam", 8);
}

static void none(int signal) { (void)signal; }

// Makes the cases from `from` on; in a child.
static void make(const struct row *row, int from) {
    struct sigaction action = {.sa_handler = none};
    sigaction(SIGALRM, &action, NULL);
    for (int at = from; at < total; at++) {
        restore();
        // Text before a page's end is where this case wants it.
        for (int index = 0; index < row->count; index++)
            if (row->arguments[index].kind[0] == 'P' && cases[at].values[index] == (long)(edge + PAGE - 4))
                memcpy(edge + PAGE - 4, "file", 4);
        long *v = cases[at].values;
        struct itimerval timer = {{0, 0}, {0, 300000}}, nothing = {0};
        slots[at].begun = 1;
        setitimer(ITIMER_REAL, &timer, NULL);
        errno = 0;
        long value = syscall(row->number, v[0], v[1], v[2], v[3], v[4], v[5]);
        slots[at].error = errno;
        setitimer(ITIMER_REAL, &nothing, NULL);
        slots[at].value = value;
        slots[at].done = 1;
    }
}

static void add(const struct row *row, const int *wrong) {
    if (total == CASES_MAX)
        return;
    struct one *new = &cases[total++];
    memset(new, 0, sizeof *new);
    for (int at = 0; at < row->count; at++) {
        const struct argument *argument = &row->arguments[at];
        const struct value *value = wrong[at] < 0 ? &argument->base : &argument->bad[wrong[at]];
        new->values[at] = value->value;
        memcpy(new->labels[at], value->label, sizeof value->label);
    }
}

static void tell(const struct row *row, int at) {
    fprintf(results, "%s(", row->name);
    for (int index = 0; index < row->count; index++)
        fprintf(results, "%s%s", index ? ", " : "", cases[at].labels[index]);
    const struct slot *slot = &slots[at];
    if (!slot->done)
        fprintf(results, "): killed\n");
    else if (slot->value == -1)
        fprintf(results, "): %s\n", strerrorname_np(slot->error));
    else if (slot->value > 1L << 32 || !strcmp(row->name, "getcwd"))
        fprintf(results, "): works\n");
    else
        fprintf(results, "): %ld\n", slot->value);
}

static void test(struct row *row, int by_chance) {
    int paths = 0, fds = 0, wrong[6] = {-1, -1, -1, -1, -1, -1};
    for (int at = 0; at < row->count; at++) {
        prepare(row, &row->arguments[at], paths, fds);
        paths += is(&row->arguments[at], "Path");
        fds += is(&row->arguments[at], "Fd");
    }
    total = 0;
    add(row, wrong);
    for (int at = 0; at < row->count; at++) {
        for (int value = 0; value < row->arguments[at].count; value++) {
            wrong[at] = value;
            add(row, wrong);
        }
        wrong[at] = -1;
    }
    for (int times = 0; times < by_chance; times++) {
        for (int at = 0; at < row->count; at++)
            wrong[at] = below(2) && row->arguments[at].count ? (int)below(row->arguments[at].count) : -1;
        add(row, wrong);
    }
    memset(slots, 0, CASES_MAX * sizeof *slots);
    for (int from = 0; from < total;) {
        fflush(results);
        pid_t child = fork();
        if (child == 0) {
            make(row, from);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        while (from < total && slots[from].done)
            from++;
        // The one that killed it, or before which it died.
        from++;
    }
    for (int at = 0; at < total; at++)
        tell(row, at);
}

static char *pages(int count, int protection) {
    char *at = mmap(NULL, (count + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + PAGE, count * PAGE, protection);
    return at + PAGE;
}

int main(int argc, char **argv) {
    FILE *rows = fopen(argv[2], "r");
    enter(argc, argv);
    place = argv[1];
    slots = mmap(NULL, CASES_MAX * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    buffer = pages(16, PROT_READ | PROT_WRITE);
    readonly = pages(1, PROT_READ);
    edge = pages(1, PROT_READ | PROT_WRITE);
    structures = pages(4, PROT_READ | PROT_WRITE);
    lists = (struct iovec *)pages(1, PROT_READ | PROT_WRITE);
    struct iovec right = {buffer, 16};
    for (int at = 0; at < 256; at++)
        lists[at] = right;
    lists[16].iov_base = NULL;
    lists[32].iov_base = (void *)0x1000;
    lists[48].iov_base = edge + PAGE - 4;
    lists[64].iov_len = -1;
    lists[80].iov_len = LONG_MAX;
    lists[96].iov_len = 0;
    lists[113].iov_base = NULL;
    lists[128].iov_base = readonly;
    memset(long_path, 'p', sizeof long_path - 1);
    for (size_t at = 100; at < sizeof long_path - 1; at += 100)
        long_path[at] = '/';
    memset(long_name, 'n', 256);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGIO, SIG_IGN);
    chance = strtoul(argv[3], NULL, 10);
    chance = chance * 2654435761 + 1;
    char line[512];
    while (fgets(line, sizeof line, rows)) {
        struct row *row = calloc(1, sizeof *row);
        char *word = strtok(line, " \n");
        row->number = atol(word);
        snprintf(row->name, sizeof row->name, "%s", strtok(NULL, " \n"));
        while ((word = strtok(NULL, " \n"))) {
            struct argument *argument = &row->arguments[row->count++];
            char *colon = strchr(word, ':');
            if (colon) {
                *colon = 0;
                argument->number = atol(colon + 1);
            }
            snprintf(argument->kind, sizeof argument->kind, "%s", word);
        }
        test(row, atoi(argv[4]));
        free(row);
    }
    return 0;
}
