// Threads that are cancelled wherever they are, and calls that fail while others use the file: of two
// stories, one ended the process without a word, the other told a wrong `errno`.
#include "say.h"
#include <pthread.h>

static int file;
static volatile int polling = 1;

static void *writes(void *argument) {
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    for (;;)
        pwrite(file, "w", 1, 3);
}

static void *bad_pointers(void *argument) {
    long failures = 0;
    while (polling)
        failures += pwrite(file, (void *)8, 10, 0) != -1 || errno != EFAULT;
    return (void *)failures;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    file = open("f", O_RDWR | O_CREAT, 0644);
    SAY(write(file, "contents and more", 17));
    void *result;
    long cancelled = 0;
    for (int round = 0; round < 1500; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, writes, NULL);
        for (volatile int pause = 0; pause < 20000 + round % 977 * 13; pause++)
            ;
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    SAY(cancelled);
    pthread_t others[3];
    for (int at = 0; at < 3; at++)
        pthread_create(&others[at], NULL, bad_pointers, NULL);
    for (int round = 0; round < 50000; round++)
        pwrite(file, "x", 1, 1);
    polling = 0;
    long failures = 0;
    for (int at = 0; at < 3; at++) {
        pthread_join(others[at], &result);
        failures += (long)result;
    }
    SAY(failures);
    return 0;
}
