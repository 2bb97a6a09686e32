// Leaves something to be recovered: 75 appends of 100 bytes to the file `killed` below DIRECTORY, of which
// 40 are synced, and overwrites of the first 100 bytes. Says so, and waits to be killed.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1]) != 0)
        return 2;
    int fd = open("killed", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char record[101];
    for (int at = 0; at < 75; at++) {
        snprintf(record, sizeof record, "%099d\n", at);
        if (write(fd, record, 100) != 100)
            return 3;
        if (at % 3 == 2 && pwrite(fd, record, 100, 0) != 100)
            return 4;
        if (at == 39 && fsync(fd) != 0)
            return 5;
    }
    if (write(1, "+", 1) != 1)
        return 6;
    for (;;)
        pause();
}
