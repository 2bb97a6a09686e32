// A link between two network namespaces that can be made bad: a TAP device in each, and this
// program between them. No filter and no queueing discipline of the kernel is needed.
//
//   wire PROCESS-A DEVICE-A PROCESS-B DEVICE-B SEED
//
// makes each device in the network namespace of its process, says `ready`, and obeys the lines that
// it reads, each with `ok` and how much is still to be damaged. It ends with its input. A is the node, B the hub.
//
//   delay MS        a frame arrives so much later, in both directions
//   loss PERCENT    of the frames of both directions do not arrive
//   rate KBIT       at most so much a second in each direction; 0: no limit
//   drop up|down|no frames of the node (up), or to it, do not arrive
//   damage N        the next N long TCP segments of the node have two words exchanged, which no
//                   checksum of TCP shows

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 2048, FRAMES = 1024, LONG = 1200 };

struct frame {
    uint64_t due_us;
    size_t bytes;
    unsigned char data[FRAME];
};

// One direction: frames in the order in which they came.
struct way {
    int from, to;
    const char *name;
    uint64_t first, next, free_us;
    struct frame frame[FRAMES];
};

static struct way ways[2] = {{.name = "up"}, {.name = "down"}};
static uint64_t delay_us, loss_percent, rate_kbit, damage, seed;
static char dropped[8] = "no";

static void fail(const char *what) {
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int device(const char *process, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
    close(space);
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq wanted = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(wanted.ifr_name, sizeof wanted.ifr_name, "%s", name);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &wanted)) fail(name);
    return tap;
}

static int exchange(unsigned char *data, size_t bytes) {
    const size_t ethernet = 14;
    if (bytes < LONG || data[12] != 8 || data[13] != 0 || data[ethernet + 9] != 6) return 0;
    // Headers are multiples of 4 bytes, so even offsets are words of the checksum.
    for (size_t at = ethernet + 600; at + 4 <= bytes; at += 2) {
        if (memcmp(data + at, data + at + 2, 2) == 0) continue;
        unsigned char word[2] = {data[at], data[at + 1]};
        memcpy(data + at, data + at + 2, 2);
        memcpy(data + at + 2, word, 2);
        return 1;
    }
    return 0;
}

static void take(struct way *way) {
    struct frame *frame = &way->frame[way->next % FRAMES];
    while (way->next - way->first < FRAMES) {
        ssize_t got = read(way->from, frame->data, FRAME);
        if (got <= 0) return;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (strcmp(dropped, way->name) == 0 || (seed >> 33) % 100 < loss_percent) continue;
        frame->bytes = (size_t)got;
        if (damage && way == &ways[0] && exchange(frame->data, frame->bytes)) damage--;
        uint64_t now = now_us(), sent = now;
        if (rate_kbit) {
            if (way->free_us < now) way->free_us = now;
            sent = way->free_us += frame->bytes * 8000 / rate_kbit;
        }
        frame->due_us = sent + delay_us;
        frame = &way->frame[++way->next % FRAMES];
    }
}

static void give(struct way *way, uint64_t now) {
    while (way->first != way->next && way->frame[way->first % FRAMES].due_us <= now) {
        struct frame *frame = &way->frame[way->first++ % FRAMES];
        // A device that is down takes nothing: the frame is lost, as on a cable.
        if (write(way->to, frame->data, frame->bytes) < 0) continue;
    }
}

static void obey(char *line) {
    char word[16] = "", value[16] = "";
    sscanf(line, "%15s %15s", word, value);
    uint64_t number = strtoul(value, NULL, 10);
    if (strcmp(word, "delay") == 0) delay_us = number * 1000;
    else if (strcmp(word, "loss") == 0) loss_percent = number;
    else if (strcmp(word, "rate") == 0) rate_kbit = number;
    else if (strcmp(word, "drop") == 0) memcpy(dropped, value, sizeof dropped);
    else if (strcmp(word, "damage") == 0) damage = number;
    else exit(2);
    printf("ok %lu\n", damage);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    int node = device(argv[1], argv[2]), hub = device(argv[3], argv[4]);
    seed = strtoul(argv[5], NULL, 10);
    ways[0].from = ways[1].to = node;
    ways[0].to = ways[1].from = hub;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    for (;;) {
        uint64_t now = now_us(), next = now + 100000;
        struct pollfd events[3] = {{0, POLLIN, 0}, {node, 0, 0}, {hub, 0, 0}};
        for (int at = 0; at < 2; at++) {
            struct way *way = &ways[at];
            take(way);
            give(way, now_us());
            if (way->next - way->first < FRAMES) events[1 + at].events = POLLIN;
            uint64_t due = way->frame[way->first % FRAMES].due_us;
            if (way->first != way->next && due < next) next = due;
        }
        now = now_us();
        uint64_t wait_us = next > now ? next - now : 0;
        struct timespec wait = {(time_t)(wait_us / 1000000), (long)(wait_us % 1000000) * 1000};
        if (ppoll(events, 3, &wait, NULL) < 0 && errno != EINTR) fail("ppoll");
        if (events[0].revents) {
            static char line[64];
            static size_t bytes;
            ssize_t got = read(0, line + bytes, sizeof line - 1 - bytes);
            if (got <= 0) return 0;
            bytes += (size_t)got;
            line[bytes] = 0;
            if (strchr(line, '\n')) {
                obey(line);
                bytes = 0;
            }
        }
    }
}
