// The actor of `random.c`: does what it is asked for, with its own descriptors and mappings.
#ifndef RANDOM_ACTOR_H
#define RANDOM_ACTOR_H
#include "random.h"

struct mapping {
    unsigned char *at;
    long length, offset;
    int file;
};

static int numbers[SLOTS];
static struct mapping maps[MAPS];
static unsigned char buffer[BYTES_MAX + 4096];
static sigjmp_buf faulted;
extern char **environ;

static void fill_buffer(const struct order *order) {
    for (long at = 0; at < order->length; at++)
        buffer[at] = order->fill ? (unsigned char)(mix(order->fill + at / 8) >> at % 8 * 8) : 0;
}

static int number_of(int slot) {
    return numbers[slot];
}

static void put_number(int slot, int number) {
    if (number >= 0) {
        if (numbers[slot] >= 0)
            close(numbers[slot]);
        numbers[slot] = number;
    }
}

static long size_of(int number) {
    struct stat stat;
    return number >= 0 && fstat(number, &stat) == 0 ? (long)stat.st_size : -1;
}

// ---- data

static long reads(const struct order *order, struct answer *answer) {
    int number = number_of(order->slot);
    memset(buffer, 0xee, order->length + 100);
    struct iovec pieces[3] = {
        {buffer, order->length / 3},
        {buffer + order->length / 3, 0},
        {buffer + order->length / 3, order->length - order->length / 3},
    };
    long got;
    switch (order->kind) {
    case READ:
        got = order->raw ? syscall(SYS_read, number, buffer, order->length)
                         : read(number, buffer, order->length);
        break;
    case PREAD:
        got = order->raw ? syscall(SYS_pread64, number, buffer, order->length, order->at)
                         : pread(number, buffer, order->length, order->at);
        break;
    case READV: got = readv(number, pieces, 3); break;
    default:
        got = order->flags % 3 ? preadv(number, pieces, 3, order->at)
                               : preadv2(number, pieces, 3, order->flags % 2 ? -1 : order->at, 0);
    }
    int error = errno;
    if (got >= 0) {
        answer->sum = sum_of(buffer, got);
        for (long at = got; at < order->length + 100; at++)
            if (buffer[at] != 0xee) {
                answer->sum = 0xbad;
                break;
            }
    }
    errno = error;
    return got;
}

static long writes(const struct order *order) {
    int number = number_of(order->slot);
    fill_buffer(order);
    // Now and then a piece that is not there.
    void *bad = order->flags % 50 == 0 ? (void *)8 : buffer + order->length / 3;
    struct iovec pieces[3] = {
        {buffer, order->length / 3},
        {buffer, 0},
        {bad, order->length - order->length / 3},
    };
    switch (order->kind) {
    case WRITE:
        return order->raw ? syscall(SYS_write, number, buffer, order->length)
                          : write(number, order->flags % 50 ? (void *)buffer : NULL, order->length);
    case PWRITE:
        return order->raw ? syscall(SYS_pwrite64, number, buffer, order->length, order->at)
                          : pwrite(number, buffer, order->length, order->at);
    case WRITEV: return writev(number, pieces, 3);
    case PWRITEV: return pwritev(number, pieces, 3, order->at);
    default: {
        static const int flags[] = {0, RWF_APPEND, RWF_DSYNC, RWF_SYNC | RWF_APPEND};
        pieces[2].iov_base = buffer;
        return pwritev2(number, pieces, 3, order->flags & 4 ? -1 : order->at, flags[order->flags % 4]);
    }
    }
}

static long seeks(const struct order *order) {
    int number = number_of(order->slot);
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    int whence = whences[order->flags % 3];
    long at = whence == SEEK_SET ? order->at : order->at % 20000 - 10000;
    return order->raw ? syscall(SYS_lseek, number, at, whence) : lseek(number, at, whence);
}

// Where data and holes are; the position is put back.
static long data(const struct order *order, struct answer *answer) {
    int number = number_of(order->slot);
    long before = lseek(number, 0, SEEK_CUR);
    long found = lseek(number, order->at, order->flags % 2 ? SEEK_DATA : SEEK_HOLE);
    int error = errno;
    if (before >= 0)
        lseek(number, before, SEEK_SET);
    // What is said to be a hole holds zeros.
    if (found > order->at && order->flags % 2 && found - order->at < BYTES_MAX) {
        long got = pread(number, buffer, found - order->at, order->at);
        for (long at = 0; at < got; at++)
            if (buffer[at])
                answer->sum = 0xbad;
    }
    errno = error;
    return found;
}

// ---- mappings

static void on_fault(int signal) {
    siglongjmp(faulted, 1);
}

static long map(const struct order *order) {
    struct mapping *place = &maps[order->flags % MAPS];
    if (place->at) {
        munmap(place->at, place->length);
        close(place->file);
        place->at = NULL;
    }
    int number = number_of(order->slot);
    long length = 4096 * (1 + order->length / 4096);
    int shared = order->flags & 8;
    long offset = order->at & ~4095L;
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, number,
                    offset);
    if (at == MAP_FAILED)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    *place = (struct mapping){at, length, offset, open(path, O_PATH | O_CLOEXEC)};
    return 0;
}

// Looks at each page of a mapping until there is none.
static long load(const struct order *order, struct answer *answer) {
    struct mapping *place = &maps[order->flags % MAPS];
    if (!place->at)
        return -2;
    volatile long at = 0;
    uint64_t sum = 0;
    if (sigsetjmp(faulted, 1) == 0)
        for (; at < place->length; at += 4096)
            sum = sum * 31 + sum_of(place->at + at, 4096);
    // What lies behind the end in its page may be anything that was stored there: nothing is.
    answer->sum = sum;
    return at;
}

// Stores below the end of the file only: what lies behind it kernels forget or not.
static long store(const struct order *order, struct answer *answer) {
    struct mapping *place = &maps[order->flags % MAPS];
    if (!place->at)
        return -2;
    long at = order->at % place->length, end = size_of(place->file) - place->offset;
    end = end < place->length ? end : place->length;
    end = end < at + order->length ? end : at + order->length;
    fill_buffer(order);
    volatile long done = 0;
    if (sigsetjmp(faulted, 1) == 0)
        for (; at + done < end; done++)
            place->at[at + done] = buffer[done];
    return done;
}

// ---- names and descriptors

static long nameless(const struct order *order) {
    int number = order->kind == MEMORY ? memfd_create("m", MFD_CLOEXEC)
                                       : open(order->flags & 1 ? "s" : ".", O_TMPFILE | O_RDWR, 0644);
    put_number(order->slot, number);
    return number < 0 ? -1 : 0;
}

static long give_name(const struct order *order) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", number_of(order->slot));
    return linkat(AT_FDCWD, path, AT_FDCWD, names[order->name], AT_SYMLINK_FOLLOW);
}

static long opens(const struct order *order) {
    int number = order->raw ? syscall(SYS_openat, AT_FDCWD, names[order->name], order->flags, 0644)
                            : open(names[order->name], order->flags, 0644);
    put_number(order->slot, number);
    return number < 0 ? -1 : 0;
}

static long closes(const struct order *order) {
    int number = number_of(order->slot);
    numbers[order->slot] = -1;
    return order->raw ? syscall(SYS_close, number) : close(number);
}

static long duplicates(const struct order *order) {
    int number;
    if (order->kind == DUP) {
        number = order->flags % 2 ? dup(number_of(order->slot))
                                  : fcntl(number_of(order->slot), F_DUPFD_CLOEXEC, 50);
        if (number >= 0)
            put_number(order->slot2, number);
        return number < 0 ? -1 : 0;
    }
    int to = number_of(order->slot2);
    if (to < 0)
        return -2;
    return dup2(number_of(order->slot), to) < 0 ? -1 : 0;
}

static long copies(const struct order *order) {
    int from = number_of(order->slot), to = number_of(order->slot2);
    loff_t at = order->at, at2 = order->at2;
    loff_t *first = order->flags & 1 ? &at : NULL, *second = order->flags & 2 ? &at2 : NULL;
    long length = order->length;
    if (order->kind == COPY)
        return copy_file_range(from, first, to, second, length, 0);
    if (order->kind == SENDFILE)
        return sendfile(to, from, first, length);
    if (order->kind == CLONE_RANGE) {
        struct file_clone_range range = {from, order->at & ~4095L, length & ~4095L, order->at2 & ~4095L};
        return ioctl(to, FICLONERANGE, &range);
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    long moved = splice(from, first, ends[1], NULL, length > 60000 ? 60000 : length, 0);
    int error = errno;
    if (moved > 0) {
        moved = splice(ends[0], NULL, to, second, moved, 0);
        error = errno;
    }
    close(ends[0]);
    close(ends[1]);
    errno = error;
    return moved;
}

static long locks(const struct order *order, struct answer *answer) {
    static const short types[] = {F_RDLCK, F_WRLCK, F_UNLCK};
    struct flock lock = {.l_type = types[order->flags % 3],
                         .l_whence = order->flags & 16 ? SEEK_END : SEEK_SET,
                         .l_start = order->flags & 16 ? -(order->at % 10) : order->at,
                         .l_len = order->length};
    int own = order->flags & 32;
    if (order->kind == LOCK)
        return fcntl(number_of(order->slot), own ? F_OFD_SETLK : F_SETLK, &lock);
    if (lock.l_type == F_UNLCK)
        lock.l_type = F_WRLCK;
    long result = fcntl(number_of(order->slot), own ? F_OFD_GETLK : F_GETLK, &lock);
    if (result == 0)
        answer->sum = lock.l_type == F_UNLCK ? 1 : lock.l_type * 31 + lock.l_start * 7 + lock.l_len;
    return result;
}

// ---- whole sequences

static long streams(const struct order *order, struct answer *answer) {
    static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+"};
    FILE *stream = fopen(names[order->name], modes[order->flags % 6]);
    if (!stream)
        return -1;
    fill_buffer(order);
    long length = order->length % 20000, done = 0;
    uint64_t sum = 0;
    for (int part = 0; part < 4; part++) {
        switch ((order->flags >> (4 + 2 * part)) % 4) {
        case 0: done += fwrite(buffer, 1, length, stream); break;
        case 1: {
            static unsigned char back[20000];
            fflush(stream);
            fseek(stream, order->at % 10000, SEEK_SET);
            long got = fread(back, 1, length, stream);
            sum = sum * 31 + sum_of(back, got) + got;
            fseek(stream, 0, SEEK_CUR);
            break;
        }
        case 2: sum = sum * 31 + fseek(stream, -(order->at % 100), SEEK_END) + ftell(stream); break;
        default: sum = sum * 31 + fflush(stream) + fprintf(stream, "%ld\n", order->at);
        }
    }
    answer->sum = sum;
    return fclose(stream) ? -1 : done;
}

static long shell(const struct order *order, struct answer *answer) {
    static const char *const scripts[] = {
        "printf 'one %d\\n' >> %s", "printf 'two %d' > %s", "cp %2$s s/copy && cat s/copy >> %2$s", "truncate -s %d %s",
        "exec 3<>%2$s; read -r line <&3; printf '%s' \"$line\" | head -c 100 >&3", "mv %2$s s/moved; mv s/moved %2$s",
        "dd if=/dev/zero of=%2$s bs=1000 count=3 conv=notrunc oflag=append 2>/dev/null",
    };
    char text[300];
    const char *script = scripts[order->flags % 7];
    if (order->flags % 7 == 4)
        snprintf(text, sizeof text, "exec 3<>%s; head -c 10 <&3 >/dev/null; echo more >&3",
                 names[order->name]);
    else
        snprintf(text, sizeof text, script, (int)(order->at % 100000), names[order->name]);
    return system(text);
}

static long cat(const struct order *order, struct answer *answer) {
    int number = open(names[order->name], O_RDONLY);
    if (number < 0)
        return -1;
    uint64_t sum = 0;
    long all = 0, got;
    while ((got = read(number, buffer, order->length ? order->length : 100000)) > 0) {
        for (long at = 0; at < got; at++)
            sum = sum * 0x100000001b3 + buffer[at] + 1;
        all += got;
    }
    answer->sum = sum;
    answer->size = size_of(number);
    return close(number) || got < 0 ? -1 : all;
}

// Times that were set stay until the next write, and not longer.
static long times(const struct order *order, struct answer *answer) {
    int number = number_of(order->slot);
    struct timespec set[2] = {{1000000, 5000}, {2000000, 7000}};
    if (futimens(number, set))
        return -1;
    struct stat found;
    fill_buffer(order);
    long wrote = order->flags & 1 ? pwrite(number, buffer, order->length % 5000, order->at) : 0;
    if (order->flags & 2 ? fsync(number) : 0)
        return -1;
    if (order->flags & 4)
        stat(names[order->name], &found);
    if (fstat(number, &found))
        return -1;
    int kept = found.st_mtim.tv_sec == 2000000 && found.st_mtim.tv_nsec == 7000;
    answer->sum = kept != (wrote <= 0) ? 0xbad : 1;
    return wrote;
}

static long stats(const struct order *order, struct answer *answer) {
    struct stat found;
    struct statx more;
    long result;
    if (order->kind == STATX) {
        result = statx(AT_FDCWD, names[order->name], 0, STATX_BASIC_STATS, &more);
        if (result == 0) {
            answer->size = more.stx_size;
            answer->sum = more.stx_nlink;
        }
        return result;
    }
    result = order->kind == STAT ? order->flags & 1 ? lstat(names[order->name], &found)
                                                    : stat(names[order->name], &found)
                                 : fstat(number_of(order->slot), &found);
    if (result == 0) {
        answer->size = found.st_size;
        answer->sum = found.st_nlink;
    }
    return result;
}

// ---- passing on

static long sends_number(const struct order *order) {
    char byte = 'x', space[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (number_of(order->slot) < 0)
        return -2;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &numbers[order->slot], sizeof(int));
    return sendmsg(BETWEEN, &message, 0) == 1 ? 0 : -1;
}

static long receives_number(const struct order *order) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(BETWEEN, &message, 0) != 1)
        return -1;
    int number;
    memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof number);
    put_number(order->slot2, number);
    return 0;
}

static void execute(void) {
    static char words[SLOTS][16];
    char *arguments[SLOTS + 3] = {"random", "actor"};
    for (int slot = 0; slot < SLOTS; slot++) {
        if (numbers[slot] >= 0)
            fcntl(numbers[slot], F_SETFD, 0);
        snprintf(words[slot], sizeof words[slot], "%d", numbers[slot]);
        arguments[slot + 2] = words[slot];
    }
    for (int map = 0; map < MAPS; map++)
        if (maps[map].at)
            close(maps[map].file);
    execv("/proc/self/exe", arguments);
    _exit(98);
}

static long settle(void) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (numbers[slot] >= 0)
            fsync(numbers[slot]);
    return 0;
}

static long does(const struct order *order, struct answer *answer) {
    int number = number_of(order->slot);
    switch (order->kind) {
    case OPEN: return opens(order);
    case NAMELESS: case MEMORY: return nameless(order);
    case CLOSE: return closes(order);
    case DUP: case DUP2: return duplicates(order);
    case READ: case PREAD: case READV: case PREADV: return reads(order, answer);
    case WRITE: case PWRITE: case WRITEV: case PWRITEV: case PWRITEV2: return writes(order);
    case SEEK: return seeks(order);
    case DATA: return data(order, answer);
    case FTRUNCATE: return ftruncate(number, order->flags ? order->at : order->at % 100000);
    case TRUNCATE: return truncate(names[order->name], order->flags ? order->at : order->at % 100000);
    case FALLOCATE: return fallocate(number, order->flags, order->at, order->length);
    case STAT: case FSTAT: case STATX: return stats(order, answer);
    case FSYNC: return fsync(number);
    case FDATASYNC: return order->flags % 2 ? fdatasync(number) : sync_file_range(number, 0, 0, 7);
    case RENAME: return rename(names[order->name], names[order->name2]);
    case LINK: return link(names[order->name], names[order->name2]);
    case UNLINK: return unlink(names[order->name]);
    case GIVE_NAME: return give_name(order);
    case MAP: return map(order);
    case UNMAP:
        if (!maps[order->flags % MAPS].at)
            return -2;
        close(maps[order->flags % MAPS].file);
        munmap(maps[order->flags % MAPS].at, maps[order->flags % MAPS].length);
        maps[order->flags % MAPS].at = NULL;
        return 0;
    case LOAD: return load(order, answer);
    case STORE: return store(order, answer);
    case MSYNC:
        return maps[order->flags % MAPS].at ? msync(maps[order->flags % MAPS].at, 4096, MS_SYNC) : -2;
    case COPY: case SENDFILE: case SPLICE: case CLONE_RANGE: return copies(order);
    case FLAGS: return fcntl(number, F_SETFL, order->flags % 2 ? O_APPEND : 0);
    case LOCK: case TEST_LOCK: return locks(order, answer);
    case FLOCK: {
        static const int how[] = {LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB, LOCK_UN};
        return flock(number, how[order->flags % 3]);
    }
    case STREAM: return streams(order, answer);
    case SHELL: return shell(order, answer);
    case CAT: return cat(order, answer);
    case TIMES: return times(order, answer);
    case SEND: return sends_number(order);
    case RECEIVE: return receives_number(order);
    case SETTLE: return settle();
    default: return -3;
    }
}

static int act(int count, char **arguments) {
    signal(SIGBUS, on_fault);
    signal(SIGPIPE, SIG_IGN);
    for (int slot = 0; slot < SLOTS; slot++)
        numbers[slot] = count == SLOTS + 2 ? atoi(arguments[slot + 2]) : -1;
    struct order order;
    // The answer of the order that executed this program.
    if (count == SLOTS + 2) {
        struct answer answer = {.size = -1};
        send(ORDERS, &answer, sizeof answer, 0);
    }
    while (recv(ORDERS, &order, sizeof order, 0) == sizeof order) {
        struct answer answer = {.size = -1};
        if (order.kind == EXEC)
            execute();
        if (order.kind == FORK) {
            pid_t pid = fork();
            if (pid != 0) {
                int status = 0;
                waitpid(pid, &status, 0);
                answer.value = pid < 0 ? -1 : status;
                answer.sum = 7;
            }
        } else if (order.kind != LEAVE) {
            errno = 0;
            answer.value = does(&order, &answer);
            answer.error = answer.value == -1 ? errno : 0;
        }
        if (order.kind == LEAVE) {
            // A child leaves its parent the answer.
            if (getenv("RANDOM_CHILD"))
                _exit(0);
            send(ORDERS, &answer, sizeof answer, 0);
            exit(0);
        }
        if (order.kind == FORK && answer.sum != 7)
            setenv("RANDOM_CHILD", "1", 1);
        send(ORDERS, &answer, sizeof answer, 0);
    }
    return 0;
}
#endif
