// Small programs that once differed on a volume from tmpfs, each by its name: what must hold stands
// at its head. Usage: seen CASE DIRECTORY. Prints what it sees.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Where results go while standard output is a file.
static int results = 1;

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(file, text, strlen(text)) < 0)
        perror(path);
    close(file);
}

static void show(const char *path) {
    char text[2000] = "";
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    dprintf(results, "%s has %zd: %s\n", path, length, text);
}

// A stream that has read ahead, was set inside its buffer and written to: the position that a
// relative seek counts from is behind what was written.
static void relative_seek(void) {
    for (int how = 0; how < 3; how++) {
        put("records", "........................................");
        FILE *file = fopen("records", "r+");
        fpos_t start;
        fgetc(file);
        fseek(file, 6, SEEK_SET);
        fgetpos(file, &start);
        if (how == 1)
            fgetc(file), fsetpos(file, &start);
        fputs("field", file);
        long behind = ftell(file);
        fseek(file, how == 2 ? 0 : 3, SEEK_CUR);
        printf("%ld, then %ld", behind, ftell(file));
        if (how == 2)
            printf(", next %c", fgetc(file));
        else
            fputs("NEXT", file);
        printf(", closed %d\n", fclose(file));
        show("records");
    }
}

// freopen gives the stream that it was given, whatever file systems the two files are on, and a
// program may go on with the old pointer.
static void reopened(void) {
    char outside[] = "/tmp/solera-reopened-XXXXXX";
    close(mkstemp(outside));
    FILE *file = fopen(outside, "w"), *before = file;
    fputs("outside\n", file);
    FILE *given = freopen("inside", "w", file);
    dprintf(results, "%s\n", given == before ? "the same stream" : "another stream");
    fputs("in the directory\n", before);
    dprintf(results, "flush %d, error %d\n", fflush(before), ferror(before));
    show("inside");
    given = freopen(outside, "r", before);
    char line[40] = "";
    dprintf(results, "%s and back: %s", given == before ? "the same" : "another",
            fgets(line, sizeof line, before) ? line : "nothing\n");
    fclose(before);
    unlink(outside);
    int kept = dup(1);
    results = kept;
    given = freopen("output", "w", stdout);
    printf("by printf\n");
    if (system("echo by a child") != 0)
        dprintf(results, "no child\n");
    puts("and again");
    fflush(stdout);
    dprintf(results, "%s\n", given == stdout ? "stdout" : "another");
    show("output");
}

// Streams over the numbers 0, 1 and 2, where a file was put there by dup2, share one position with
// those numbers, with children and with programs that these start.
static void standard_streams(void) {
    results = fcntl(1, F_DUPFD_CLOEXEC, 50);
    for (int how = 0; how < 10; how++) {
        fflush(stdout);
        int file = open("out", O_RDWR | O_CREAT | O_TRUNC | (how >= 8 ? O_APPEND : 0), 0644);
        dup2(file, 1);
        if (how % 2)
            dup2(file, 0);
        close(file);
        printf("first line\n");
        fflush(stdout);
        switch (how / 2) {
        case 0:
            for (int at = 0; at < 4; at++)
                if (write(1, "raw\n", 4) != 4 || printf("by stdio\n") < 0 || fflush(stdout))
                    dprintf(results, "failed\n");
            break;
        case 1:
            dprintf(results, "at %ld\n", (long)lseek(1, 0, SEEK_CUR));
            dprintf(1, "by number\n");
            printf("then stdio\n");
            break;
        case 2:
            if (fork() == 0) {
                printf("in a child\n");
                exit(0);
            }
            wait(NULL);
            printf("after it\n");
            break;
        default:
            printf("before\n");
            fflush(stdout);
            if (system("echo by a program; echo error >&2") < 0 || write(1, "raw\n", 4) != 4)
                dprintf(results, "failed\n");
            printf("behind\n");
        }
        fflush(stdout);
        dprintf(results, "%d ", how);
        show("out");
    }
    put("in", "one\ntwo\nthree\nfour\nfive\nsix\n");
    for (int how = 0; how < 4; how++) {
        int file = open("in", O_RDONLY);
        dup2(file, 0);
        close(file);
        FILE *input = fdopen(dup(0), "r");
        char text[20] = "";
        setvbuf(input, NULL, how & 1 ? _IONBF : _IOFBF, 0);
        dprintf(results, "%s", fgets(text, sizeof text, input) ? text : "nothing\n");
        if (how & 2)
            dprintf(results, "%d %ld\n", fflush(input), (long)lseek(0, 0, SEEK_CUR));
        else
            fclose(input);
        dup2(results, 1);
        if (system("head -n 1; wc -c") != 0)
            dprintf(results, "no child\n");
    }
}

// A stream that reads sees what the same process has appended by a number meanwhile.
static void behind_append(void) {
    char line[40];
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    FILE *file = fopen("log", "r");
    for (int at = 0; at < 8; at++) {
        int length = snprintf(line, sizeof line, "line %d\n", at);
        if (write(log, line, (size_t)length) != length)
            puts("failed");
        clearerr(file);
        fputs(fgets(line, sizeof line, file) ? line : "nothing\n", stdout);
    }
}

static int visited;

static int visit(const char *path, const struct stat *info, int type, struct FTW *where) {
    struct stat near;
    char at[4096];
    visited += type + 1;
    if (stat(path + where->base, &near) != 0 || near.st_ino != info->st_ino)
        printf("%s is not in %s\n", path, getcwd(at, sizeof at));
    return 0;
}

// nftw with FTW_CHDIR: the working directory is that of the object, and is restored at the end.
static void walk(void) {
    char before[4096], after[4096], whole[5000];
    mkdir("tree", 0755), mkdir("tree/a", 0755), mkdir("tree/a/b", 0755);
    put("tree/a/b/file", "x"), put("tree/other", "y");
    printf("%d", nftw("tree", visit, 10, FTW_CHDIR));
    getcwd(before, sizeof before);
    snprintf(whole, sizeof whole, "%s/tree", before);
    printf(" %d", nftw(whole, visit, 2, FTW_CHDIR | FTW_DEPTH | FTW_PHYS));
    printf(" %d %d\n", visited, strcmp(before, getcwd(after, sizeof after)));
}

// getcwd finds a path that is longer than PATH_MAX.
static void long_path(void) {
    char name[60];
    for (int at = 0; at < 150; at++) {
        snprintf(name, sizeof name, "a-directory-with-a-rather-long-name-%d", at);
        if (mkdir(name, 0755) != 0 || chdir(name) != 0)
            printf("%d: %s\n", at, strerrorname_np(errno));
    }
    char *found = getcwd(NULL, 0), short_one[100];
    printf("%d", found ? strlen(found) > 4096 : -errno);
    printf(" %d\n", getcwd(short_one, sizeof short_one) ? 0 : errno);
    free(found);
}

// utimensat without a path is futimens, also by number.
static void no_path(void) {
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    struct stat info = {0};
    int file = open("file", O_RDWR | O_CREAT, 0644);
    printf("%ld", syscall(SYS_utimensat, file, NULL, times, 0));
    fstat(file, &info);
    printf(" %ld %ld\n", (long)info.st_atime, (long)info.st_mtime);
    printf("%d %s\n", utimensat(file, NULL, times, 0), strerrorname_np(errno));
}

// Functions that are looked up in the C library's own handle are the same.
static void own_handle(void) {
    void *library = dlopen("libc.so.6", RTLD_NOW);
    int (*opened)(const char *, int, ...) = dlsym(library, "open");
    int (*allocate)(int, int, off_t, off_t) = dlsym(library, "fallocate");
    int (*reachable)(const char *, int) = dlsym(library, "access");
    DIR *(*directory)(const char *) = dlsym(library, "opendir");
    FILE *(*stream)(const char *, const char *) = dlsym(library, "fopen");
    int file = opened("file", O_RDWR | O_CREAT, 0644);
    printf("%d", file >= 0);
    file = open("file", O_RDWR | O_CREAT, 0644);
    printf(" %d", allocate(file, 0, 0, 4096));
    printf(" %d", reachable("file", R_OK));
    printf(" %d %d\n", directory(".") != NULL, stream("file", "r") != NULL);
}

static volatile sig_atomic_t handled;

static void on_alarm(int number) {
    char line[100];
    FILE *file = fopen("by-handler", "w+");
    fprintf(file, "signal %d\n", number);
    rewind(file);
    handled = fgets(line, sizeof line, file) ? (int)strlen(line) : -1;
    fclose(file);
}

// stdio in a handler on a small alternate stack of 16 KiB, beneath which nothing is mapped.
static void small_stack(void) {
    char *memory = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + (1 << 19), .ss_size = 16384};
    mprotect(stack.ss_sp, stack.ss_size, PROT_READ | PROT_WRITE);
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("%d\n", (int)handled);
    show("by-handler");
}

// Memory that the program maps for itself, beside files: what an allocator in front interposes.
static void memory(void) {
    char *own = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d", own != MAP_FAILED);
    for (int at = 0; at < 200; at++) {
        char *block = malloc((size_t)at * 5000 + 1);
        block[at] = 1;
        free(realloc(block, (size_t)at * 9000 + 1));
    }
    put("file", "mapped");
    int file = open("file", O_RDWR);
    char *shared = mmap(NULL, 6, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared[0] = 'M';
    printf(" %d %d\n", munmap(shared, 6), munmap(own, 1 << 16));
    show("file");
    FILE *stream = fopen("stream", "w");
    for (int at = 0; at < 5000; at++)
        fprintf(stream, "%d\n", at);
    long length = ftell(stream);
    printf("%ld %d\n", length, fclose(stream));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"relative_seek", relative_seek}, {"reopened", reopened},
    {"standard_streams", standard_streams}, {"behind_append", behind_append},
    {"walk", walk}, {"long_path", long_path}, {"no_path", no_path},
    {"own_handle", own_handle}, {"small_stack", small_stack}, {"memory", memory},
};

#ifdef EARLY
static int seen_early;

// Before any constructor, with a C library that has no environment yet.
static void early(int count, char **arguments, char **environment) {
    (void)count, (void)arguments, (void)environment;
    seen_early = access("/", F_OK) == 0;
}

__attribute__((section(".preinit_array"), used)) static void (*before_all)(int, char **,
                                                                           char **) = early;
#endif

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3 || mkdir(argv[2], 0755) != 0 || chdir(argv[2]) != 0)
        return 99;
#ifdef EARLY
    printf("early %d, directory %d\n", seen_early, access(argv[2], F_OK));
#endif
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(cases[at].name, argv[1])) {
            cases[at].run();
            return 0;
        }
    return 98;
}
