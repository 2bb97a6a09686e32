// Buffers of reads and writes that lie in mappings of the same file, of another, of a hole, of what
// is being truncated; each call must end, and give what the kernel gives.
#include "say.h"
#include <pthread.h>

#define PAGE 4096
#define SIZE (64 * PAGE)

static int same, other;

static void fill(int fd, int seed) {
    char *data = malloc(SIZE);
    for (int at = 0; at < SIZE; at++)
        data[at] = at * 7 + (at >> 12) * 13 + seed;
    if (pwrite(fd, data, SIZE, 0) != SIZE)
        fprintf(results, "cannot fill: %s\n", strerrorname_np(errno));
    free(data);
}

// A number that any change of the file changes.
static unsigned sum(int fd) {
    struct stat st;
    fstat(fd, &st);
    unsigned char *data = calloc(1, st.st_size + 1);
    pread(fd, data, st.st_size, 0);
    unsigned value = st.st_size;
    for (long at = 0; at < st.st_size; at++)
        value = value * 16777619 + data[at];
    free(data);
    return value;
}

// Copies within one file by way of its mapping: source, target, length.
static void within(char *map, long from, long to, long len) {
    fill(same, 1);
    ssize_t wrote = pwrite(same, map + from, len, to);
    fprintf(results, "write %ld to %ld, %ld: %zd, %x\n", from, to, len, wrote, sum(same));
    fill(same, 1);
    ssize_t got = pread(same, map + to, len, from);
    fprintf(results, "read %ld to %ld, %ld: %zd, %x\n", from, to, len, got, sum(same));
}

static void between(char *map, long from, long to, long len) {
    fill(same, 1);
    fill(other, 2);
    ssize_t wrote = pwrite(other, map + from, len, to);
    fprintf(results, "write other %ld to %ld, %ld: %zd, %x\n", from, to, len, wrote, sum(other));
    ssize_t got = pread(other, map + to, len, from);
    fprintf(results, "read other %ld to %ld, %ld: %zd, %x\n", from, to, len, got, sum(same));
}

static void growing(char *map) {
    // The source is the file's own beginning, the target its end: it grows under the mapping.
    fill(same, 3);
    int end = open("same", O_WRONLY | O_APPEND);
    for (int turn = 0; turn < 3; turn++)
        SAY(write(end, map + turn * 5000, 70000));
    close(end);
    fprintf(results, "%x\n", sum(same));
    SAY(ftruncate(same, SIZE));
    // Beyond the end there is nothing to read from.
    SAY(ftruncate(same, 10 * PAGE));
    SAY(pwrite(other, map + 9 * PAGE, 2 * PAGE, 0));
    SAY(pwrite(other, map + 10 * PAGE, 2 * PAGE, 0));
    SAY(pread(other, map + 9 * PAGE + 100, 2 * PAGE, 0));
    SAY(pread(other, map + 11 * PAGE, 2 * PAGE, 0));
    SAY(pwrite(same, map + 8 * PAGE, 2 * PAGE, 10 * PAGE));
    fprintf(results, "%x\n", sum(same));
    SAY(ftruncate(same, SIZE));
    // Each way of making a file shorter and longer again.
    SAY(truncate("same", 5 * PAGE));
    SAY(pwrite(other, map + 3 * PAGE, 8 * PAGE, 0));
    SAY(truncate("same", 9 * PAGE));
    SAY(pwrite(other, map + 3 * PAGE, 8 * PAGE, 0));
    close(open("same", O_WRONLY | O_TRUNC));
    SAY(pwrite(other, map, PAGE, 0));
    SAY(fallocate(same, 0, 0, 2 * PAGE));
    SAY(pwrite(other, map, 4 * PAGE, 0));
    fill(same, 3);
    SAY(pwrite(other, map, SIZE, 0));
    fprintf(results, "%x\n", sum(other));
}

static void holes(void) {
    int sparse = open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SAY(ftruncate(sparse, SIZE));
    SAY(pwrite(sparse, "island", 6, 33 * PAGE));
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, sparse, 0);
    fill(other, 4);
    SAY(pwrite(other, map + 30 * PAGE, 5 * PAGE, 100));
    fprintf(results, "%x\n", sum(other));
    SAY(pread(other, map + 3 * PAGE + 9, 9 * PAGE, 1));
    fprintf(results, "%x\n", sum(sparse));
    SAY(pread(sparse, map, 20 * PAGE, 20 * PAGE));
    fprintf(results, "%x\n", sum(sparse));
    SAY(pwrite(sparse, map + 33 * PAGE, PAGE, 60 * PAGE));
    fprintf(results, "%x\n", sum(sparse));
    munmap(map, SIZE);
    close(sparse);
}

static void private(void) {
    fill(same, 5);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, same, 0);
    memset(map + PAGE, 'p', PAGE);
    SAY(pwrite(same, map, 3 * PAGE, 10 * PAGE));
    fprintf(results, "%x\n", sum(same));
    SAY(pread(same, map + 5 * PAGE + 5, 3 * PAGE, 0));
    unsigned value = 0;
    for (int at = 0; at < 9 * PAGE; at++)
        value = value * 31 + (unsigned char)map[at];
    fprintf(results, "%x %x\n", value, sum(same));
    munmap(map, SIZE);
    map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, same, 0);
    SAY(pread(other, map, 10, 0));
    SAY(pwrite(other, map, 10, 0));
    munmap(map, SIZE);
}

static void *copies(void *given) {
    char *map = given;
    for (int turn = 0; turn < 300; turn++) {
        pwrite(same, map + turn % 8 * PAGE, 3 * PAGE, (40 + turn % 9) * PAGE);
        pread(same, map + (20 + turn % 8) * PAGE, 3 * PAGE, turn % 5 * PAGE);
    }
    return NULL;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    same = open("same", O_RDWR | O_CREAT | O_TRUNC, 0600);
    other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
    fill(same, 1);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, same, 0);
    long lengths[] = {1, 100, 1000, 4096, 5000, 20 * PAGE};
    for (int at = 0; at < 6; at++) {
        within(map, 0, 30 * PAGE, lengths[at]);
        within(map, 30 * PAGE + 7, 70, lengths[at]);
        within(map, 10 * PAGE, 10 * PAGE, lengths[at]);
        within(map, 777, 777, lengths[at]);
        // Overlapping, downwards.
        within(map, 12 * PAGE, 8 * PAGE, lengths[at]);
        within(map, 12 * PAGE + 300, 12 * PAGE, lengths[at]);
        between(map, 0, 0, lengths[at]);
        between(map, 4097, 30, lengths[at]);
    }
    growing(map);
    holes();
    private();
    fill(same, 6);
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, copies, map);
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
    struct stat st;
    fstat(same, &st);
    SAY(st.st_size);
    return 0;
}
