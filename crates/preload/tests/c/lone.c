// A thread that is alone in its process cancels itself: it ends in the next call that is a
// cancellation point, whoever serves that, and in no other.
#include "say.h"
#include <pthread.h>

enum { ENDED = 7, WENT_ON = 8 };

static int ours, theirs, ends[2];

static void ended(void *nothing) {
    _exit(ENDED);
}

static void calls(int which) {
    char byte = 'x';
    struct stat status;
    switch (which) {
    case 0: read(ends[0], &byte, 1); break;
    case 1: write(ends[1], &byte, 1); break;
    case 2: pread(theirs, &byte, 1, 0); break;
    case 3: read(ours, &byte, 1); break;
    case 4: pwrite(ours, &byte, 1, 0); break;
    case 5: close(open("/", O_RDONLY | O_DIRECTORY)); break;
    case 6: close(theirs); break;
    case 7: lseek(theirs, 0, SEEK_SET); break;
    case 8: fstat(theirs, &status); break;
    case 9: stat("/", &status); break;
    }
}

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(ours = open("f", O_RDWR | O_CREAT, 0644));
    SAY(write(ours, "contents", 8));
    SAY(theirs = open("/proc/version", O_RDONLY));
    SAY(pipe(ends));
    SAY(write(ends[1], "contents", 8));
    for (int which = 0; which < 10; which++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_cleanup_push(ended, NULL);
            pthread_cancel(pthread_self());
            calls(which);
            pthread_cleanup_pop(0);
            _exit(WENT_ON);
        }
        int status;
        waitpid(child, &status, 0);
        SAY(status >> 8);
    }
    return 0;
}
