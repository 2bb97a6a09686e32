// Compiled with -DLIBRARY: a library in front of others that sees each call of these functions, and says
// on standard error which of them came from the library under test: one line for each place, with the
// function's name and the place's offset in that library. It makes no call of those functions itself.
// Else: a program that does what that library has most to do with. Usage: counted DIRECTORY [die].
#ifdef LIBRARY
#include <dlfcn.h>
#include <stdint.h>
#include <sys/syscall.h>

// Those that the C library has under other names, too, need not be looked for.
#define OWN(name) extern char __libc_##name;
OWN(malloc) OWN(calloc) OWN(realloc) OWN(free) OWN(memalign)

#define NAMES \
    NAME(malloc) NAME(calloc) NAME(realloc) NAME(free) NAME(memalign) NAME(posix_memalign) \
    NAME(aligned_alloc) NAME(reallocarray) NAME(strdup) NAME(pthread_mutex_lock) \
    NAME(pthread_mutex_trylock) NAME(pthread_mutex_unlock) NAME(pthread_rwlock_rdlock) \
    NAME(pthread_rwlock_wrlock) NAME(pthread_rwlock_unlock) NAME(pthread_cond_wait) \
    NAME(pthread_cond_timedwait) NAME(pthread_cond_signal) NAME(pthread_cond_broadcast) \
    NAME(pthread_spin_lock) NAME(sem_wait) NAME(sem_post) NAME(pthread_once) NAME(call_once) \
    NAME(pthread_create) NAME(pthread_key_create) NAME(pthread_key_delete) \
    NAME(pthread_getspecific) NAME(pthread_setspecific) NAME(pthread_atfork) \
    NAME(__register_atfork) NAME(__cxa_atexit) NAME(__cxa_thread_atexit_impl) NAME(atexit) \
    NAME(dlsym) NAME(dlopen) NAME(dlclose) NAME(dladdr) NAME(dl_iterate_phdr) \
    NAME(getenv) NAME(secure_getenv) NAME(setenv) NAME(unsetenv) NAME(putenv) NAME(fopen) \
    NAME(fputs) NAME(fwrite) NAME(printf) NAME(fprintf) NAME(vfprintf) NAME(snprintf) \
    NAME(flockfile) NAME(opendir) NAME(readdir) NAME(getcwd) NAME(realpath) NAME(strerror) \
    NAME(strerror_r) NAME(localtime) NAME(localtime_r) NAME(abort) NAME(exit)

#define NAME(name) NUMBER_##name,
enum { NAMES COUNT, PLACES = 512 };
#undef NAME
#define NAME(name) #name,
static const char *const names[] = {NAMES};
#undef NAME

static void *real[COUNT];
static uintptr_t from, to, places[PLACES];
static int saw;

static long call(long number, long a, long b, long c) {
    long answer;
    asm volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

static uintptr_t hex(const char **at) {
    uintptr_t value = 0;
    for (;; ++*at) {
        char digit = **at;
        if (digit >= '0' && digit <= '9')
            value = value * 16 + digit - '0';
        else if (digit >= 'a' && digit <= 'f')
            value = value * 16 + digit - 'a' + 10;
        else
            return value;
    }
}

static int has(const char *line, const char *end, const char *name) {
    for (; line < end; line++) {
        int same = 0;
        while (name[same] && line + same < end && line[same] == name[same])
            same++;
        if (!name[same])
            return 1;
    }
    return 0;
}

// Where the library under test is.
static void find(void) {
    static char text[1 << 16];
    long length = 0, got, file = call(SYS_open, (long)"/proc/self/maps", 0, 0);
    while ((got = call(SYS_read, file, (long)text + length, sizeof text - 1 - length)) > 0)
        length += got;
    call(SYS_close, file, 0, 0);
    for (char *line = text, *end; line < text + length; line = end + 1) {
        for (end = line; *end && *end != '\n'; end++)
            ;
        if (!has(line, end, "libsolera_preload.so"))
            continue;
        const char *at = line;
        uintptr_t first = hex(&at);
        at++;
        to = hex(&at);
        if (!from)
            from = first;
    }
}

static void say(const char *name, uintptr_t offset) {
    char line[100] = "counted: ";
    int length = 9;
    while (*name)
        line[length++] = *name++;
    line[length++] = '+';
    for (int shift = 28; shift >= 0; shift -= 4)
        line[length++] = "0123456789abcdef"[offset >> shift & 15];
    line[length++] = '\n';
    call(SYS_write, 2, (long)line, length);
}

// A call of a function from there: gives the function.
__attribute__((used, visibility("hidden"))) void *counted(long which, uintptr_t place) {
    if (!from)
        find();
    if (place >= from && place < to) {
        int at = 0;
        while (at < saw && places[at] != place)
            at++;
        if (at == saw && saw < PLACES) {
            places[saw++] = place;
            say(names[which], place - from);
        }
    }
    if (!real[which] && which <= NUMBER_memalign) {
        void *const own[] = {&__libc_malloc, &__libc_calloc, &__libc_realloc, &__libc_free,
                             &__libc_memalign};
        real[which] = own[which];
    } else if (!real[which]) {
        // Past this library's own.
        void *(*look)(void *, const char *) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        real[which] = look(RTLD_NEXT, names[which]);
    }
    return real[which];
}

// Each has its caller's registers, and goes on to the function as if called by that.
#define NAME(name) \
    void wrapped_##name(void) asm(#name); \
    __attribute__((naked)) void wrapped_##name(void) { \
        asm("push %%rdi\n push %%rsi\n push %%rdx\n push %%rcx\n push %%r8\n push %%r9\n" \
            "push %%rax\n mov 56(%%rsp), %%rsi\n mov %0, %%edi\n call counted\n" \
            "mov %%rax, %%r11\n pop %%rax\n pop %%r9\n pop %%r8\n pop %%rcx\n pop %%rdx\n" \
            "pop %%rsi\n pop %%rdi\n jmp *%%r11" : : "i"(NUMBER_##name)); \
    }
NAMES

#else
#include "say.h"
#include <pthread.h>

static int file;

static void *works(void *number) {
    char name[20];
    snprintf(name, sizeof name, "by-%d", *(int *)number);
    for (int round = 0; round < 50; round++) {
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
        fcntl(fd, F_OFD_SETLKW, &lock);
        flock(file, LOCK_EX);
        write(fd, "some text", 9);
        flock(file, LOCK_UN);
        rename(name, "other"), unlink("other");
        close(fd);
    }
    return NULL;
}

static void threads(void) {
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, works, &numbers[at]);
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
}

static void maps(void) {
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, 1 << 20);
    volatile char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int offset = 0; offset < 1 << 20; offset += 4096)
        at[offset] = at[offset + 1] + 1;
    at = mremap((void *)at, 1 << 20, 1 << 19, 0);
    volatile char *own = mmap(NULL, 1 << 19, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    for (int offset = 0; offset < 1 << 19; offset += 4096)
        own[offset] = at[offset] + 1;
    munmap((void *)own, 1 << 19), munmap((void *)at, 1 << 19);
    close(fd);
}

static void looks(void) {
    struct stat info;
    char path[PATH_MAX];
    mkdir("directory", 0700), symlink("file", "link");
    DIR *directory = opendir(".");
    while (readdir(directory))
        ;
    closedir(directory);
    stat("link", &info), readlink("link", path, sizeof path), chdir("directory"), chdir("..");
    // Memory of the program's own heap.
    free(getcwd(NULL, 0)), free(realpath("link", NULL));
    FILE *stream = fopen("stream", "w+");
    for (int line = 0; line < 2000; line++)
        fprintf(stream, "line %d\n", line);
    fclose(stream);
    unlink("stream"), unlink("link"), rmdir("directory");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    const char *how = argc > 2 ? argv[2] : "";
    file = open("file", O_RDWR | O_CREAT, 0600);
    if (strcmp(how, "die") == 0) {
        // What the next one recovers: a file without a name, locks, a place.
        unlink("file");
        flock(file, LOCK_EX);
        write(file, "text", 4);
        kill(getpid(), SIGKILL);
    }
    write(file, "text", 4);
    maps(), looks(), threads();
    pid_t pid = fork();
    if (pid == 0) {
        maps(), looks(), threads();
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    SAY(status);
    SAY(system("true"));
    if (strcmp(how, "again") != 0)
        execl(argv[0], argv[0], argv[1], "again", NULL);
    return 0;
}
#endif
