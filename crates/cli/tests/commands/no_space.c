// Stores into every page of a new mapped file of N MiB, until there is no room: the signal ends the
// program, or its own handler does.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void ended(int signal) { _exit(signal == SIGBUS ? 7 : 8); }

int main(int count, char **arguments) {
    size_t size = strtoul(arguments[2], NULL, 10) << 20;
    int file = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, size)) return 1;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return 2;
    if (count > 3 && !strcmp(arguments[3], "handled")) signal(SIGBUS, ended);
    if (count > 3 && !strcmp(arguments[3], "ignored")) signal(SIGBUS, SIG_IGN);
    if (count > 3 && !strcmp(arguments[3], "beyond")) return map[ftruncate(file, 0) * 4096];
    for (size_t at = 0; at < size; at += 4096) map[at] = 1;
    return 0;
}
