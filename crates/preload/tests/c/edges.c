// The second engine at its limits: few windows, a small log, no room, no right to write.
// Usage: edges DIRECTORY PART; each line of output must be the kernel's.
#include "say.h"
#include <sys/resource.h>

static char bytes[1 << 16];

static void fill(int seed) {
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (char)(1 + (at * 31 + seed) % 250);
}

static unsigned long sum(const char *path) {
    static char buffer[1 << 16];
    unsigned long sum = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t at = 0; at < got; at++)
            sum = sum * 31 + buffer[at];
    close(fd);
    return sum;
}

// Whole blocks: nothing of them need be copied.
static void aligned(void) {
    int fd = open("aligned", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 64; round++) {
        fill(round);
        SAY(write(fd, bytes, 4096 * (1 + round % 3)));
        if (round % 8 == 7)
            SAY(fsync(fd));
    }
    SAY(close(fd));
    SAY(sum("aligned"));
}

// Many more parts of a file in use than windows may be.
static void windows(void) {
    int fd = open("windows", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 640; round++) {
        fill(round);
        if (write(fd, bytes, sizeof bytes) != sizeof bytes)
            SAY(round);
    }
    SAY(fsync(fd));
    unsigned random = 1;
    long all = 0;
    for (int round = 0; round < 500; round++) {
        random = random * 1103515245 + 12345;
        off_t at = (random >> 4) % (640 * sizeof bytes - 5000);
        char back[5000];
        if (round % 3 == 0)
            all += pwrite(fd, bytes + round, sizeof back, at);
        all += pread(fd, back, sizeof back, at);
        all = all * 31 + back[round * 9];
    }
    SAY(all);
    SAY(close(fd));
    SAY(sum("windows"));
}

// More writes than the log has entries.
static void logged(void) {
    int fd = open("logged", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int round = 0; round < 600; round++) {
        fill(round);
        if (write(fd, bytes, 100) != 100 || pwrite(fd, bytes, 50, round * 7) != 50)
            SAY(round);
    }
    SAY(sum("logged"));
    SAY(close(fd));
    SAY(sum("logged"));
}

// No room: whatever was said to be written is there when there is room again.
static void full(void) {
    int ballast = open("ballast", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(posix_fallocate(ballast, 0, 12 << 20));
    int fd = open("full", O_RDWR | O_CREAT | O_TRUNC, 0644);
    long wrote = 0;
    for (;;) {
        fill(wrote / sizeof bytes);
        ssize_t now = write(fd, bytes, sizeof bytes);
        if (now < 0)
            break;
        wrote += now;
        if (now < (ssize_t)sizeof bytes)
            break;
    }
    SAY(wrote > 1 << 20);
    // Either way, and what could not go to its place at a close is there for who opens the file again.
    fsync(fd);
    close(fd);
    fd = open("full", O_RDWR);
    SAY(lseek(fd, 0, SEEK_END) == wrote);
    struct stat stat;
    SAY(fstat(fd, &stat) == 0 && stat.st_size == wrote);
    char back[4096];
    long bad = 0;
    for (int again = 0; again < 2; again++) {
        for (long at = 0; at + 4096 <= wrote; at += 4096) {
            fill(at / sizeof bytes);
            bad += pread(fd, back, 4096, at) != 4096 || memcmp(back, bytes + at % sizeof bytes, 4096);
        }
        SAY(bad);
        SAY(close(ballast) | truncate("ballast", 0));
        ballast = open("ballast", O_RDONLY);
        SAY(fsync(fd));
    }
    SAY(write(fd, "more", 4));
    SAY(close(fd));
    SAY(lstat("full", &stat) == 0 && stat.st_size == wrote + 4);
}

// No room for another entry of the log, nor for the bytes that it would speak of.
static void full_log(void) {
    int fd = open("logged", O_RDWR | O_CREAT | O_TRUNC, 0644);
    fill(1);
    SAY(write(fd, bytes, sizeof bytes));
    SAY(fsync(fd));
    SAY(pwrite(fd, bytes, 5000, 700));
    int ballast = open("ballast", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t end = 0;
    for (off_t piece = 1 << 20; piece >= 4096; piece /= 2)
        while (posix_fallocate(ballast, end, piece) == 0)
            end += piece;
    long bad = 0;
    for (int round = 0; round < 400; round++) {
        fill(round);
        // One in eight is longer than any before.
        size_t length = round % 8 == 7 ? 40000 : 5000;
        bad += pwrite(fd, bytes, length, round * 631 % (sizeof bytes - length)) != (ssize_t)length;
    }
    SAY(bad);
    SAY(fsync(fd));
    SAY(sum("logged"));
    // Appends may be staged still, or not: what was said to be written is there.
    long wrote = 0;
    for (ssize_t now; wrote < 1 << 20 && (now = write(fd, bytes, 1000)) > 0;)
        wrote += now;
    SAY(ftruncate(ballast, 0));
    SAY(fsync(fd));
    SAY(lseek(fd, 0, SEEK_END) == (long)sizeof bytes + wrote);
    char back[1000];
    for (long at = 0; at < wrote; at += 1000) {
        long length = wrote - at < 1000 ? wrote - at : 1000;
        bad += pread(fd, back, length, sizeof bytes + at) != length || memcmp(back, bytes, length);
    }
    SAY(bad);
    SAY(close(fd) | close(ballast));
}

static long of_status(const char *what) {
    char line[200];
    long found = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, what, strlen(what)) == 0)
            found = atol(line + strlen(what));
    fclose(status);
    return found;
}

// Many files, many parts of a large one, many appends: what that takes is written to a file.
static void heavy(void) {
    enum { FILES = 2000, PARTS = 4000, APPENDS = 400000 };
    struct rlimit limit = {3 * FILES, 3 * FILES};
    setrlimit(RLIMIT_NOFILE, &limit);
    mkdir("many", 0755);
    fill(1);
    long before = of_status("RssAnon:"), all = 0;
    static int open_files[FILES];
    char name[40];
    for (int file = 0; file < FILES; file++) {
        snprintf(name, sizeof name, "many/%d", file);
        open_files[file] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        all += pwrite(open_files[file], bytes, 10, 0) + fsync(open_files[file]);
        all += pwrite(open_files[file], bytes, 5, 2);
    }
    int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long part = 0; part < PARTS; part++)
        all += pwrite(fd, bytes, 4096, part << 21);
    for (long part = 0; part < PARTS; part++)
        all += pread(fd, bytes, 4096, part << 21);
    int log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    for (int append = 0; append < APPENDS; append++)
        all += write(log, bytes, 60);
    SAY(all);
    FILE *told = fopen("memory", "w");
    fprintf(told, "%ld %ld\n", of_status("RssAnon:") - before, of_status("VmPTE:"));
    fclose(told);
    for (int file = 0; file < FILES; file++)
        close(open_files[file]);
    SAY(close(fd) | close(log));
    SAY(sum("log"));
    SAY(truncate("large", 0) | truncate("log", 0));
}

// Only read, by whoever may not do more.
static void reads(void) {
    int fd = open("given", O_RDONLY);
    for (int round = 0; round < 5; round++)
        SAY(pread(fd, bytes, 5000, round * 3000));
    SAY(open("given", O_RDWR));
    SAY(open("new", O_RDWR | O_CREAT, 0644));
    SAY(sum("given"));
    SAY(close(fd));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    const char *part = argv[2];
    if (strcmp(part, "aligned") == 0)
        aligned();
    if (strcmp(part, "windows") == 0)
        windows();
    if (strcmp(part, "logged") == 0)
        logged();
    if (strcmp(part, "full") == 0)
        full();
    if (strcmp(part, "full-log") == 0)
        full_log();
    if (strcmp(part, "reads") == 0)
        reads();
    if (strcmp(part, "heavy") == 0)
        heavy();
    return 0;
}
