// Threads that open, copy and close numbers at once: no number is given out twice, none is lost,
// none stands for another file, and the lowest free one is given while the others are quiet.
#include "say.h"
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { THREADS = 5, ROUNDS = 5000, NUMBERS = 1024, TURNS = 6000, RACES = 3000, BURSTS = 40 };

static long twice, not_held, foreign, failed, wrong_flag, in_child, too_high;
static ino_t inodes[THREADS + 1];
static dev_t device, null_device;
static int holders[NUMBERS];

static void count(long *of, int wrong) {
    if (wrong)
        __atomic_fetch_add(of, 1, __ATOMIC_RELAXED);
}

static unsigned next(unsigned *state) {
    *state = *state * 1103515245 + 12345;
    return *state >> 16;
}

static const char *name_of(int who) {
    static const char *names[] = {"file-0", "file-1", "file-2", "file-3", "file-4", "handlers"};
    return names[who];
}

static int is_own(int fd, int who) {
    struct stat is;
    return fstat(fd, &is) == 0 && is.st_ino == inodes[who] && is.st_dev == device;
}

static int is_null(int fd) {
    struct stat is;
    return fstat(fd, &is) == 0 && S_ISCHR(is.st_mode) && is.st_rdev == null_device;
}

static int is_of(int fd, int type) {
    struct stat is;
    return fstat(fd, &is) == 0 && (is.st_mode & S_IFMT) == type;
}

// From the call that gave the number until the one that closes it nobody else may get it.
static int got(int fd, int who) {
    if (fd < 0 || fd >= NUMBERS) {
        count(&failed, 1);
        return -1;
    }
    count(&twice, __atomic_exchange_n(&holders[fd], who + 1, __ATOMIC_SEQ_CST) != 0);
    return fd;
}

static void gives(int fd, int who) {
    count(&not_held, __atomic_exchange_n(&holders[fd], 0, __ATOMIC_SEQ_CST) != who + 1);
}

static void closes(int fd, int who) {
    if (fd < 0)
        return;
    gives(fd, who);
    count(&failed, close(fd) != 0);
}

static int opens(int who, int flags) {
    int fd = got(open(name_of(who), O_RDWR | flags, 0600), who);
    count(&foreign, !is_own(fd, who));
    count(&wrong_flag, fcntl(fd, F_GETFD) != (flags & O_CLOEXEC ? FD_CLOEXEC : 0));
    return fd;
}

static void handles(int signal) {
    int error = errno, fd = open("handlers", O_RDONLY);
    got(fd, THREADS);
    count(&foreign, !is_own(fd, THREADS));
    gives(fd, THREADS);
    count(&failed, close(fd) != 0 || signal != SIGALRM);
    errno = error;
}

static void forks(int who) {
    int held = opens(who, 0);
    pid_t child = fork();
    if (child == 0) {
        // It has one thread.
        int wrong = !is_own(held, who), fd = open(name_of(who), O_RDONLY);
        wrong |= !is_own(fd, who) || close(fd);
        int null = open("/dev/null", O_RDONLY);
        wrong |= null != fd || !is_null(null) || close(null);
        int again = open(name_of(who), O_RDONLY), more = open(name_of(who), O_RDONLY);
        wrong |= again != fd || more <= fd || !is_own(again, who) || !is_own(more, who);
        _exit(wrong);
    }
    int status = -1;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR) {}
    count(&in_child, child < 0 || status != 0);
    closes(held, who);
}

static void sends(int who) {
    int pair[2], fd = opens(who, 0), copy;
    count(&failed, socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0);
    got(pair[0], who), got(pair[1], who);
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    count(&failed, sendmsg(pair[0], &message, 0) != 1);
    closes(fd, who);
    count(&failed, recvmsg(pair[1], &message, 0) != 1);
    memcpy(&copy, CMSG_DATA(head), sizeof copy);
    got(copy, who);
    count(&foreign, !is_own(copy, who));
    closes(pair[0], who), closes(pair[1], who), closes(copy, who);
}

static void one(int who, unsigned choice) {
    int fd, other, pair[2];
    FILE *stream;
    DIR *list;
    switch (choice % 16) {
    default:
        closes(opens(who, choice & 64 ? O_CLOEXEC : 0), who);
        break;
    case 5:
        closes(opens(who, O_CREAT), who);
        break;
    case 6:
        fd = opens(who, 0), other = opens(who, O_CLOEXEC);
        closes(choice & 64 ? fd : other, who);
        closes(choice & 64 ? other : fd, who);
        break;
    case 7:
        fd = got(open("/dev/null", O_RDWR), who);
        count(&foreign, !is_null(fd));
        closes(fd, who);
        break;
    case 8:
        count(&failed, pipe(pair) != 0);
        got(pair[0], who), got(pair[1], who);
        count(&foreign, !is_of(pair[0], S_IFIFO) || !is_of(pair[1], S_IFIFO));
        closes(pair[choice >> 6 & 1], who), closes(pair[~choice >> 6 & 1], who);
        break;
    case 9:
        // Onto a number of its own: the volume's over the kernel's, and the other way round.
        fd = opens(who, 0), other = got(open("/dev/null", O_RDWR), who);
        if (choice & 64) {
            count(&failed, dup2(fd, other) != other);
            count(&foreign, !is_own(other, who));
        } else {
            count(&failed, dup2(other, fd) != fd);
            count(&foreign, !is_null(fd));
        }
        closes(fd, who), closes(other, who);
        break;
    case 10:
        fd = opens(who, 0);
        count(&failed, close_range(fd, fd, CLOSE_RANGE_CLOEXEC) != 0);
        count(&wrong_flag, fcntl(fd, F_GETFD) != FD_CLOEXEC);
        count(&foreign, !is_own(fd, who));
        gives(fd, who);
        count(&failed, close_range(fd, fd, 0) != 0);
        break;
    case 11:
        stream = fopen(choice & 64 ? name_of(who) : "/dev/null", "r");
        fd = got(fileno(stream), who);
        count(&foreign, choice & 64 ? !is_own(fd, who) : !is_null(fd));
        gives(fd, who);
        count(&failed, fclose(stream) != 0);
        break;
    case 12:
        list = opendir(choice & 64 ? "." : "/");
        fd = got(dirfd(list), who);
        count(&foreign, !is_of(fd, S_IFDIR));
        gives(fd, who);
        count(&failed, closedir(list) != 0);
        break;
    case 13:
        fd = opens(who, 0), other = got(dup(fd), who);
        count(&foreign, !is_own(other, who));
        closes(fd, who), closes(other, who);
        break;
    case 14:
        if (choice & 64)
            sends(who);
        else
            getpwuid_r(0, &(struct passwd){0}, (char[4096]){0}, 4096, &(struct passwd *){0});
        break;
    case 15:
        if ((choice & 0x3c0) == 0)
            forks(who);
        break;
    }
}

static void *works(void *argument) {
    int who = (int)(long)argument;
    unsigned state = who * 77 + 1;
    for (int round = 0; round < ROUNDS; round++)
        one(who, next(&state));
    return NULL;
}

static void at_once(void) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = handles, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (long who = 0; who < THREADS; who++)
        pthread_create(&threads[who], NULL, works, (void *)who);
    for (int who = 0; who < THREADS; who++)
        pthread_join(threads[who], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
}

// ---- the lowest number, by threads that take turns

static pthread_barrier_t turn;
static char open_now[NUMBERS];
static FILE *streams[NUMBERS];

static void learn(void) {
    for (int fd = 0; fd < NUMBERS; fd++)
        open_now[fd] = fcntl(fd, F_GETFD) != -1;
}

static void was_lowest(int fd) {
    int lowest = 0;
    while (open_now[lowest])
        lowest++;
    count(&too_high, fd != lowest);
    if (fd >= 0)
        open_now[fd] = 1;
}

static void takes_or_gives(unsigned choice, int first) {
    int fd = first + choice / 16 % 12, pair[2];
    if (open_now[fd]) {
        if (choice % 16 == 0) {
            was_lowest(dup(fd));
            return;
        }
        count(&failed, streams[fd]        ? fclose(streams[fd]) != 0
                       : choice % 16 == 1 ? close_range(fd, fd, 0) != 0
                                          : close(fd) != 0);
        streams[fd] = NULL;
        open_now[fd] = 0;
        return;
    }
    switch (choice % 16) {
    default:
        was_lowest(open("file-0", O_RDONLY | (choice & 256 ? O_CLOEXEC : 0)));
        break;
    case 10:
        was_lowest(open("/dev/null", O_RDONLY));
        break;
    case 11:
        count(&failed, pipe(pair) != 0);
        was_lowest(pair[0]), was_lowest(pair[1]);
        break;
    case 12:
        count(&failed, dup2(choice & 256 ? 1 : first, fd) != (choice & 256 || open_now[first] ? fd : -1));
        open_now[fd] = choice & 256 || open_now[first];
        break;
    case 13: {
        FILE *stream = fopen(choice & 256 ? "file-0" : "/dev/null", "r");
        was_lowest(fileno(stream));
        streams[fileno(stream)] = stream;
        break;
    }
    case 14:
        was_lowest(socket(AF_UNIX, SOCK_STREAM, 0));
        break;
    case 15:
        was_lowest(open("file-0", O_RDWR | O_CREAT, 0600));
    }
}

static int first_free;

static void *takes_turns(void *argument) {
    long who = (long)argument;
    unsigned state = 7;
    for (int at = 0; at < TURNS; at++) {
        unsigned choice = next(&state);
        if (choice / 8 % 3 == who)
            takes_or_gives(next(&state), first_free);
        else
            next(&state);
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static void in_turns(void) {
    pthread_t threads[3];
    pthread_barrier_init(&turn, NULL, 3);
    learn();
    first_free = 0;
    while (open_now[first_free])
        first_free++;
    for (long who = 0; who < 3; who++)
        pthread_create(&threads[who], NULL, takes_turns, (void *)who);
    for (int who = 0; who < 3; who++)
        pthread_join(threads[who], NULL);
    for (int fd = first_free; fd < 100; fd++)
        if (open_now[fd])
            streams[fd] ? fclose(streams[fd]) : close(fd);
}

// ---- the lowest number after glibc has used numbers inside itself

static volatile int burst, quiet;

static void *looks_up(void *none) {
    for (int at = 1; at <= BURSTS; at++) {
        while (burst < at)
            sched_yield();
        while (quiet < at)
            getpwuid_r(0, &(struct passwd){0}, (char[4096]){0}, 4096, &(struct passwd *){0});
        pthread_barrier_wait(&turn);
    }
    return none;
}

static void after_others(void) {
    pthread_t thread;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&thread, NULL, looks_up, NULL);
    for (int at = 1; at <= BURSTS; at++) {
        burst = at;
        int held[4];
        for (int round = 0; round < 50; round++)
            for (int which = 0; which < 4; which++) {
                if (round)
                    count(&failed, close(held[which]) != 0);
                held[which] = open("file-0", O_RDONLY);
            }
        quiet = at;
        pthread_barrier_wait(&turn);
        learn();
        for (int which = 0; which < 4; which++) {
            close(held[which]), open_now[held[which]] = 0;
            was_lowest(held[which] = open("file-0", O_RDONLY));
        }
        for (int which = 0; which < 4; which++)
            close(held[which]);
    }
    pthread_join(thread, NULL);
}

// ---- two threads and the same number

static int target, from, answers[2];

static void *races(void *kind) {
    for (int at = 0; at < RACES; at++) {
        pthread_barrier_wait(&turn);
        for (volatile int wait = at * 7 % 300; wait; wait--) {}
        answers[1] = kind ? dup2(from, target) : close(target);
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

// Both close it: one of them does. Or one closes what the other one replaces: whichever comes first,
// it is closed, or the new file's.
static void at_the_same(int replaces) {
    pthread_t thread;
    long closed = 0, strange = 0;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&thread, NULL, races, replaces ? &target : NULL);
    from = open("/dev/null", O_RDWR);
    for (int at = 0; at < RACES; at++) {
        int ours = replaces || at % 2;
        target = ours ? open("file-0", O_RDWR) : open("/dev/null", O_RDWR);
        pthread_barrier_wait(&turn);
        for (volatile int wait = at * 11 % 300; wait; wait--) {}
        answers[0] = close(target);
        pthread_barrier_wait(&turn);
        closed += answers[0] == 0;
        if (replaces) {
            closed += answers[1] == target;
            int left = fcntl(target, F_GETFD) != -1;
            strange += left && !is_null(target);
            if (left)
                close(target);
        } else {
            closed += answers[1] == 0;
        }
        // Both calls are over: nothing of them is left.
        int one = open("file-0", O_RDWR), null = open("/dev/null", O_RDWR);
        strange += one != target || null == one || !is_own(one, 0) || !is_null(null);
        close(null), close(one);
    }
    pthread_join(thread, NULL);
    close(from);
    SAY(closed / (replaces ? 2 : 1) - RACES);
    SAY(strange);
}

static int open_numbers(void) {
    int numbers = 0;
    DIR *list = opendir("/proc/self/fd");
    while (readdir(list))
        numbers++;
    closedir(list);
    return numbers;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct stat is;
    for (int who = 0; who <= THREADS; who++) {
        close(open(name_of(who), O_RDWR | O_CREAT, 0600));
        stat(name_of(who), &is);
        inodes[who] = is.st_ino;
        device = is.st_dev;
    }
    stat("/dev/null", &is);
    null_device = is.st_rdev;
    close_range(3, 99, 0);
    int before = open_numbers();
    at_once();
    SAY(open_numbers() - before);
    in_turns();
    SAY(open_numbers() - before);
    after_others();
    SAY(open_numbers() - before);
    at_the_same(0);
    at_the_same(1);
    SAY(open_numbers() - before);
    SAY(twice);
    SAY(not_held);
    SAY(foreign);
    SAY(failed);
    SAY(wrong_flag);
    SAY(in_child);
    SAY(too_high);
    return 0;
}
