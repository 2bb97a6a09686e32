// A process over a kernel file system that dies inside one call.
// Usage: staged DIRECTORY CALL
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MARK() __asm__ volatile("int3" ::: "memory")

static char bytes[8192];

static int put(int fd, int letter, int length, long at) {
    memset(bytes, letter, sizeof bytes);
    return (at < 0 ? write(fd, bytes, length) : pwrite(fd, bytes, length, at)) != length;
}

int main(int count, char **arguments) {
    if (count < 3 || chdir(arguments[1]) != 0)
        return 2;
    const char *call = arguments[2];
    if (strcmp(call, "look") == 0) {
        // What dead ones left was put in order before.
        MARK();
        return 0;
    }
    if (strcmp(call, "later") == 0) {
        // Another process, which writes to the same place when it is told to.
        int own = open("f", O_RDWR);
        char told;
        if (put(own, 'a', 1, 0) || write(1, "+", 1) != 1 || read(0, &told, 1) != 1)
            return 12;
        return put(own, 'Z', 3000, 1000) || close(own);
    }
    // At the end, wherever that is.
    int ends = strcmp(call, "end") == 0;
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC | (ends ? O_APPEND : 0), 0644);
    // 9,000 bytes at their place, as many staged.
    for (int each = 0; each < 6; each++)
        if (put(fd, 'a' + each, 3000, -1) || (each == 2 && fsync(fd) != 0))
            return 3;
    // What an overwrite needs is there.
    if (!ends && put(fd, 'a', 1, 0))
        return 4;
    if (strcmp(call, "power") == 0) {
        // The log is nearly full.
        for (int each = 0; each < 46; each++)
            if (put(fd, 'a', 1, 0))
                return 10;
        MARK();
        int failed = put(fd, 'A', 5000, -1);
        MARK();
        failed |= put(fd, 'B', 3000, 1000);
        MARK();
        failed |= put(fd, 'D', 300, -1);
        MARK();
        failed |= put(fd, 'C', 2000, 15000);
        MARK();
        failed |= put(fd, 'E', 6000, -1);
        MARK();
        failed |= fsync(fd);
        MARK();
        failed |= put(fd, 'F', 100, -1);
        MARK();
        failed |= close(fd);
        if (failed)
            return 11;
        MARK();
        pause();
    }
    if (strcmp(call, "over-synced") == 0 && fsync(fd) != 0)
        return 13;
    MARK();
    if (strcmp(call, "append") == 0 && put(fd, 'A', 5000, -1))
        return 5;
    if ((strcmp(call, "overwrite") == 0 || strcmp(call, "over-synced") == 0) && put(fd, 'B', 3000, 1000))
        return 6;
    if (strcmp(call, "over-staged") == 0 && put(fd, 'C', 2000, 15000))
        return 7;
    if ((strcmp(call, "fsync") == 0 || ends) && fsync(fd) != 0)
        return 8;
    if (strcmp(call, "close") == 0 && close(fd) != 0)
        return 9;
    MARK();
    pause();
}
