// Memory that goes away under a program: usage media DIRECTORY VOLUME. The end of the volume's file is cut
// off; what lies there gives EIO (SIGBUS through a mapping), everything else goes on.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static char page[2 * PAGE], mib[MIB];
static sigjmp_buf back;

// A call that happens to get a lost page that was free fails, once for each such page; the page is then
// kept out of use.
#define AGAIN(call) \
    ({ \
        long value, tries = 8 * MIB / PAGE; \
        do \
            value = (long)(call); \
        while (value == -1 && errno == EIO && tries-- > 0); \
        value; \
    })

static void rewrite(const char *path, const char *text) {
    int fd = AGAIN(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    AGAIN(write(fd, text, strlen(text)));
    close(fd);
}

static void on_bus(int signal) { siglongjmp(back, signal); }

// The signal that a load from this address gives; 0: none.
static int signal_of(const volatile char *at) {
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        (void)*at;
    return signal;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    struct sigaction action = {.sa_handler = on_bus};
    sigaction(SIGBUS, &action, NULL);
    memset(mib, 'x', sizeof mib);
    put("other", "as before");
    // A mapped file stays where it is: else its block may be moved to the end when `spare` goes.
    int other = open("other", O_RDONLY);
    char *stays = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, other, 0);
    close(other);
    int spare = open("spare", O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 16; i++)
        write(spare, mib, MIB);
    close(spare);
    // It takes all that is left, and so the end.
    int fd = open("large", O_RDWR | O_CREAT, 0644);
    off_t size = 0;
    for (ssize_t count; (count = write(fd, mib, MIB)) > 0;)
        size += count;
    SAY(size > 200 * MIB);
    SAY(unlink("spare"));
    int region = open(argv[2], O_RDWR);
    struct stat stat;
    fstat(region, &stat);
    SAY(ftruncate(region, stat.st_size - 8 * MIB));
    munmap(stays, PAGE);

    off_t lost = -1, last = -1, sound = -1;
    int others = 0;
    for (off_t at = 0; at + PAGE <= size; at += PAGE) {
        ssize_t count = pread(fd, page, PAGE, at);
        if (count == PAGE) {
            sound = at;
        } else {
            others += count != -1 || errno != EIO;
            lost = lost < 0 ? at : lost;
            last = at;
        }
    }
    SAY(lost > 0 && last > lost);
    SAY(others);
    SAY(pread(fd, page, 1, lost));
    SAY(pread(fd, page, PAGE, sound));
    SAY(lseek(fd, lost, SEEK_SET) == lost);
    SAY(read(fd, page, 10));
    SAY(pwrite(fd, "y", 1, lost + 100));
    // A whole page gets other memory, but in a 2 MiB extent, where it is overwritten in place, the old
    // bytes would have to be kept.
    SAY(pwrite(fd, mib, PAGE, lost) == PAGE || errno == EIO);
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, last);
    WORKS(map);
    SAY(signal_of(map) == SIGBUS);
    SAY(munmap(map, PAGE));
    map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, sound);
    SAY(signal_of(map));
    SAY(map[5]);
    SAY(close(fd));

    SHOW("other");
    rewrite("other", "changed");
    SHOW("other");
    SAY(AGAIN(mkdir("d", 0755)));
    SAY(AGAIN(rename("other", "d/other")));
    rewrite("new", "made afterwards");
    SHOW("new");
    fd = AGAIN(open("d/grows", O_RDWR | O_CREAT, 0644));
    SAY(AGAIN(write(fd, mib, MIB)) == MIB);
    SAY(fsync(fd));
    SAY(unlink("d/other"));
    return 0;
}
