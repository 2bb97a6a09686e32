// Appends records of 100 bytes and overwrites the first one; says after each call that it returned.
#include "say.h"

int main(int argc, char **argv) {
    enter(argc, argv);
    int fd = open("killed", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char record[101];
    for (int at = 0;; at++) {
        snprintf(record, sizeof record, "%099d\n", at);
        if (write(fd, record, 100) != 100)
            return 1;
        if (at % 3 == 2 && pwrite(fd, record, 100, 0) != 100)
            return 2;
        if (at % 40 == 39 && fsync(fd) != 0)
            return 3;
        // To the test, which reads it before it kills.
        if (write(1, "+", 1) != 1)
            return 4;
    }
}
