// Runs a script of operations on the C library, one a line, and says what each gave; at the end,
// what the directory has. The same script must give the same on every file system.
//
// Usage: stdio DIRECTORY SCRIPT. Without SCRIPT it says what the directory has. Either way it
// removes that. An operation whose stream or number is not open says so and does nothing, so that
// a script without some of its lines is a script. `fork HOW` gives the lines up to `end` to a
// child, which ends by `exit` or `_exit`. The script itself runs in a child, so that its end, or
// the signal that killed it, is seen, too. What is undefined in C is left out: bytes of a wide
// stream, a stream after a failed freopen, a byte pushed back to a stream that is written to.
#include "operations.h"
#include "streams.h"
#include "names.h"
#include "children.h"

#define OPERATION(name) {#name, do_##name}

static const struct {
    const char *name;
    void (*run)(void);
} operations[] = {
    OPERATION(fopen), OPERATION(fdopen), OPERATION(freopen), OPERATION(fclose), OPERATION(fread),
    OPERATION(fwrite), OPERATION(fputs), OPERATION(fgetc), OPERATION(fputc), OPERATION(ungetc),
    OPERATION(fgets), OPERATION(getline), OPERATION(fseek), OPERATION(fseeko), OPERATION(ftell),
    OPERATION(rewind), OPERATION(fgetpos), OPERATION(fsetpos), OPERATION(setvbuf),
    OPERATION(fflush), OPERATION(state), OPERATION(clearerr), OPERATION(fpurge), OPERATION(fprintf),
    OPERATION(fscanf), OPERATION(fwide), OPERATION(fgetwc), OPERATION(fputwc), OPERATION(ungetwc),
    OPERATION(fputws), OPERATION(fgetws), OPERATION(fwprintf), OPERATION(fwscanf),
    OPERATION(setlocale), OPERATION(standard), OPERATION(raw_read), OPERATION(raw_write),
    OPERATION(raw_seek), OPERATION(ftruncate), OPERATION(fstat), OPERATION(tty), OPERATION(lockf),
    OPERATION(aio), OPERATION(dup), OPERATION(open), OPERATION(close), OPERATION(dup2),
    OPERATION(write), OPERATION(read), OPERATION(lseek), OPERATION(sendfile), OPERATION(truncate),
    OPERATION(rename), OPERATION(unlink), OPERATION(remove), OPERATION(link), OPERATION(symlink),
    OPERATION(mkdir), OPERATION(chdir), OPERATION(stat), OPERATION(getcwd), OPERATION(realpath),
    OPERATION(directory), OPERATION(scandir), OPERATION(glob), OPERATION(walk), OPERATION(fts),
    OPERATION(temporary), OPERATION(popen), OPERATION(system), OPERATION(spawn),
    OPERATION(wordexp),
};

static char *lines[4000];
static int line_count;

// Runs one line.
static void run(int line) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", lines[line]);
    char *rest = NULL, *name = strtok_r(copy, " ", &rest);
    for (int at = 0; at < WORDS; at++) {
        char *word = strtok_r(NULL, " ", &rest);
        words[at] = word ? word : "";
    }
    for (size_t at = 0; name && at < sizeof operations / sizeof *operations; at++)
        if (!strcmp(name, operations[at].name)) {
            say("%d %s:", line, lines[line]);
            errno = 0;
            operations[at].run();
            say("\n");
        }
}

static void run_script(void) {
    for (int at = 0; at < line_count; at++) {
        if (strncmp(lines[at], "fork ", 5)) {
            run(at);
            continue;
        }
        int end = at + 1;
        while (end < line_count && strcmp(lines[end], "end"))
            end++;
        int in_order = !strcmp(lines[at], "fork exit");
        pid_t child = fork();
        if (child == 0) {
            for (at++; at < end; at++)
                run(at);
            if (!in_order)
                _exit(3);
            exit(4);
        }
        int status = 0;
        waitpid(child, &status, 0);
        say("%d child: %x\n", at, status);
        at = end;
    }
}

// The script, read before anything is done in the directory.
static void read_script(const char *path) {
    static char script[1 << 20];
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, script, sizeof script - 1);
    close(file);
    script[length < 0 ? 0 : length] = 0;
    char *rest = NULL;
    for (char *at = strtok_r(script, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest))
        if (line_count < 4000)
            lines[line_count++] = at;
}

static void put(const char *path, const char *bytes) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(file, bytes, strlen(bytes)) != (ssize_t)strlen(bytes))
        _exit(95);
    close(file);
}

// What the generator of scripts knows that there is.
static void prepare(void) {
    put("f0", pattern(900, 1));
    put("f1", pattern(9001, 2));
    put("f2", "");
    put("f3", "12 -7 word 0x1f\n3.5 99999 next\n\n  last line without end 7");
    put("f4", "Grüße, ascii, Ελλάδα\n€ 5\nend of text\n");
    mkdir("d0", 0755);
    mkdir("d0/d1", 0755);
    put("d0/a", "a");
    put("d0/b10", "bb");
    put("d0/b9", "");
    put("d0/d1/x", "in the tree\n");
    if (symlink("f0", "l0") || symlink("d0", "l1") || symlink("missing", "l2"))
        _exit(94);
}

static int removed(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

// What the directory has, and away with it.
static int finish(const char *directory) {
    if (chdir(directory) != 0)
        return 93;
    show(".");
    return chdir("/") != 0 || nftw(directory, removed, 20, FTW_DEPTH | FTW_PHYS) != 0 ? 92 : 0;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return finish(argv[1]);
    if (argc != 3)
        return 97;
    read_script(argv[2]);
    results = fcntl(1, F_DUPFD_CLOEXEC, 600);
    umask(022);
    if (results < 0 || mkdir(argv[1], 0755) != 0 || chdir(argv[1]) != 0)
        return 96;
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    beginning = fcntl(directory, F_DUPFD_CLOEXEC, 601);
    close(directory);
    prepare();
    // All that the child leaves in its streams is written out by its own end.
    pid_t child = fork();
    if (child == 0) {
        struct rlimit largest = {4 << 20, 4 << 20};
        setrlimit(RLIMIT_FSIZE, &largest);
        // glibc has endless loops of its own: fseek of a wide stream behind bytes that are none.
        struct rlimit seconds = {1, 2};
        setrlimit(RLIMIT_CPU, &seconds);
        alarm(40);
        int none = open("/dev/null", O_RDWR);
        for (int at = 0; at < 3; at++)
            dup2(none, at);
        close(none);
        streams[STANDARD] = stdin;
        streams[STANDARD + 1] = stdout;
        streams[STANDARD + 2] = stderr;
        run_script();
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("the program ended with %x\n", status);
    return finish(argv[1]);
}
