// The C library's own functions, past those that this library exports, make children that share their
// parent's memory, at work on the directory until they execute something. Who traces this program kills
// them wherever it likes; the parent must be unharmed. Usage: children DIRECTORY inherited|kept. What it
// has open is inherited by what a child executes, or not. A letter on standard input makes a child: p by
// posix_spawn, q by one whose actions are all outside, s by system, o by popen, w by wordexp; t begins a
// thread that works beside; e ends. After each comes a mark, `int3`, with a text in rax: "right", or what is wrong.
#include "say.h"
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <wordexp.h>

#define MARK(text) asm volatile("int3" : : "a"(text) : "memory")
#define MUST(condition) \
    do { \
        if (!(condition)) { \
            snprintf(wrong, sizeof wrong, "%d %s: %s", __LINE__, #condition, strerrorname_np(errno)); \
            return wrong; \
        } \
    } while (0)

static char wrong[400], here[PATH_MAX];
static int file, own, lowest;
static volatile int ends;
static sigset_t mask;
static void *libc;

static int next_number(void) {
    int fd = dup(0);
    close(fd);
    return fd;
}

// The child's file actions, or what the shell does: with names that others use, too.
static const char *spawned(char how) {
    int status = 0;
    pid_t pid;
    char *arguments[] = {"true", NULL};
    if (how == 'p') {
        int (*spawn)() = dlsym(libc, "posix_spawn");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 7, "made", O_RDWR | O_CREAT | O_TRUNC, 0600);
        posix_spawn_file_actions_adddup2(&actions, 7, 8);
        posix_spawn_file_actions_adddup2(&actions, file, 9);
        posix_spawn_file_actions_addclose(&actions, file);
        posix_spawn_file_actions_addchdir_np(&actions, "below");
        posix_spawn_file_actions_addopen(&actions, 10, "../file", O_RDONLY, 0);
        MUST(spawn(&pid, "/bin/true", &actions, NULL, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        MUST(waitpid(pid, &status, 0) == pid);
    } else if (how == 'q') {
        int (*spawn)() = dlsym(libc, "posix_spawn");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 7, "/dev/null", O_RDWR, 0);
        posix_spawn_file_actions_adddup2(&actions, 7, 8);
        posix_spawn_file_actions_addclose(&actions, 7);
        posix_spawn_file_actions_addclosefrom_np(&actions, 9);
        MUST(spawn(&pid, "/bin/true", &actions, NULL, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        MUST(waitpid(pid, &status, 0) == pid);
    } else if (how == 's') {
        int (*command)(const char *) = dlsym(libc, "system");
        status = command(": > made");
    } else if (how == 'o') {
        FILE *(*opened)(const char *, const char *) = dlsym(libc, "popen");
        FILE *stream = opened("echo x", "r");
        MUST(stream);
        fgetc(stream);
        pclose(stream);
    } else {
        int (*expand)(const char *, wordexp_t *, int) = dlsym(libc, "wordexp");
        wordexp_t words;
        // Killed, it has no words.
        if (expand("$(echo file)", &words, 0) == 0)
            wordfree(&words);
    }
    return NULL;
}

static void *locks(void *unused) {
    struct flock lock = {.l_type = F_WRLCK};
    int fd = open("file", O_RDWR);
    int good = fd >= 0 && fcntl(fd, F_OFD_SETLKW, &lock) == 0 && flock(fd, LOCK_EX) == 0;
    close(fd);
    return good ? unused : NULL;
}

// Has locks of the library, the volume and the C library again and again; makes no numbers.
static void *works(void *unused) {
    for (int round = 0; !ends; round++) {
        struct flock lock = {.l_type = round % 2 ? F_UNLCK : F_WRLCK};
        char *piece = malloc(200000);
        piece[0] = 1;
        fcntl(own, F_OFD_SETLK, &lock);
        pwrite(own, "beside", 6, round % 5000);
        ftruncate(own, round % 3000);
        rename("own", "renamed"), rename("renamed", "own");
        fflush(NULL);
        free(piece);
    }
    return unused;
}

// All that the volume serves goes on, for this process and another.
static const char *looked(void) {
    char bytes[9] = "", path[PATH_MAX];
    sigset_t now;
    MUST(lseek(file, 0, SEEK_CUR) == 3);
    MUST(pread(file, bytes, 8, 0) == 8 && strcmp(bytes, "contents") == 0);
    MUST(pwrite(file, "contents", 8, 0) == 8);
    MUST(getcwd(path, sizeof path) && strcmp(path, here) == 0);
    MUST(next_number() == lowest);
    sigprocmask(SIG_BLOCK, NULL, &now);
    MUST(memcmp(&now, &mask, 8) == 0);
    unlink("made");
    int made = open("made", O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(made >= 0 && write(made, "x", 1) == 1 && close(made) == 0);
    MUST(rename("made", "below/made") == 0 && unlink("below/made") == 0);
    struct flock lock = {.l_type = F_WRLCK};
    MUST(fcntl(file, F_SETLK, &lock) == 0);
    lock.l_type = F_UNLCK;
    MUST(fcntl(file, F_SETLK, &lock) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        int fd = open("by-child", O_RDWR | O_CREAT, 0600);
        int good = fd >= 0 && write(fd, "x", 1) == 1 && unlink("by-child") == 0 && locks(&lock);
        _exit(good ? 0 : 1);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    pthread_t thread;
    void *result;
    MUST(pthread_create(&thread, NULL, locks, &lock) == 0);
    MUST(pthread_join(thread, &result) == 0 && result == &lock);
    return "right";
}

int main(int argc, char **argv) {
    enter(argc, argv);
    libc = dlopen("libc.so.6", RTLD_NOW);
    mkdir("below", 0700);
    int kept = argc > 2 && strcmp(argv[2], "kept") == 0 ? O_CLOEXEC : 0;
    file = open("file", O_RDWR | O_CREAT | kept, 0600);
    write(file, "contents", 8);
    lseek(file, 3, SEEK_SET);
    getcwd(here, sizeof here);
    own = open("own", O_RDWR | O_CREAT | kept, 0600);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    lowest = next_number();
    const char *told = looked();
    MARK(told);
    pthread_t beside;
    int threads = 0;
    for (char how; read(0, &how, 1) == 1 && how != 'e';) {
        if (how == 't')
            told = pthread_create(&beside, NULL, works, NULL) ? "no thread" : NULL, threads = 1;
        else
            told = spawned(how);
        MARK(told ? told : looked());
    }
    ends = 1;
    if (threads)
        pthread_join(beside, NULL);
    unlink("file"), unlink("own");
    rmdir("below");
    return 0;
}
