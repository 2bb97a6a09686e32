/* Files: usage files DIRECTORY. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP 65536

static solera_ticket handed;
static solera_file *shared;

static void *other_thread(void *unused) {
    (void)unused;
    FAILS(solera_wait(shared, handed), EINVAL);
    CHECK(strstr(solera_error(), "another thread"));
    return NULL;
}

static void appends(solera_place *place) {
    struct solera_options options = SOLERA_OPTIONS;
    solera_file *file = NULL, *again = NULL;
    solera_ticket ticket = {0, 0};
    char back[32] = "";
    options.step = STEP;
    options.size = 1 << 20;
    FAILS(solera_open(place, "file", &options, &file), ENOENT);
    options.flags = SOLERA_CREATE | SOLERA_EXCLUSIVE;
    CHECK(solera_open(place, "/file", &options, &file) == 0);
    FAILS(solera_open(place, "file", &options, &again), EEXIST);
    CHECK(solera_length(file) == 0 && solera_length_is_exact(file) == 1);
    FAILS(solera_wait(file, ticket), EINVAL);
    CHECK(solera_append(file, "hello, ", 7, NULL) == 7);
    CHECK(solera_append(file, "world", 5, &ticket) == 5);
    CHECK(solera_wait(file, ticket) == 0);
    CHECK(solera_pwrite(file, "W", 1, 7, &ticket) == 1 && solera_wait(file, ticket) == 0);
    CHECK(solera_pread(file, back, sizeof back, 0) == 12 && memcmp(back, "hello, World", 12) == 0);
    CHECK(solera_pread(file, back, sizeof back, 12) == 0);
    CHECK(solera_append(file, NULL, 0, NULL) == 0);
    CHECK(solera_fence(place) == 0);
    if (getenv("SOLERA_TEST_ATOMIC"))
        CHECK(solera_pwrite_atomic(file, "h", 1, 0) == 1);
    else
        FAILS(solera_pwrite_atomic(file, "h", 1, 0), ENOTSUP);

    shared = file;
    handed = ticket;
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);

    char *view = (char *)solera_view(file, 0, 12);
    CHECK(view && memcmp(view, "hello, World", 12) == 0);
    view[0] = 'H';
    CHECK(solera_persist(file, view, 1) == 0);
    CHECK(solera_flush(file, view, 1) == 0 && solera_fence(place) == 0);
    CHECK(solera_pwrite(file, "far", 3, 500000, &ticket) == 3 && solera_wait(file, ticket) == 0);
    CHECK(solera_view(file, 0, 12) == view);
    FAILS(solera_pwrite(file, "far", 3, 1 << 20, NULL), EFBIG);
    CHECK(solera_truncate(file, 12) == 0 && solera_sync_len(file) == 0 && solera_length(file) == 12);

    /* What makes no sense. */
    FAILS(solera_persist(file, view, 13), EINVAL);
    FAILS(solera_persist(file, &ticket, 1), EINVAL);
    CHECK(!solera_view(file, 5, 8) && errno == EINVAL);
    FAILS(solera_pread(file, back, 1, -1), EINVAL);
    FAILS(solera_pwrite(file, "x", 1, -1, NULL), EINVAL);
    FAILS(solera_truncate(file, -1), EINVAL);
    FAILS(solera_append(file, "x", (size_t)1 << 63, NULL), EINVAL);
    FAILS(solera_append(file, NULL, 1, NULL), EINVAL);
    FAILS(solera_append(file, (void *)4096, 1, NULL), EFAULT);
    FAILS(solera_pread(file, (void *)4096, 1, 0), EFAULT);
    FAILS(solera_append(NULL, "x", 1, NULL), EINVAL);
    FAILS(solera_append((solera_file *)place, "x", 1, NULL), EINVAL);
    FAILS(solera_append((solera_file *)0x1234567, "x", 1, NULL), EINVAL);
    FAILS(solera_open(NULL, "file", &options, &again), EINVAL);
    FAILS(solera_open(place, NULL, &options, &again), EINVAL);
    FAILS(solera_open(place, "../file", &options, &again), EINVAL);
    FAILS(solera_open(place, "file", &options, NULL), EINVAL);
    options.flags = SOLERA_READONLY | SOLERA_CREATE;
    FAILS(solera_open(place, "file", &options, &again), EINVAL);
    options.flags = SOLERA_CREATE;
    options.size = UINT64_MAX;
    FAILS(solera_open(place, "none", &options, &again), EINVAL);
    options.size = 0;
    options.flags = 0;
    FAILS(solera_open(place, "none", &options, &again), ENOENT);
    options.flags = SOLERA_READONLY;
    FAILS(solera_open(place, ".", &options, &again), EISDIR);
    options.flags = 64;
    FAILS(solera_open(place, "file", &options, &again), EINVAL);
    options.struct_size = 4;
    FAILS(solera_open(place, "file", &options, &again), EINVAL);

    /* A child has none of it; its parent goes on. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        FAILS(solera_append(file, "child", 5, NULL), ESTALE);
        FAILS(solera_pread(file, back, 1, 0), ESTALE);
        FAILS(solera_length(file), ESTALE);
        fflush(stdout);
        _exit(failures);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(solera_append(file, "!", 1, &ticket) == 1 && solera_wait(file, ticket) == 0);
    CHECK(solera_close(file) == 0);
    FAILS(solera_append(file, "x", 1, NULL), EINVAL);
    FAILS(solera_close(file), EINVAL);
    CHECK(solera_open(place, "file", NULL, &again) == 0 && again != file);
    FAILS(solera_append(file, "x", 1, NULL), EINVAL);
    CHECK(solera_length(again) == 13 && solera_close(again) == 0);
}

/* A size of a structure that an older program was built with. */
static void older_structures(solera_place *place) {
    struct { size_t struct_size; uint64_t size; } older = {16, 1 << 20};
    solera_file *file;
    CHECK(solera_open(place, "file", (struct solera_options *)&older, &file) == 0);
    CHECK(solera_close(file) == 0);
}

static volatile sig_atomic_t before_was_called, after_was_called;

/* What others see is what was written, and what they write is seen: no more, no less. */
static void seen(solera_place *place, const char *directory) {
    struct solera_options options = SOLERA_OPTIONS;
    solera_file *file;
    char back[8] = "";
    options.flags = SOLERA_CREATE;
    CHECK(solera_open(place, "seen", &options, &file) == 0);
    CHECK(solera_append(file, "abc", 3, NULL) == 3 && solera_fence(place) == 0);
    char *view = (char *)solera_view(file, 0, 3);
    CHECK(view != NULL);
    view[1] = 'B';
    CHECK(solera_persist(file, view + 1, 1) == 0);
    beside(directory, "printf aBc | cmp - seen");
    beside(directory, "printf def >> seen");
    CHECK(solera_length(file) == 6 && solera_pread(file, back, 8, 0) == 6);
    CHECK(memcmp(back, "aBcdef", 6) == 0 && solera_view(file, 3, 3) == view + 3);
    CHECK(memcmp(view, "aBcdef", 6) == 0);
    CHECK(solera_append(file, "g", 1, NULL) == 1 && solera_fence(place) == 0);
    beside(directory, "cp seen copy && printf aBcdefg | cmp - copy && rm copy seen");
    CHECK(solera_append(file, "h", 1, NULL) == 1 && solera_length(file) == 8);
    CHECK(solera_close(file) == 0);
    beside(directory, "test ! -e seen");
}

static void before(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    before_was_called = 1;
    _exit(40);
}

static void after(int signal, siginfo_t *info, void *context) {
    after_was_called++;
    if (!solera_sigbus(signal, info, context))
        _exit(41);
}

static void install(void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, NULL);
}

/* Others cut the file: guarded accesses say so, with a handler of the program's own before and after. */
static void cut(solera_place *place, const char *directory, int handler_comes_after) {
    struct solera_options options = SOLERA_OPTIONS;
    solera_file *file;
    char back[8];
    options.flags = SOLERA_CREATE;
    options.step = STEP;
    CHECK(solera_open(place, "cut", &options, &file) == 0);
    CHECK(solera_truncate(file, 3 * STEP) == 0);
    char *view = (char *)solera_view(file, 0, 3 * STEP);
    CHECK(view != NULL);
    beside(directory, "truncate -s 4096 cut");
    if (handler_comes_after)
        install(after);
    FAILS(solera_pread(file, back, sizeof back, STEP), ETRUNCATED);
    FAILS(solera_append(file, "x", 1, NULL), ETRUNCATED);
    CHECK(solera_pread(file, back, sizeof back, 0) == 8);
    fflush(stdout);
    /* A load of the program's own is the program's own. What is cut from a volume's file stays in the
       memory of others, as zeros. */
    pid_t child = fork();
    if (child == 0)
        _exit(((volatile char *)view)[2 * STEP]);
    int status;
    waitpid(child, &status, 0);
    if (on_volume()) {
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } else {
        CHECK(after_was_called == handler_comes_after);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (handler_comes_after ? 41 : 40));
    }
    CHECK(solera_truncate(file, 0) == 0 && solera_close(file) == 0);
    beside(directory, "rm cut");
}

/* A page that is lost: guarded accesses say so, and the rest is there. */
static void lost(solera_place *place) {
    struct solera_options options = SOLERA_OPTIONS;
    solera_file *file;
    char back[8];
    options.flags = SOLERA_CREATE;
    CHECK(solera_open(place, "lost", &options, &file) == 0);
    CHECK(solera_pwrite(file, "kept", 4, 3 * 4096, NULL) == 4 && solera_fence(place) == 0);
    char *view = (char *)solera_view(file, 0, 3 * 4096);
    CHECK(mmap(view + 4096, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == view + 4096);
    FAILS(solera_pread(file, back, sizeof back, 4096), EIO);
    FAILS(solera_pread(file, back, sizeof back, 4092), EIO);
    FAILS(solera_pwrite(file, back, sizeof back, 5000, NULL), EIO);
    CHECK(solera_pread(file, back, sizeof back, 0) == 8 && solera_pread(file, back, 8, 3 * 4096) == 4);
    CHECK(memcmp(back, "kept", 4) == 0 && solera_append(file, "more", 4, NULL) == 4);
    CHECK(solera_close(file) == 0);
}

int main(int argc, char **argv) {
    solera_place *place;
    const char *why = NULL;
    (void)argc;
    install(before);
    CHECK(strcmp(solera_error(), "") == 0);
    FAILS(solera_open_place(NULL, 0, &place), EINVAL);
    FAILS(solera_open_place("/nowhere", 0, &place), ENOENT);
    FAILS(solera_open_place(argv[0], 0, &place), ENOTDIR);
    FAILS(solera_open_place("/dev/null", 0, &place), ENODEV);
    FAILS(solera_open_place(argv[1], 8, &place), EINVAL);
    FAILS(solera_open_place(argv[1], 0, NULL), EINVAL);
    CHECK(solera_open_place(argv[1], SOLERA_PAGE, &place) == 0);
    int class = solera_place_class(place, &why);
    CHECK(class >= SOLERA_CLASS_BYTE && class <= SOLERA_CLASS_PAGE && why && strlen(why) > 10);
    CHECK(solera_place_class(place, NULL) == class);
    printf("class %d: %s\n", class, why);
    appends(place);
    older_structures(place);
    if (on_volume())
        seen(place, argv[1]);
    else
        lost(place);
    cut(place, argv[1], 0);
    cut(place, argv[1], 1);
    CHECK(solera_close_place(place) == 0);
    FAILS(solera_close_place(place), EINVAL);
    FAILS(solera_place_class(place, NULL), EINVAL);
    return failures != 0;
}
