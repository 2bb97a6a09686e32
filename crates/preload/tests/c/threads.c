// Threads that open, write, fork and close at once.
#include "say.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 200 };
static int failures[THREADS];

static void *work(void *argument) {
    long number = (long)argument;
    char path[32], bytes[64], back[64];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(path, sizeof path, "t%ld-%d", number, round % 7);
        int length = snprintf(bytes, sizeof bytes, "thread %ld round %d", number, round);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        failures[number] += write(fd, bytes, length) != length;
        failures[number] += pread(fd, back, sizeof back, 0) != length;
        failures[number] += memcmp(bytes, back, length) != 0;
        int second = dup(fd);
        failures[number] += close(fd) != 0;
        failures[number] += lseek(second, 0, SEEK_CUR) != length;
        failures[number] += close(second) != 0;
        FILE *stream = fopen(path, "r");
        failures[number] += !stream || !fgets(back, sizeof back, stream);
        failures[number] += strcmp(back, bytes) != 0;
        if (stream)
            fclose(stream);
        if (round % 50 == 0) {
            pid_t pid = fork();
            if (pid == 0) {
                int inner = open(path, O_RDONLY);
                _exit(read(inner, back, sizeof back) == length ? 0 : 1);
            }
            int status = -1;
            waitpid(pid, &status, 0);
            failures[number] += status != 0;
        }
        if (round % 7 == 6)
            failures[number] += unlink(path) != 0;
    }
    return NULL;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    for (int number = 0; number < THREADS; number++)
        SAY(failures[number]);
    return 0;
}
