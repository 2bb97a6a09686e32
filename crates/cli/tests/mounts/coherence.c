// One of two programs that work on the same directory by different faces: it does what it is told on
// standard input, a line each, and answers a line for each.
//
//   do SEED   one operation, chosen by the number; says which, and how it went
//   look      everything there is to see: names, attributes, contents
//   count N   adds 1 to the number in the file `count`, N times, under a record lock
//   append N  appends N records of 32 bytes to the file `log`
//   replace N writes a new `current` N times and renames it into place
//   read N    reads `current` N times: it must be there, and whole
//   create N  tries to be the one who makes `race/0` to `race/N`; says how many it made
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static unsigned long state;

static unsigned pick(unsigned below) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(state >> 33) % below;
}

static const char *name(void) {
    static char names[4][32];
    static int next;
    char *text = names[next++ & 3];
    if (pick(3) == 0) {
        snprintf(text, 32, "d%u/f%u", pick(3), pick(4));
    } else {
        snprintf(text, 32, "%c%u", pick(4) ? 'f' : 'd', pick(5));
    }
    return text;
}

static long contents(const char *path, unsigned what) {
    int fd = open(path, O_RDWR | (what == 1 ? O_APPEND : 0) | (pick(2) ? O_CREAT : 0), 0644);
    if (fd < 0) {
        return -errno;
    }
    char bytes[40000];
    memset(bytes, 'a' + pick(26), sizeof bytes);
    unsigned length = 1 + pick(pick(2) ? 200 : sizeof bytes), at = pick(60000);
    long result = 0;
    switch (what) {
    case 0: result = pwrite(fd, bytes, length, at); break;
    case 1: result = write(fd, bytes, length); break;
    case 2: result = ftruncate(fd, at); break;
    case 3: result = fallocate(fd, pick(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0, at, length); break;
    case 4: {
        // What is stored through a mapping is there for all when it has been synchronised.
        struct stat status;
        fstat(fd, &status);
        if (status.st_size > 0) {
            char *map = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (map != MAP_FAILED) {
                map[at % status.st_size] = bytes[0];
                result = msync(map, status.st_size, MS_SYNC);
                munmap(map, status.st_size);
            }
        }
        break;
    }
    }
    if (result < 0) {
        result = -errno;
    }
    close(fd);
    return result;
}

static long act(unsigned what) {
    const char *path = name(), *other = name();
    if (what < 5) {
        return contents(path, what);
    }
    long result;
    switch (what) {
    case 5: result = unlink(path); break;
    case 6: result = mkdir(path, 0755); break;
    case 7: result = rmdir(path); break;
    case 8: result = rename(path, other); break;
    case 9: result = link(path, other); break;
    case 10: result = symlink(other, path); break;
    case 11: result = chmod(path, 0600 + pick(0200)); break;
    case 12: result = setxattr(path, "user.test", other, strlen(other), 0); break;
    case 13: result = removexattr(path, "user.test"); break;
    case 14: result = renameat2(AT_FDCWD, path, AT_FDCWD, other, pick(2) ? RENAME_EXCHANGE : RENAME_NOREPLACE); break;
    case 15: result = truncate(path, pick(50000)); break;
    case 16: {
        struct timespec times[2] = {{.tv_sec = pick(1000), .tv_nsec = pick(1000)}, {.tv_nsec = UTIME_OMIT}};
        result = utimensat(AT_FDCWD, path, times, 0);
        break;
    }
    default: result = mkfifo(path, 0600); break;
    }
    return result < 0 ? -errno : result;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void look(const char *path) {
    struct stat s;
    if (lstat(path, &s) != 0) {
        printf(" %s?%d", path, errno);
        return;
    }
    printf(" %s:%lu:%lu:%o:%lu:%ld:%ld:%ld.%ld:%ld.%ld", path, s.st_dev, s.st_ino, s.st_mode, s.st_nlink,
           (long)s.st_size, (long)s.st_blocks, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec,
           s.st_ctim.tv_nsec);
    char value[200];
    ssize_t length = S_ISLNK(s.st_mode) ? readlink(path, value, 200) : getxattr(path, "user.test", value, 200);
    if (length >= 0) {
        printf("=%.*s", (int)length, value);
    }
    if (S_ISREG(s.st_mode)) {
        int fd = open(path, O_RDONLY);
        unsigned sum = 0;
        unsigned char bytes[65536];
        ssize_t got;
        while ((got = read(fd, bytes, sizeof bytes)) > 0) {
            for (ssize_t i = 0; i < got; i++) {
                sum = sum * 31 + bytes[i];
            }
        }
        printf("#%x", fd < 0 ? 0 : sum);
        close(fd);
    }
    if (!S_ISDIR(s.st_mode)) {
        return;
    }
    char *names[100];
    int count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) && count < 100;) {
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            char *whole = NULL;
            asprintf(&whole, "%s/%s", path, entry->d_name);
            names[count++] = whole;
        }
    }
    if (dir) {
        closedir(dir);
    }
    qsort(names, count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        look(names[i]);
        free(names[i]);
    }
}

static int count(int times) {
    for (int i = 0; i < times; i++) {
        int fd = open("count", O_RDWR | O_CREAT, 0644);
        struct flock all = {.l_type = F_WRLCK};
        if (fd < 0 || fcntl(fd, F_SETLKW, &all) != 0) {
            return -errno;
        }
        char text[32] = "";
        if (pread(fd, text, 31, 0) < 0) {
            return -errno;
        }
        int length = sprintf(text, "%d", atoi(text) + 1);
        if (pwrite(fd, text, length, 0) != length) {
            return -errno;
        }
        close(fd);
    }
    return times;
}

static int append(int times) {
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int i = 0; i < times; i++) {
        char text[40];
        sprintf(text, "%15d %15d\n", (int)getpid(), i);
        if (write(fd, text, 32) != 32) {
            return -errno;
        }
    }
    close(fd);
    return times;
}

static int replace(int times) {
    for (int i = 0; i < times; i++) {
        char new[32], bytes[5000];
        sprintf(new, "new-%d", (int)getpid());
        memset(bytes, 'a' + i % 26, sizeof bytes);
        int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes || close(fd) || rename(new, "current")) {
            return -errno;
        }
    }
    return times;
}

static int read_current(int times) {
    for (int i = 0; i < times; i++) {
        char bytes[6000];
        int fd = open("current", O_RDONLY);
        if (fd < 0) {
            return -errno;
        }
        ssize_t got = read(fd, bytes, sizeof bytes);
        struct stat status;
        if (got != 5000 || fstat(fd, &status) || status.st_size != 5000) {
            return -1000000 - (int)got;
        }
        for (int at = 1; at < got; at++) {
            if (bytes[at] != bytes[0]) {
                return -2000000;
            }
        }
        close(fd);
    }
    return times;
}

static int create(int times) {
    int made = 0;
    mkdir("race", 0755);
    for (int i = 0; i < times; i++) {
        char path[32];
        sprintf(path, "race/%d", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd >= 0) {
            made++;
            close(fd);
        } else if (errno != EEXIST) {
            return -errno;
        }
    }
    return made;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments < 2 || chdir(arguments[1]) != 0) {
        return 1;
    }
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        int number = strchr(line, ' ') ? atoi(strchr(line, ' ')) : 0;
        if (line[0] == 'd') {
            state = number * 2654435761UL + 1;
            pick(2);
            unsigned what = pick(18);
            printf("%u %ld", what, act(what));
        } else if (line[0] == 'l') {
            look(".");
        } else {
            int (*work)(int) = line[0] == 'a'   ? append
                               : line[1] == 'o' ? count
                               : line[1] == 'r' ? create
                               : line[2] == 'p' ? replace
                                                : read_current;
            printf("%d", work(number));
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
