// A library that is initialised before the volume is attached: starts a thread that is older than
// the protection key, or (compiled with -DTAKE_KEYS) takes all keys there are.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>

static sem_t asked, done;
static void *(*work)(void *);

static void *wait_for_work(void *unused) {
    sem_wait(&asked);
    work(unused);
    sem_post(&done);
    return NULL;
}

void give_to_old_thread(void *(*given)(void *)) {
    work = given;
    sem_post(&asked);
    sem_wait(&done);
}

// The first key there is: nothing is attached yet. (An image that is executed by one that has the
// volume attached takes that over before.)
static void check_early(void) {
    if (getenv("EXECUTED"))
        return;
    int key = pkey_alloc(0, 0);
    if (key > 1)
        abort();
    if (key == 1)
        pkey_free(key);
}

__attribute__((constructor)) static void start(void) {
    check_early();
#ifdef TAKE_KEYS
    while (pkey_alloc(0, 0) >= 0)
        ;
#else
    pthread_t thread;
    sem_init(&asked, 0, 0);
    sem_init(&done, 0, 0);
    pthread_create(&thread, NULL, wait_for_work, NULL);
#endif
}
