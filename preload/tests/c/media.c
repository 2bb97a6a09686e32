// Memory that goes away under a program: usage media DIRECTORY VOLUME. The end of the volume's file is cut
// off; what lies there gives EIO (SIGBUS through a mapping), everything else goes on.
#include "say.h"
#include <setjmp.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static char page[2 * PAGE], mib[MIB];
static sigjmp_buf back;

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

    off_t lost = -1, sound = -1;
    int losses = 0;
    for (off_t at = 0; at + PAGE <= size; at += PAGE) {
        ssize_t count = pread(fd, page, PAGE, at);
        if (count == PAGE) {
            sound = at;
        } else {
            losses += count == -1 && errno == EIO;
            lost = lost < 0 ? at : lost;
        }
    }
    SAY(losses == 8 * MIB / PAGE);
    SAY(pread(fd, page, 1, lost));
    SAY(pread(fd, page, PAGE, sound));
    SAY(lseek(fd, lost, SEEK_SET) == lost);
    SAY(read(fd, page, 10));
    SAY(pwrite(fd, "y", 1, lost + 100));
    // In a 2 MiB extent a page is overwritten in place, and the old bytes would have to be kept.
    SAY(pwrite(fd, mib, PAGE, lost));
    lost += 2 * PAGE;
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, lost);
    WORKS(map);
    SAY(signal_of(map) == SIGBUS);
    SAY(munmap(map, PAGE));
    map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, sound);
    SAY(signal_of(map));
    SAY(map[5]);
    SAY(close(fd));

    SHOW("other");
    put("other", "changed");
    SHOW("other");
    SAY(mkdir("d", 0755));
    SAY(rename("other", "d/other"));
    put("new", "made afterwards");
    SHOW("new");
    fd = open("d/grows", O_RDWR | O_CREAT, 0644);
    SAY(write(fd, mib, MIB) == MIB);
    SAY(fsync(fd));
    SAY(unlink("d/other"));
    return 0;
}
