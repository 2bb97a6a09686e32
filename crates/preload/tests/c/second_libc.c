// A thread that a second C library makes, in a name space of its own: the first one goes on to believe
// that it is alone. Both take the same locks and change the same files. Usage: second_libc DIRECTORY.
#include "say.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/single_threaded.h>

enum { ROUNDS = 3000 };

static int counter;
static volatile int other_is_here, wrong;

// One more in the file, under a lock of it.
static void add(int fd, int round) {
    struct flock lock = {.l_type = F_WRLCK};
    long count = 0;
    wrong += fcntl(fd, F_OFD_SETLKW, &lock) != 0;
    wrong += pread(fd, &count, sizeof count, 0) != sizeof count;
    count++;
    wrong += pwrite(fd, &count, sizeof count, 0) != sizeof count;
    lock.l_type = F_UNLCK;
    wrong += fcntl(fd, F_OFD_SETLK, &lock) != 0;
    // Without a lock: numbers, names, space.
    char name[30];
    snprintf(name, sizeof name, "made-%d-%d", fd, round % 10);
    int made = open(name, O_RDWR | O_CREAT, 0600);
    wrong += made < 0 || write(made, name, 10) != 10 || close(made) != 0;
    if (round % 3 == 0)
        wrong += unlink(name) != 0;
    // All of one file.
    wrong += write(counter, "0123456789abcdef", 16) != 16;
}

static void *works(void *unused) {
    int fd = open("locked", O_RDWR);
    other_is_here = 1;
    for (int round = 0; round < ROUNDS; round++)
        add(fd, round);
    close(fd);
    return unused;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    void *second = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!second) {
        fprintf(results, "%s\n", dlerror());
        return 1;
    }
    int (*create)(pthread_t *, void *, void *(*)(void *), void *) = dlsym(second, "pthread_create");
    int (*join)(pthread_t, void **) = dlsym(second, "pthread_join");
    long count = 0;
    int fd = open("locked", O_RDWR | O_CREAT, 0600);
    SAY(write(fd, &count, sizeof count));
    counter = open("appended", O_RDWR | O_CREAT | O_APPEND, 0600);
    pthread_t thread;
    SAY(create(&thread, NULL, works, NULL));
    while (!other_is_here)
        ;
    for (int round = 0; round < ROUNDS; round++)
        add(fd, round);
    SAY(join(thread, NULL));
    SAY(pread(fd, &count, sizeof count, 0));
    SAY(count);
    SAY(wrong);
    struct stat info;
    SAY(fstat(counter, &info));
    SAY(info.st_size);
    return 0;
}
