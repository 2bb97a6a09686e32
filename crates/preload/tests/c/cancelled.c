// A thread that is cancelled at an instruction of a call. Who traces this program brings the thread
// there; commands come on standard input, and what became of it is told at marks: `int3`, with a text
// in rax. Usage: cancelled DIRECTORY.
//
// A command: the letter of a call; D or A, the type of cancellation; n or m, the stack of the usual size
// or the least. The thread marks "victim" before its call and "returned" behind it. Then come, as often
// as wanted, s (this thread changes the user, which all threads take part in; marks "set"), u (it sends
// the thread a signal, whose handler makes calls; marks "sent"), h (the same, and the handler stays),
// b (it makes calls itself; marks "worked"), and once c (it cancels the thread, marks "cancelled", joins
// it and marks what it sees).
#include "say.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define MARK(text) asm volatile("int3" : : "a"(text) : "memory")

enum { BYTES = 6000 };

static int file, base, ends[2], fifo, mine, directory;
static FILE *stream;
static char buffer[4096], call, type, stack_of, order[16];
static volatile int begun, steps;
static volatile long value, failed;
static volatile pid_t child;

static void note(char what) {
    char text[2] = {what, 0};
    strcat(order, text);
}

static void cleanup(void *what) {
    note(*(char *)what);
}

static void destroy(int *object) {
    (void)object;
    note('d');
}

static __attribute__((noinline)) void make(void) {
    char bytes[8] = "....";
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
    struct iovec parts[2] = {{"wo", 2}, {"rd", 2}}, rooms[2] = {{bytes, 2}, {bytes + 2, 2}};
    struct pollfd polled = {ends[0], POLLIN, 0};
    char names[1024];
    begun = 1;
    MARK("victim");
    switch (call) {
    case 'r':
        value = read(file, bytes, 4);
        break;
    case 'w':
        value = write(file, "word", 4);
        break;
    case 'p':
        value = read(ends[0], bytes, 4);
        break;
    case 'f':
        value = read(fifo, bytes, 4);
        break;
    case 'l':
        value = fcntl(file, F_SETLKW, &lock);
        break;
    case 'o':
        value = open("file", O_RDONLY);
        steps++;
        value = close(value);
        break;
    case 'g':
        value = fgetc(stream);
        break;
    case 'k':
        value = read(file, bytes, 4);
        steps++;
        child = fork();
        if (child == 0)
            _exit(0);
        value = child > 0 ? 1 : child;
        break;
    case 'v':
        value = writev(file, parts, 2);
        break;
    case 'V':
        value = preadv(file, rooms, 2, 1);
        break;
    case 'e':
        value = sendfile(ends[1], file, NULL, 4);
        break;
    case 'd':
        value = getdents64(directory, names, sizeof names);
        break;
    case 'P':
        value = poll(&polled, 1, -1);
        break;
    default:
        value = splice(ends[0], NULL, file, NULL, 4, 0);
    }
    failed = value < 0 ? errno : 0;
    steps++;
    MARK("returned");
}

static __attribute__((noinline)) void inner(void) {
    int object __attribute__((cleanup(destroy))) = 0;
    pthread_cleanup_push(cleanup, "i");
    make();
    for (;;)
        pause();
    pthread_cleanup_pop(0);
}

static void *victim(void *unused) {
    int old;
    pthread_cleanup_push(cleanup, "o");
    pthread_setcanceltype(type == 'A' ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old);
    inner();
    pthread_cleanup_pop(0);
    return unused;
}

// What is wrong with the C library's or the library's locks would hang here.
static int all_is_free(void) {
    char byte;
    int fd = open("other", O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK};
    int good = fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && pread(fd, &byte, 1, 0) == 1;
    good = good && fcntl(fd, F_OFD_SETLK, &lock) == 0 && rename("other", "another") == 0;
    return good && unlink("another") == 0 && close(fd) == 0;
}

static void handle(int number) {
    int before = errno;
    note(all_is_free() ? 'h' : 'x');
    errno = before;
}

static void stay(int number) {
    handle(number);
    for (;;)
        pause();
}

static int lowest(void) {
    int fd = dup(0);
    close(fd);
    return fd;
}

static void prepare(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
    lseek(file, 0, SEEK_SET);
    pwrite(file, "contents", 8, 0);
    pipe(ends);
    if (call == 'S')
        write(ends[1], "pipe", 4);
    fcntl(mine, F_OFD_SETLK, &lock);
    stream = fdopen(open("file", O_RDONLY), "r");
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    directory = open(".", O_RDONLY | O_DIRECTORY);
    base = lowest();
    order[0] = begun = steps = value = failed = 0;
}

// What became of it.
static const char *judged(void *result) {
    static char text[400];
    char bytes[12] = "", taken = 0, piped[8] = "";
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
    fcntl(mine, F_OFD_SETLK, &lock);
    lock.l_type = F_WRLCK;
    fcntl(mine, F_OFD_GETLK, &lock);
    int left = 0;
    for (; lowest() > base; left++)
        close(base);
    taken = ftrylockfile(stream) != 0;
    long at = taken ? -1 : ftell(stream);
    if (!taken)
        funlockfile(stream);
    pread(file, bytes, 8, 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    read(ends[0], piped, 4);
    snprintf(text, sizeof text,
             "outcome: %s, order %s, steps %d, value %ld, failed %ld, at %ld, has %s, piped %s, "
             "lock %d, numbers %d, stream %s at %ld from %ld, %s",
             result == PTHREAD_CANCELED ? "cancelled" : "NOT cancelled", order, steps, value, failed,
             (long)lseek(file, 0, SEEK_CUR), bytes, piped, lock.l_type != F_UNLCK, left,
             taken ? "locked" : "free", at, (long)lseek(fileno(stream), 0, SEEK_CUR),
             all_is_free() ? "all free" : "NOT free");
    close(ends[0]), close(ends[1]), close(directory);
    if (child > 0)
        waitpid(child, NULL, 0);
    child = 0;
    // A process's locks go when it closes the file.
    if (taken)
        close(fileno(stream));
    else
        fclose(stream);
    return text;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    static char all[BYTES];
    memset(all, 'f', sizeof all);
    write(file, all, sizeof all);
    mine = open("file", O_RDWR);
    mkfifo("fifo", 0600);
    fifo = open("fifo", O_RDWR);
    // A child's end is no news.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = stay;
    sigaction(SIGUSR2, &action, NULL);
    for (char letters[3]; read(0, letters, 3) == 3;) {
        call = letters[0], type = letters[1], stack_of = letters[2];
        prepare();
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (stack_of == 'm')
            pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
        if (pthread_create(&thread, &attributes, victim, NULL) != 0)
            MARK("outcome: no thread");
        char how;
        while (read(0, &how, 1) == 1 && how != 'c') {
            if (how == 's') {
                setuid(getuid());
                MARK("set");
            } else if (how == 'u' || how == 'h') {
                pthread_kill(thread, how == 'u' ? SIGUSR1 : SIGUSR2);
                MARK("sent");
            } else {
                MARK(all_is_free() ? "worked" : "NOT worked");
            }
        }
        pthread_cancel(thread);
        MARK("cancelled");
        void *result;
        pthread_join(thread, &result);
        MARK(judged(result));
    }
    return 0;
}
