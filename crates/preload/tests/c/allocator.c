// An allocator that asks the C library for something when it is first used, and holds its lock
// meanwhile, as jemalloc does: whoever asks it for memory then waits for ever. This one says so and
// aborts. It is a library of its own (LIBRARY), which the loader begins before what is preloaded;
// and a program over it. Usage: allocator DIRECTORY die|look
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef LIBRARY
static char memory[1 << 24];
static size_t used;
static int begun;
static __thread int locked __attribute__((tls_model("initial-exec")));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void refuse_beneath(const char *call) {
    if (!locked)
        return;
    static const char told[] = " is called inside malloc\n";
    write(2, call, strlen(call));
    write(2, told, sizeof told - 1);
    abort();
}

static void *take(const char *call, size_t align, size_t bytes) {
    refuse_beneath(call);
    pthread_mutex_lock(&lock);
    locked = 1;
    if (!begun) {
        begun = 1;
        char text[100];
        readlink("/etc/malloc.conf", text, sizeof text);
    }
    size_t at = (used + 16 + align - 1) / align * align;
    void *given = NULL;
    if (at + bytes <= sizeof memory) {
        given = memory + at;
        ((size_t *)given)[-1] = bytes;
        used = at + bytes;
    }
    locked = 0;
    pthread_mutex_unlock(&lock);
    return given;
}

void *malloc(size_t bytes) { return take("malloc", 16, bytes); }

// It is never given again, and begins as zeros.
void *calloc(size_t count, size_t bytes) { return take("calloc", 16, count * bytes); }

void *aligned_alloc(size_t align, size_t bytes) { return take("aligned_alloc", align, bytes); }

void *memalign(size_t align, size_t bytes) { return take("memalign", align, bytes); }

int posix_memalign(void **to, size_t align, size_t bytes) {
    *to = take("posix_memalign", align, bytes);
    return 0;
}

void *realloc(void *old, size_t bytes) {
    void *given = take("realloc", 16, bytes);
    size_t had = old ? ((size_t *)old)[-1] : 0;
    if (given && old)
        memcpy(given, old, had < bytes ? had : bytes);
    return given;
}

void free(void *old) {
    if (old)
        refuse_beneath("free");
}

__attribute__((constructor)) static void begin(void) { free(malloc(1)); }
#else
enum { DIRECTORIES = 400 };

int main(int count, char **words) {
    char path[64];
    if (count < 3 || chdir(words[1]) != 0)
        return 2;
    for (int number = 0; number < DIRECTORIES; number++) {
        snprintf(path, sizeof path, "directory %d", number);
        if (words[2][0] != 'l' && mkdir(path, 0755) != 0)
            return 3;
        snprintf(path, sizeof path, "directory %d/file", number);
        int fd = open(path, words[2][0] != 'l' ? O_RDWR | O_CREAT : O_RDONLY, 0644);
        if (fd < 0 || words[2][0] != 'l' && write(fd, path, 64) != 64)
            return 4;
        if (words[2][0] == 'l' && (read(fd, path, 64) != 64 || close(fd) != 0))
            return 5;
        if (words[2][0] != 'l')
            close(fd);
    }
    if (words[2][0] == 'd')
        raise(SIGKILL);
    void *large = NULL;
    if (posix_memalign(&large, 4096, 4096) != 0 || !large)
        return 6;
    free(realloc(malloc(10), 100));
    puts("right");
    return 0;
}
#endif
