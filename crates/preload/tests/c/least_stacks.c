// Threads with the least stack that the C library gives, and handlers on small alternate stacks, beneath
// which nothing is mapped, that use stdio and names. Prints what they see.
#include "say.h"
#include <pthread.h>
#include <sys/auxv.h>

static int file;

static char *fenced(size_t size) {
    char *all = mmap(NULL, size + 2 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + 65536, size, PROT_READ | PROT_WRITE);
    return all + 65536;
}

static volatile long length, entries;

static void by_numbers(void) {
    char bytes[100] = "";
    struct stat info;
    struct flock lock = {.l_type = F_WRLCK};
    int fd = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600);
    length = write(fd, "twelve bytes", 12);
    length += pread(fd, bytes, sizeof bytes, 2);
    length += fstat(fd, &info) + info.st_size + fcntl(fd, F_OFD_SETLKW, &lock) + flock(fd, LOCK_EX);
    length += ftruncate(fd, 65536) + fsync(fd);
    char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    length += at[40000] + (at[50000] = 1);
    length += munmap(at, 65536) + close(fd) + rename("numbers", "renamed") + unlink("renamed");
    length += mkdir("made", 0700) + symlink("file", "link") + stat("link", &info);
    length += unlink("link") + rmdir("made");
}

static void by_streams(void) {
    char line[50] = "";
    FILE *stream = fopen("stream", "w+");
    fprintf(stream, "%d and %s\n", 17, "some text");
    rewind(stream);
    length = fgets(line, sizeof line, stream) ? strlen(line) : -1;
    fclose(stream);
    unlink("stream");
}

static void by_directory(void) {
    DIR *directory = opendir(".");
    for (entries = 0; directory && readdir(directory);)
        entries++;
    closedir(directory);
}

static void (*const ways[])(void) = {by_numbers, by_streams, by_directory};
static int way;

static void on_signal(int signal) {
    (void)signal;
    ways[way]();
}

static void *thread(void *how) {
    way = *(int *)how % 3;
    if (*(int *)how < 3)
        ways[way]();
    else
        raise(SIGUSR1);
    return NULL;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    file = open("file", O_RDWR | O_CREAT, 0600);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    SAY(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    // In threads with the least stack; from 3 on in a handler on that stack.
    for (int how = 0; how < 5; how++) {
        pthread_t one;
        length = entries = 0;
        SAY(pthread_create(&one, &attributes, thread, &how));
        SAY(pthread_join(one, NULL));
        SAY(length);
        SAY(entries);
    }
    // On alternate stacks: what the kernel wants for its frame, and so much more.
    long frame = getauxval(AT_MINSIGSTKSZ);
    frame = frame ? frame : MINSIGSTKSZ;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    for (int more = 4096; more <= 16384; more *= 2) {
        size_t size = (frame + more + 4095) / 4096 * 4096;
        stack_t stack = {.ss_sp = fenced(size), .ss_size = size};
        SAY(sigaltstack(&stack, NULL));
        for (way = 0; way < 3; way++) {
            length = entries = 0;
            fprintf(results, "%d more, way %d\n", more, way);
            fflush(results);
            SAY(raise(SIGUSR1));
            SAY(length);
            SAY(entries);
        }
    }
    return 0;
}
