// Every pair of the flags of open, with each way of access, on a name that is missing, a file, a
// directory and a link. Not asked: O_CREAT with O_DIRECTORY (kernels before 6.4 made a file), O_DIRECT
// (tmpfs has it since 6.6), O_ASYNC (answered by the kind of file) and O_NOATIME.
#include "say.h"

static const int ways[] = {O_RDONLY, O_WRONLY, O_RDWR};
static const int bits[] = {0,          O_CREAT,     O_EXCL,     O_TRUNC,   O_APPEND,  O_DIRECTORY, O_NOFOLLOW,
                           O_PATH,     O_SYNC,      O_DSYNC,    O_NONBLOCK, O_CLOEXEC, O_TMPFILE};
static const char *const names[] = {"missing", "file", "directory", "link", "directory/", "file/"};

static void one(const char *name, int flags) {
    int fd = open(name, flags, 0600);
    int wrong = fd < 0 ? errno : 0, kept = 0, closes = 0;
    if (fd >= 0) {
        // How it was opened, as fcntl remembers it.
        kept = fcntl(fd, F_GETFL) & ~(O_LARGEFILE | 0100000);
        closes = fcntl(fd, F_GETFD);
        close(fd);
    }
    struct stat st;
    int size = stat("file", &st) == 0 ? (int)st.st_size : -1;
    int made = stat("missing", &st) == 0;
    fprintf(results, "%s %o: %s, flags %o %d, file has %d, missing %s\n", name, flags,
            wrong ? strerrorname_np(wrong) : "opened", kept, closes, size, made ? "made" : "not made");
    unlink("missing");
    put("file", "content");
}

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "content");
    mkdir("directory", 0700);
    symlink("file", "link");
    const int count = sizeof bits / sizeof *bits, never = O_DIRECTORY | O_CREAT;
    for (int name = 0; name < (int)(sizeof names / sizeof *names); name++)
        for (int way = 0; way < 3; way++)
            for (int i = 0; i < count; i++)
                for (int j = i; j < count; j++) {
                    int flags = ways[way] | bits[i] | bits[j];
                    if ((flags & never) != never || flags & O_PATH)
                        one(names[name], flags);
                }
    return 0;
}
