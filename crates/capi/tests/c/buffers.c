/* Explicit buffers: usage buffers DIRECTORY. With SOLERA_TEST_ATTACHED reads there are served by a cache
   with pages of 2 MiB. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)2 << 20)
#define SIZE (8 * PAGE)
#define LENGTH (SIZE + 2 * PAGE)

static int attached;
static char *written;

/* Pointers that are no handles fail as handles do. */
#define NONE(call) \
    do { \
        errno = 0; \
        CHECK((call) == NULL && errno == EINVAL); \
        CHECK(strncmp(solera_error(), "solera_buffer_", 14) == 0); \
    } while (0)

/* How many files are mapped into a buffer. */
static size_t mapped(solera_buffer *buffer) {
    char line[4096];
    size_t found = 0, base = (size_t)solera_buffer_base(buffer);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        size_t from = strtoul(line, NULL, 16);
        found += from >= base && from < base + SIZE + PAGE && strchr(line, '/') != NULL;
    }
    fclose(maps);
    return found;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static char byte_at(size_t at, int age) {
    return (char)(at / 4093 % 251 + (size_t)age);
}

static void fill(int fd, int age) {
    for (size_t at = 0; at < LENGTH; at++)
        written[at] = byte_at(at, age);
    for (size_t at = 0; at < LENGTH; at += 1 << 20)
        CHECK(pwrite(fd, written + at, 1 << 20, (off_t)at) == 1 << 20);
}

static int is_right(const char *data, size_t offset, size_t count, int age) {
    for (size_t at = 0; at < count; at++)
        if (data[at] != byte_at(offset + at, age))
            return 0;
    return 1;
}

static char *get(solera_buffer *buffer, int fd, size_t offset, size_t count) {
    char *data = (char *)solera_buffer_slide(buffer, (off_t)offset);
    CHECK(pread(fd, data, count, (off_t)offset) == (ssize_t)count);
    return data;
}

static void slides(int fd) {
    static const size_t offsets[] = {0, 1, 511, 4095, 4096, PAGE - 1, PAGE, PAGE + 7};
    solera_buffer *buffer = solera_buffer_alloc(SIZE);
    CHECK(buffer && solera_buffer_base(buffer) == solera_buffer_slide(buffer, 0));
    CHECK((size_t)solera_buffer_base(buffer) % PAGE == 0);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
            size_t offset = offsets[i];
            char *data = get(buffer, fd, offset, SIZE);
            CHECK((size_t)data % PAGE == offset % PAGE);
            CHECK(is_right(data, offset, SIZE, 0));
            if (attached && mapped(buffer) != (offset % PAGE ? 7 : 8))
                CHECK(!"pages are mapped");
            CHECK(attached || mapped(buffer) == 0);
            CHECK(solera_buffer_detach(buffer) == 0 && mapped(buffer) == 0);
        }
    /* At the position, and where nothing can be mapped. */
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, solera_buffer_base(buffer), SIZE) == (ssize_t)SIZE);
    CHECK(is_right((char *)solera_buffer_base(buffer), 0, SIZE, 0));
    CHECK(pread(fd, (char *)solera_buffer_base(buffer) + 1, SIZE, 0) == (ssize_t)SIZE);
    CHECK(is_right((char *)solera_buffer_base(buffer) + 1, 0, SIZE, 0));
    /* Nothing before it, nothing behind it. */
    errno = 0;
    CHECK(pread(fd, (char *)solera_buffer_base(buffer) - 1, 1, 0) == -1 && errno == EFAULT);
    CHECK(pread(fd, (char *)solera_buffer_base(buffer) + SIZE + PAGE, 1, 0) == -1 && errno == EFAULT);
    solera_buffer_free(buffer);
}

static void keeps(int fd, const char *name) {
    solera_buffer *one = solera_buffer_alloc(SIZE), *two = solera_buffer_alloc(SIZE);
    char *first = get(one, fd, 0, SIZE), *second = get(two, fd, 0, SIZE);
    CHECK(is_right(first, 0, SIZE, 0));
    first[5] = 99;
    fill(fd, 1);
    CHECK(ftruncate(fd, 1) == 0 && unlink(name) == 0);
    CHECK(first[5] == 99 && is_right(first + 6, 6, SIZE - 6, 0));
    CHECK(is_right(second, 0, SIZE, 0));
    fill(fd, 2);
    get(one, fd, 0, SIZE);
    CHECK(is_right(first, 0, SIZE, 2));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(is_right(second, 0, SIZE, 0) && is_right(first, 0, SIZE, 2));
        memset(second, 5, PAGE);
        get(one, fd, PAGE, SIZE);
        CHECK(is_right(first, PAGE, SIZE, 2));
        CHECK(!attached || mapped(one) == 8);
        CHECK(solera_buffer_fault(two) == 0 && second[1] == 5);
        CHECK(is_right(second + PAGE, PAGE, SIZE - PAGE, 0));
        solera_buffer_free(one);
        solera_buffer_free(two);
        fflush(stdout);
        _exit(failures != 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_right(second, 0, SIZE, 0) && is_right(first, 0, SIZE, 2));
    solera_buffer_free(one);
    solera_buffer_free(two);
}

static void faults_and_detaches(int fd) {
    solera_buffer *buffer = solera_buffer_alloc(SIZE);
    char *data = get(buffer, fd, 0, SIZE);
    CHECK(is_right(data, 0, SIZE, 2));
    CHECK(solera_buffer_fault(buffer) == 0 && mapped(buffer) == 0);
    long before = faults();
    memset(data, 3, SIZE + PAGE - 1);
    CHECK(faults() - before <= 4);
    get(buffer, fd, 0, SIZE);
    CHECK(is_right(data, 0, SIZE, 2));
    CHECK(solera_buffer_detach(buffer) == 0 && solera_buffer_detach(buffer) == 0);
    memset(data, 4, SIZE);
    CHECK(solera_buffer_fault(buffer) == 0 && data[0] == 4 && data[SIZE - 1] == 4);
    solera_buffer_free(buffer);
}

static void is_refused(solera_place *place) {
    solera_buffer *buffer = solera_buffer_alloc(1);
    NONE(solera_buffer_alloc(0));
    NONE(solera_buffer_alloc(SIZE_MAX));
    errno = 0;
    CHECK(!solera_buffer_alloc((size_t)1 << 50) && errno == ENOMEM);
    NONE(solera_buffer_slide(buffer, -1));
    for (int round = 0; round < 3; round++) {
        solera_buffer *none = round == 0 ? NULL : round == 1 ? (solera_buffer *)(void *)place : buffer;
        if (round == 2)
            solera_buffer_free(buffer);
        NONE(solera_buffer_base(none));
        NONE(solera_buffer_slide(none, 0));
        FAILS(solera_buffer_fault(none), EINVAL);
        FAILS(solera_buffer_detach(none), EINVAL);
        solera_buffer_free(none);
    }
    CHECK(solera_place_class(place, NULL) >= 0);
    CHECK(solera_close_place((solera_place *)(void *)solera_buffer_alloc(1)) == -1 && errno == EINVAL);
}

/* One thread reads into a buffer while others come and go. */
static void *comes_and_goes(void *name) {
    int fd = open((const char *)name, O_RDONLY);
    for (int round = 0; round < 50; round++) {
        solera_buffer *buffer = solera_buffer_alloc(PAGE);
        char *data = get(buffer, fd, PAGE, PAGE);
        CHECK(is_right(data, PAGE, 4096, 0));
        if (round % 2)
            CHECK(solera_buffer_fault(buffer) == 0);
        solera_buffer_free(buffer);
    }
    close(fd);
    return NULL;
}

int main(int count, char **arguments) {
    char name[4096];
    solera_place *place = NULL;
    pthread_t threads[3];
    if (count != 2)
        return 2;
    attached = getenv("SOLERA_TEST_ATTACHED") != NULL;
    written = (char *)malloc(LENGTH);
    snprintf(name, sizeof name, "%s/buffers", arguments[1]);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    fill(fd, 0);
    CHECK(solera_open_place(arguments[1], 0, &place) == 0);
    slides(fd);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, comes_and_goes, name);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    keeps(fd, name);
    faults_and_detaches(fd);
    is_refused(place);
    close(fd);
    CHECK(solera_close_place(place) == 0);
    if (failures == 0)
        puts("right");
    return failures != 0;
}
