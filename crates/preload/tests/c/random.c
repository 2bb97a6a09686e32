// Random calls of several processes on a few files, for the second engine: every result must be what
// the kernel gives without it.
//
// Usage: random DIRECTORY SEED STEPS. The coordinator asks three actors in turn: 0 and 1 run as it
// does, 2 always past the engine (without LD_PRELOAD), before whose turns the others have synced what they have open, as
// docs/split.md says. So do they before anybody looks through a mapping. Each line of output is one order
// and its answer.
#include "random.h"
#include "random_actor.h"

static uint64_t state;

static uint64_t next(void) {
    return mix(state++);
}

static long below(long limit) {
    return (long)(next() % (uint64_t)limit);
}

static int chance(int percent) {
    return below(100) < percent;
}

static pid_t pids[3];
static int sockets[3], between[2][2];
// Forked children that answer instead of an actor, for so many orders more.
static int child_orders[3];
static long size_hint = 1000;
static int on_tmpfs, step;
static char program[4096];

static void start(int actor) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
    fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    static char *without[4096];
    int count = 0;
    for (char **word = environ; *word; word++)
        if (strncmp(*word, "LD_PRELOAD=", 11) && strncmp(*word, "SOLERA_", 7))
            without[count++] = *word;
    without[count] = NULL;
    pids[actor] = fork();
    if (pids[actor] == 0) {
        dup2(pair[1], ORDERS);
        dup2(between[actor & 1][0], BETWEEN);
        close(pair[1]);
        char *arguments[] = {program, "actor", NULL};
        execve(program, arguments, actor == 2 ? without : environ);
        _exit(99);
    }
    close(pair[1]);
    sockets[actor] = pair[0];
    child_orders[actor] = 0;
}

static struct answer ask(int actor, const struct order *order) {
    struct answer answer;
    if (send(sockets[actor], order, sizeof *order, MSG_NOSIGNAL) != sizeof *order ||
        recv(sockets[actor], &answer, sizeof answer, 0) != sizeof answer) {
        printf("%d: actor %d is gone at %s\n", step, actor, kind_names[order->kind]);
        exit(1);
    }
    return answer;
}

static void settle_others(int actor) {
    struct order order = {.kind = SETTLE};
    for (int other = 0; other < 2; other++)
        if (other != actor)
            ask(other, &order);
}

static long any_length(void) {
    int way = below(100);
    if (way < 2)
        return 0;
    if (way < 35)
        return 1 + below(100);
    if (way < 60)
        return 1 + below(5000);
    if (way < 75)
        return 4096 * (1 + below(8));
    if (way < 92)
        return 1 + below(70000);
    if (way < 96)
        return 4096 * 64;
    return 1 + below(BYTES_MAX - 1);
}

static long any_place(void) {
    int way = below(100);
    if (way < 15)
        return below(100);
    if (way < 30)
        return 4096 * below(20);
    if (way < 45)
        return below(200000);
    if (way < 75)
        return size_hint > 20 ? size_hint - 20 + below(40) : below(40);
    if (way < 80)
        return size_hint + below(10000);
    if (way < 90)
        return (2 << 20) - 5000 + below(10000);
    return below(5 << 20);
}

static int any_flags(void) {
    static const int access[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
    int flags = access[below(5)];
    flags |= chance(70) ? O_CREAT : 0;
    flags |= chance(12) ? O_TRUNC : 0;
    flags |= chance(30) ? O_APPEND : 0;
    flags |= chance(4) ? O_EXCL : 0;
    flags |= chance(3) ? O_DSYNC : 0;
    flags |= chance(3) ? O_DIRECT : 0;
    return flags;
}

static int any_allocation(void) {
    static const int modes[] = {
        0, 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE,
    };
    return modes[below(sizeof modes / sizeof *modes)];
}

// How often each kind comes, beside the others.
static int weight(enum kind kind) {
    switch (kind) {
    case OPEN: return 50;
    case CLOSE: return 25;
    case WRITE: return 90;
    case PWRITE: return 50;
    case READ: return 45;
    case PREAD: return 45;
    case SEEK: case STAT: case FSTAT: return 20;
    case READV: case PREADV: case WRITEV: case PWRITEV: case FSYNC: case CAT: return 14;
    case LEAVE: case SETTLE: case RECEIVE: return 0;
    case FORK: case EXEC: case SHELL: case MEMORY: case NAMELESS: case SEND: return 3;
    default: return 7;
    }
}

static enum kind any_kind(void) {
    static int total;
    if (!total)
        for (enum kind kind = 0; kind < KIND_COUNT; kind++)
            total += weight(kind);
    int at = below(total);
    enum kind kind = 0;
    while ((at -= weight(kind)) >= 0)
        kind++;
    return kind;
}

static struct order any_order(void) {
    struct order order = {
        .kind = any_kind(),
        .slot = below(SLOTS),
        .slot2 = below(SLOTS),
        .name = below(NAMES),
        .name2 = below(NAMES),
        .flags = below(1 << 20),
        .at = any_place(),
        .at2 = any_place(),
        .length = any_length(),
        .fill = chance(10) ? 0 : next() | 1,
        .raw = chance(10),
    };
    if (order.kind == OPEN)
        order.flags = any_flags();
    if (order.kind == FALLOCATE) {
        order.flags = any_allocation();
        if (order.flags & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE) && chance(80)) {
            order.at &= ~4095L;
            order.length = (order.length + 4095) & ~4095L;
        }
    }
    if (order.kind == TRUNCATE || order.kind == FTRUNCATE)
        order.flags = chance(30);
    return order;
}

static void tell(int actor, const struct order *order, const struct answer *answer) {
    printf("%d: %d%s %s %d %d %s %s %#x at %ld %ld +%ld %s= %ld", step, actor,
           child_orders[actor] ? "'" : "", kind_names[order->kind], order->slot, order->slot2,
           names[order->name], names[order->name2], order->flags, order->at, order->at2, order->length,
           order->raw ? "raw " : "", answer->value);
    if (answer->error)
        printf(" %s", strerrorname_np(answer->error));
    printf(" sum %016lx size %ld\n", (unsigned long)answer->sum, answer->size);
}

static void kill_actor(int actor) {
    printf("%d: %d killed\n", step, actor);
    kill(pids[actor], SIGKILL);
    waitpid(pids[actor], NULL, 0);
    close(sockets[actor]);
    start(actor);
}

static void one(int may_kill) {
    int actor = chance(45) ? 0 : chance(80) ? 1 : 2;
    if (may_kill && actor < 2 && !child_orders[actor] && below(200) == 0) {
        kill_actor(actor);
        return;
    }
    struct order order = any_order();
    if (child_orders[actor] > 0 && --child_orders[actor] == 0)
        order.kind = LEAVE;
    if (child_orders[actor] && (order.kind == FORK || order.kind == EXEC || order.kind == SEND))
        order.kind = WRITE;
    int receiver = 1 - actor;
    if (order.kind == SEND && (actor == 2 || child_orders[receiver]))
        order.kind = FSTAT;
    if (actor == 2 || order.kind == LOAD || order.kind == STORE || order.kind == TIMES ||
        order.kind == MSYNC)
        settle_others(actor);
    struct answer answer = ask(actor, &order);
    // Allocated and not written: data, once a mapping has read it, as one of the engine may have.
    if (!on_tmpfs && order.kind == DATA) {
        answer.value = 0;
        answer.error = answer.error == ENXIO ? 0 : answer.error;
    }
    tell(actor, &order, &answer);
    if (answer.size >= 0)
        size_hint = answer.size;
    if (order.kind == FORK && answer.value == 0)
        child_orders[actor] = 2 + below(6);
    if (order.kind == SEND && answer.value == 0) {
        order.kind = RECEIVE;
        answer = ask(receiver, &order);
        tell(receiver, &order, &answer);
    }
}

// What is left, as one who is not of the engine sees it.
static void show_all(void) {
    struct order order = {.kind = CAT};
    for (order.name = 0; order.name < NAMES; order.name++) {
        struct answer answer = ask(2, &order);
        tell(2, &order, &answer);
    }
}

static void leave(int actor) {
    struct order order = {.kind = LEAVE};
    // A forked child first.
    if (child_orders[actor])
        ask(actor, &order);
    ask(actor, &order);
    int status;
    waitpid(pids[actor], &status, 0);
    printf("actor %d ended: %#x\n", actor, status);
}

int main(int count, char **arguments) {
    if (count >= 2 && !strcmp(arguments[1], "actor"))
        return act(count, arguments);
    if (count < 4 || !realpath(arguments[0], program) || chdir(arguments[1]) || mkdir("s", 0755)) {
        perror("usage: random DIRECTORY SEED STEPS [kills]");
        return 2;
    }
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    struct statfs found;
    statfs(".", &found);
    on_tmpfs = found.f_type == 0x01021994;
    state = strtoul(arguments[2], NULL, 10) * 1000003;
    long steps = strtol(arguments[3], NULL, 10);
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, between[0]);
    between[1][0] = between[0][1];
    for (int actor = 0; actor < 3; actor++)
        start(actor);
    for (step = 0; step < steps; step++)
        one(count > 4);
    leave(0);
    leave(1);
    if (child_orders[2])
        ask(2, &(struct order){.kind = LEAVE});
    child_orders[2] = 0;
    show_all();
    leave(2);
    return 0;
}
