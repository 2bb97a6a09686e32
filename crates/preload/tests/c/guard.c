// Stray pointers into a volume's memory, one way for each name in argv[2]. Those that end the process
// print what they are about to do first; the others end in order.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s, errno %d\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

enum { AT = 0x3039 };

static char *region;
static const char *directory;
static char path[4096];

static const char *in(const char *name) {
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

// The largest mapping of the volume's file.
static void find_region(void) {
    char line[8192];
    unsigned long start, end, size = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, getenv("SOLERA_VOLUME")) && sscanf(line, "%lx-%lx", &start, &end) == 2 &&
            end - start > size) {
            size = end - start;
            region = (char *)start;
        }
    fclose(maps);
    CHECK(region);
}

static void put(const char *name, const char *text) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

// The volume serves this thread.
static void check_served(void) {
    char text[16] = "";
    int fd = open(in("kept"), O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text) == 4 && !strcmp(text, "kept") && close(fd) == 0);
}

static void stray_store(void) {
    check_served();
    ((volatile char *)region)[AT] = 1;
}

static void *in_thread(void *unused) {
    (void)unused;
    stray_store();
    return NULL;
}

static void on_signal(int signal) {
    (void)signal;
    stray_store();
}

static int on_entry(const char *name, const struct stat *stat, int kind, struct FTW *walk) {
    (void)name, (void)stat, (void)kind, (void)walk;
    stray_store();
    return 0;
}

static sigjmp_buf away;

static int on_entry_leave(const char *name, const struct stat *stat, int kind, struct FTW *walk) {
    (void)name, (void)stat, (void)kind, (void)walk;
    siglongjmp(away, 1);
}

static int on_filter(const struct dirent *entry) {
    (void)entry;
    stray_store();
    return 1;
}

static int on_compare(const struct dirent **a, const struct dirent **b) {
    (void)a, (void)b;
    stray_store();
    return 0;
}

static int on_glob_error(const char *name, int error) {
    (void)name, (void)error;
    stray_store();
    return 0;
}

static void at_end(void) { stray_store(); }

static void cleanup(void *unused) {
    (void)unused;
    stray_store();
}

static void *cancelled(void *unused) {
    pthread_cleanup_push(cleanup, unused);
    for (;;)
        check_served();
    pthread_cleanup_pop(0);
    return NULL;
}

// ---- those that end the process

static void load(void) { printf("%d\n", ((volatile char *)region)[AT]); }
static void copy_to(void) { memcpy(region, path, sizeof path); }
static void copy_from(void) { memcpy(path, region + (4 << 20), sizeof path); }
static void set(void) { memset(region + (8 << 20), 0, 8 << 20); }
static void thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
}
static void old_thread(void) {
    void (*give)(void *(*)(void *)) = dlsym(RTLD_DEFAULT, "give_to_old_thread");
    CHECK(give);
    give(in_thread);
}
static void handler(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
}
static void handler_in_call(void) {
    signal(SIGALRM, on_signal);
    ualarm(1000, 0);
    for (;;)
        put("busy", "busy");
}
static void callback(void) { nftw(directory, on_entry, 8, FTW_PHYS); }
static void after_jump(void) {
    if (sigsetjmp(away, 1) == 0)
        nftw(directory, on_entry_leave, 8, FTW_PHYS);
    stray_store();
}
static void filter(void) {
    struct dirent **list;
    scandir(directory, &list, on_filter, NULL);
}
static void compare(void) {
    struct dirent **list;
    put("other", "other");
    scandir(directory, &list, NULL, on_compare);
}
static void glob_error(void) {
    glob_t found;
    CHECK(mkdir(in("closed"), 0) == 0);
    CHECK(seteuid(65534) == 0 || geteuid() != 0);
    glob(in("closed/*"), 0, on_glob_error, &found);
    stray_store();
}
static void end(void) {
    atexit(at_end);
    exit(0);
}
static void cancel(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, cancelled, NULL);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}
static void image(void) {
    char own[4096] = "";
    CHECK(readlink("/proc/self/exe", own, sizeof own - 1) > 0);
    setenv("EXECUTED", "1", 1);
    execl(own, own, directory, "store", (char *)NULL);
}
static void wide_rights(void) {
    // A program that opens all keys there are: the next call closes ours.
    __asm__ volatile("wrpkru" ::"a"(0), "c"(0), "d"(0) : "memory");
    (void)((volatile char *)region)[AT];
    stray_store();
}

// ---- those that go on

static void child(void) {
    for (int raw = 0; raw < 3; raw++) {
        int status = 0;
        pid_t pid = raw == 0 ? fork() : raw == 1 ? vfork() : (pid_t)syscall(SYS_fork);
        if (pid == 0) {
            stray_store();
            _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        check_served();
    }
}

static void *fault_at;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    CHECK(signal == SIGSEGV && info->si_code == SEGV_PKUERR);
    fault_at = info->si_addr;
    put("handled", "handled");
    siglongjmp(away, 1);
}

static void own_handler(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int turn = 0; turn < 3; turn++) {
        fault_at = NULL;
        if (sigsetjmp(away, 1) == 0)
            ((volatile char *)region)[AT + turn] = 1;
        CHECK(fault_at == region + AT + turn);
        check_served();
    }
}

// The message is told on a file of the volume too, and from a small stack for signals.
static void errors_kept(void) {
    char text[4096] = "";
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(in("errors"), O_RDWR | O_CREAT, 0644);
        CHECK(fd >= 0 && dup2(fd, 2) == 2);
        stray_store();
    }
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
    int fd = open(in("errors"), O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strstr(text, "stray store to"));
}

static void on_fault_leave(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}

static void small_stack(void) {
    stack_t stack = {.ss_sp = malloc(8192), .ss_size = 8192};
    struct sigaction action = {.sa_handler = on_fault_leave, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    if (sigsetjmp(away, 1) == 0)
        stray_store();
    check_served();
}

#define FAULTS(expression) CHECK((expression) == -1 && errno == EFAULT)

static void arguments(void) {
    int ends[2], fd = open(in("kept"), O_RDWR);
    struct stat stat_of;
    char buffer[4096];
    struct iovec pieces[2] = {{buffer, 2}, {region + AT, 2}};
    CHECK(fd >= 0 && pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    FAULTS(pread(fd, region + AT, 4, 0));
    FAULTS(pwrite(fd, region + AT, 4, 0));
    FAULTS(read(ends[0], region + AT, 1));
    FAULTS(write(ends[1], region + AT, 1));
    FAULTS(syscall(SYS_pread64, fd, region + AT, 4, 0));
    FAULTS(stat(region + AT, &stat_of));
    FAULTS(stat(in("kept"), (struct stat *)(region + AT)));
    FAULTS(open(region + (6 << 20), O_RDONLY));
    FAULTS(preadv(fd, (struct iovec *)(region + AT), 2, 0));
    FAULTS(fgetxattr(fd, region, buffer, sizeof buffer));
    FAULTS(fcntl(fd, F_GETLK, region));
    // What lies before the bad piece is moved, as by the kernel.
    CHECK(preadv(fd, pieces, 2, 0) == 2 && !memcmp(buffer, "ke", 2));
    // A length that reaches over the region is no harm, if the bytes do not.
    char *page = mmap(region - (1 << 30), 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(page == region - (1 << 30));
    CHECK(pread(fd, page, 0x7fffffff, 0) == 4 && !memcmp(page, "kept", 4));
    check_served();
}

static void mapped(void) {
    int fd = open(in("mapped"), O_RDWR | O_CREAT, 0600);
    char text[8] = "";
    CHECK(fd >= 0 && ftruncate(fd, 8 << 20) == 0);
    char *at = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 'm', 8 << 20);
    CHECK(pread(fd, text, 4, 5 << 20) == 4 && !memcmp(text, "mmmm", 4));
    // From a mapping into the file it is of, and back.
    CHECK(pwrite(fd, at + 100, 4096, 1 << 20) == 4096 && pread(fd, at, 4096, 1 << 20) == 4096);
    CHECK(munmap(at, 8 << 20) == 0);
}

static void open_to_all(void) {
    char before = ((volatile char *)region)[AT];
    ((volatile char *)region)[AT] = before;
    check_served();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"store", stray_store}, {"load", load}, {"copy_to", copy_to}, {"copy_from", copy_from},
    {"set", set}, {"thread", thread}, {"old_thread", old_thread}, {"handler", handler},
    {"handler_in_call", handler_in_call}, {"callback", callback}, {"after_jump", after_jump},
    {"filter", filter}, {"compare", compare}, {"glob_error", glob_error}, {"end", end},
    {"cancel", cancel}, {"image", image}, {"wide_rights", wide_rights}, {"child", child},
    {"own_handler", own_handler}, {"errors_kept", errors_kept}, {"small_stack", small_stack}, {"arguments", arguments}, {"mapped", mapped},
    {"open_to_all", open_to_all},
};

int main(int argc, char **argv) {
    CHECK(argc == 3);
    directory = argv[1];
    // A program attaches at its first call that needs the volume.
    CHECK(access(directory, F_OK) == 0);
    find_region();
    put("kept", "kept");
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++)
        if (!strcmp(cases[index].name, argv[2])) {
            printf("%s\n", argv[2]);
            fflush(stdout);
            cases[index].run();
            printf("ended\n");
            return 0;
        }
    return 2;
}
