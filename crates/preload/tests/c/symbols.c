// Every symbol of the library, called by its name: each line names the symbol, its answer and what
// it left. A name that glibc does not have (yet) says nothing on a kernel file system.
#include "say.h"
#include <aio.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <locale.h>
#include <nl_types.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <utime.h>
#include <utmpx.h>
#include <wchar.h>

typedef long Any();
static const char *name;
static Any *call;
static char names[1024];

// What every call starts from: f with ten bytes, l -> f, d with a and b.
static void fresh(void) {
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir));)
        unlink(entry->d_name);
    closedir(dir);
    rmdir("n");
    rmdir("m");
    put("f", "0123456789");
    chmod("f", 0644);
    symlink("f", "l");
    mkdir("d", 0755);
    put("d/a", "a");
    put("d/b", "bb");
    errno = 0;
}

static int next(const char *list) {
    name = strtok(list ? strcpy(names, list) : NULL, " ");
    if (!name)
        return 0;
    call = dlsym(RTLD_DEFAULT, name);
    return 1;
}

static void tell(long value) {
    if (value == -1)
        fprintf(results, "%s = -1 %s\n", name, strerrorname_np(errno));
    else
        fprintf(results, "%s = %ld\n", name, value);
    fflush(results);
}

static void tell_text(const char *text) {
    fprintf(results, "%s: %s\n", name, text ? text : "NULL");
    fflush(results);
}

// What is there now; random names begin with t and are only counted.
static void state(void) {
    struct dirent **list;
    int count = scandir(".", &list, NULL, alphasort), random = 0;
    fprintf(results, "%s:", name);
    for (int at = 0; at < count; at++) {
        const char *entry = list[at]->d_name;
        struct stat info;
        if (*entry == '.')
            continue;
        if (*entry == 't') {
            random++;
            continue;
        }
        lstat(entry, &info);
        fprintf(results, " %s(%o %ld)", entry, info.st_mode,
                S_ISREG(info.st_mode) ? (long)info.st_size : 0L);
    }
    fprintf(results, " and %d\n", random);
    for (int at = 0; at < 2; at++) {
        const char *file = at ? "n" : "f";
        char text[64] = {0};
        int fd = open(file, O_RDONLY | O_NONBLOCK);
        struct stat info;
        if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) && read(fd, text, 63) >= 0)
            fprintf(results, "%s: %s [%s]\n", name, file, text);
        if (fd >= 0)
            close(fd);
    }
    fflush(results);
}

#define EACH(list, ...) \
    for (int more = next(list); more; more = next(NULL)) { \
        if (!call) \
            continue; \
        fresh(); \
        int fd = open("f", O_RDWR); \
        __VA_ARGS__ \
        close(fd); \
    }

static long print(Any *function, int fd, int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    long value = flag ? function(fd, 1, format, arguments) : function(fd, format, arguments);
    va_end(arguments);
    return value;
}

static void opening(void) {
    int flags = O_RDWR | O_CREAT;
    EACH("open open64 __open __open64 __open_nocancel __open64_nocancel",
         int new = call("n", flags, 0640); tell(write(new, "new", 3)); close(new); state();)
    EACH("openat openat64", int dir = open("d", O_RDONLY);
         int new = call(dir, "a", O_RDWR | O_APPEND); tell(write(new, "new", 3));
         tell(lseek(new, 0, SEEK_END)); close(new); close(dir);)
    EACH("__open_2 __open64_2", int new = call("f", O_RDONLY); char text[4];
         tell(read(new, text, 4)); close(new);)
    EACH("__openat_2 __openat64_2", int new = call(AT_FDCWD, "f", O_RDONLY); char text[4];
         tell(read(new, text, 4)); close(new);)
    EACH("creat creat64", int new = call("n", 0600); tell(write(new, "new", 3)); close(new);
         state();)
    EACH("close __close __close_nocancel", int own = dup(fd); tell((int)call(own));
         tell(fcntl(own, F_GETFD));)
    EACH("close_range", int own = dup2(fd, 90); tell((int)call(90, 95, 0));
         tell(fcntl(own, F_GETFD));)
    EACH("closefrom", int own = dup2(fd, 900); call(890); tell(fcntl(own, F_GETFD));)
}

static void transfer(void) {
    char text[16];
    struct iovec one = {text, 4}, out = {"wxyz", 4};
#define READS(...) memset(text, 0, sizeof text); lseek(fd, 2, SEEK_SET); tell(call __VA_ARGS__); \
    tell_text(text); tell(lseek(fd, 0, SEEK_CUR));
    EACH("read __read __read_nocancel", READS((fd, text, 4L)))
    EACH("__read_chk", READS((fd, text, 4L, 16L)))
    EACH("pread pread64 __pread64 __pread64_nocancel __libc_pread", READS((fd, text, 4L, 5L)))
    EACH("__pread_chk __pread64_chk", READS((fd, text, 4L, 5L, 16L)))
    EACH("readv", READS((fd, &one, 1)))
    EACH("preadv preadv64", READS((fd, &one, 1, 5L)))
    EACH("preadv2 preadv64v2", READS((fd, &one, 1, -1L, RWF_NOWAIT & 0)))
#define WRITES(...) lseek(fd, 2, SEEK_SET); tell(call __VA_ARGS__); \
    tell(lseek(fd, 0, SEEK_CUR)); state();
    EACH("write __write __write_nocancel", WRITES((fd, "wxyz", 4L)))
    EACH("pwrite pwrite64 __pwrite64 __libc_pwrite", WRITES((fd, "wxyz", 4L, 5L)))
    EACH("writev", WRITES((fd, &out, 1)))
    EACH("pwritev pwritev64", WRITES((fd, &out, 1, 5L)))
    EACH("pwritev2 pwritev64v2", WRITES((fd, &out, 1, -1L, RWF_DSYNC))
         WRITES((fd, &out, 1, 3L, RWF_APPEND)) WRITES((fd, &out, 1, -1L, RWF_APPEND))
         WRITES((fd, &out, 1, -1L, 1 << 30)))
    EACH("lseek lseek64 llseek __lseek", tell(call(fd, -3L, SEEK_END));
         tell(call(fd, -30L, SEEK_END));)
    int pipes[2];
    pipe(pipes);
    EACH("sendfile sendfile64", long at = 3; int to = creat("n", 0644);
         tell(call(to, fd, &at, 5L)); tell(at); close(to); state();)
    EACH("copy_file_range", long at = 3; int to = creat("n", 0644);
         tell(call(fd, &at, to, NULL, 5L, 0)); tell(at); close(to); state();)
    EACH("splice", tell(call(fd, NULL, pipes[1], NULL, 4L, 0)); tell(read(pipes[0], text, 4));)
    EACH("tee vmsplice", tell(call(fd, pipes[1], 4L, 0));)
    EACH("dprintf", tell((int)call(fd, "%d %s %ld %d %d %s", 1, "two", 3L, 4, 5, "six")); state();)
    EACH("__dprintf_chk", tell((int)call(fd, 1, "%d %s %ld %d %d %s", 1, "two", 3L, 4, 5, "six"));
         state();)
    EACH("vdprintf", tell((int)print(call, fd, 0, "%s %.2f %d", "pi", 3.14159, 7)); state();)
    EACH("__vdprintf_chk", tell((int)print(call, fd, 1, "%s %.2f %d", "pi", 3.14159, 7)); state();)
    EACH("dprintf", int (*formatted)(int, const char *, ...) = (void *)call;
         tell(formatted(fd, "%.1f %.1f %d %s", 0.5, 1.5, 2, "three")); state();)
    EACH("eventfd_read", uint64_t value = 0; tell((int)call(fd, &value));
         tell(value == *(uint64_t *)"01234567");)
    EACH("eventfd_write", uint64_t value = *(uint64_t *)"abcdefgh"; tell((int)call(fd, value));
         state();)
    EACH("readahead", tell(call(fd, 0L, 4L));)
    EACH("posix_fadvise posix_fadvise64", tell((int)call(fd, 0L, 0L, POSIX_FADV_DONTNEED));
         tell((int)call(fd, 0L, 0L, 77));)
    EACH("fsync fdatasync syncfs", tell((int)call(fd));)
    EACH("sync", call(); tell(0);)
    EACH("sync_file_range", tell((int)call(fd, 0L, 4L, 0)); tell((int)call(fd, -1L, 4L, 0));)
    EACH("backtrace_symbols_fd __backtrace_symbols_fd", void *frames[4];
         int count = backtrace(frames, 4); ftruncate(fd, 0); call(frames, count, fd);
         tell(count > 0 && lseek(fd, 0, SEEK_END) > 0);)
    EACH("perror", int old = dup(2); dup2(fd, 2); errno = ENOENT; call("why"); dup2(old, 2);
         close(old); state();)
}

static volatile int notified;
static void on_signal(int signal, siginfo_t *info, void *context) {
    notified = info->si_value.sival_int + (info->si_code == SI_ASYNCIO);
}
// The notification's own signal may end the wait.
static int suspended(const struct aiocb *const list[]) {
    int result;
    do
        result = aio_suspend(list, 1, NULL);
    while (result && errno == EINTR);
    return result;
}

static void on_thread(union sigval value) { notified = value.sival_int; }

static void asynchronous(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    char text[16] = {0};
    for (int how = 0; how < 3; how++) {
        EACH("aio_read aio_read64", struct aiocb block = {0}; notified = 0; memset(text, 0, 16);
             block.aio_fildes = fd; block.aio_buf = text; block.aio_nbytes = 4;
             block.aio_offset = 3;
             block.aio_sigevent.sigev_notify = how == 1 ? SIGEV_SIGNAL : how == 2 ? SIGEV_THREAD
                                                                                : SIGEV_NONE;
             block.aio_sigevent.sigev_value.sival_int = 41;
             if (how == 1) block.aio_sigevent.sigev_signo = SIGUSR1;
             if (how == 2) block.aio_sigevent.sigev_notify_function = on_thread;
             tell((int)call(&block)); const struct aiocb *list[] = {&block};
             tell(suspended(list)); tell(aio_error(&block)); tell(aio_return(&block));
             while (how && !notified) usleep(1000); tell(notified); tell_text(text);)
    }
    EACH("aio_write aio_write64", struct aiocb block = {0}; block.aio_fildes = fd;
         block.aio_buf = "wxyz"; block.aio_nbytes = 4; block.aio_offset = 3;
         block.aio_sigevent.sigev_notify = SIGEV_NONE; tell((int)call(&block));
         const struct aiocb *list[] = {&block}; suspended(list);
         tell(aio_error(&block)); tell(aio_return(&block)); state();)
    EACH("aio_fsync aio_fsync64", struct aiocb block = {0}; block.aio_fildes = fd;
         block.aio_sigevent.sigev_notify = SIGEV_NONE; tell((int)call(O_DSYNC, &block));
         const struct aiocb *list[] = {&block}; suspended(list);
         tell(aio_error(&block)); tell((int)call(77, &block));)
    EACH("lio_listio lio_listio64", struct aiocb first = {0}; struct aiocb second = {0};
         int null = open("/dev/zero", O_RDWR);
         first.aio_fildes = fd; first.aio_lio_opcode = LIO_WRITE; first.aio_buf = "wxyz";
         first.aio_nbytes = 4; second.aio_fildes = null; second.aio_lio_opcode = LIO_READ;
         second.aio_buf = text; second.aio_nbytes = 4;
         struct aiocb *both[] = {&first, NULL, &second};
         tell((int)call(LIO_WAIT, both, 3, NULL)); tell(aio_error(&first));
         tell(aio_return(&first)); tell(aio_return(&second)); close(null); state();)
}

static void descriptors(void) {
    EACH("dup", int new = call(fd); tell(lseek(new, 3, SEEK_SET)); tell(lseek(fd, 0, SEEK_CUR));
         close(new);)
    EACH("dup2 __dup2", tell((int)call(fd, 77)); tell(write(77, "x", 1)); close(77); state();)
    EACH("dup3", tell((int)call(fd, 77, O_CLOEXEC)); tell(fcntl(77, F_GETFD)); close(77);)
    EACH("fcntl fcntl64 __fcntl __libc_fcntl64", tell((int)call(fd, F_SETFL, O_APPEND));
         tell((int)call(fd, F_GETFL) & (O_APPEND | O_ACCMODE)); write(fd, "x", 1); state();)
    EACH("ioctl", int left; lseek(fd, 4, SEEK_SET); tell((int)call(fd, FIONREAD, &left));
         tell(left); tell((int)call(fd, 0x5401L, &left));)
    EACH("flock", tell((int)call(fd, LOCK_EX)); int other = open("f", O_RDWR);
         tell((int)call(other, LOCK_EX | LOCK_NB)); close(other);)
    EACH("lockf lockf64", tell((int)call(fd, F_TLOCK, 4L)); tell((int)call(fd, F_ULOCK, 4L));)
    EACH("isfdtype", tell((int)call(fd, S_IFREG)); tell((int)call(fd, S_IFDIR));)
}

static void stats(void) {
    struct stat info;
    struct statx extended;
#define STATS(...) memset(&info, 0, sizeof info); tell((int)call __VA_ARGS__); \
    tell(info.st_size); tell(info.st_mode);
    EACH("stat stat64", STATS(("l", &info)) STATS(("none", &info)))
    EACH("lstat lstat64", memset(&info, 0, sizeof info); tell((int)call("l", &info));
         tell(info.st_mode);)
    EACH("fstat fstat64 __fstat64", STATS((fd, &info)))
    EACH("fstatat fstatat64", STATS((AT_FDCWD, "f", &info, 0)) STATS((fd, "", &info,
                                                                       AT_EMPTY_PATH)))
    EACH("__xstat __xstat64", STATS((1, "l", &info)))
    EACH("__lxstat __lxstat64", memset(&info, 0, sizeof info); tell((int)call(1, "l", &info));
         tell(info.st_mode);)
    EACH("__fxstat __fxstat64", STATS((1, fd, &info)))
    EACH("__fxstatat __fxstatat64", STATS((1, AT_FDCWD, "f", &info, 0)))
    EACH("statx", tell((int)call(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &extended));
         tell(extended.stx_size);)
    EACH("access eaccess euidaccess", tell((int)call("f", R_OK)); tell((int)call("none", F_OK));)
    EACH("faccessat", tell((int)call(AT_FDCWD, "f", R_OK, 0));)
    struct statfs space;
    struct statvfs other;
    EACH("statfs statfs64 __statfs", tell((int)call("f", &space)); tell(space.f_namelen);)
    EACH("fstatfs fstatfs64", tell((int)call(fd, &space)); tell(space.f_bsize);)
    EACH("statvfs statvfs64", tell((int)call("f", &other)); tell(other.f_namemax);)
    EACH("fstatvfs fstatvfs64", tell((int)call(fd, &other)); tell(other.f_bsize);)
    EACH("pathconf", tell(call("f", _PC_NAME_MAX));)
    EACH("fpathconf", tell(call(fd, _PC_NAME_MAX));)
    EACH("ftok", tell((int)call("f", 7) >> 24); tell((int)call("none", 7));)
}

static void attributes(void) {
    EACH("chmod", tell((int)call("f", 0600)); state();)
    EACH("fchmod", tell((int)call(fd, 0600)); state();)
    EACH("fchmodat", tell((int)call(AT_FDCWD, "f", 0600, 0)); state();)
    EACH("lchmod", tell((int)call("f", 0600)); state();)
    EACH("chown lchown", tell((int)call("f", getuid(), getgid())); tell((int)call("none", 0, 0));)
    EACH("fchown", tell((int)call(fd, getuid(), getgid()));)
    EACH("fchownat", tell((int)call(AT_FDCWD, "f", getuid(), getgid(), 0));)
    struct stat info;
    struct timeval micros[2] = {{100, 1}, {200, 2}};
    struct timespec nanos[2] = {{100, 1}, {200, 2}};
    struct utimbuf seconds = {100, 200};
#define TIMES(...) tell((int)call __VA_ARGS__); stat("f", &info); tell(info.st_atim.tv_sec); \
    tell(info.st_mtim.tv_sec); tell(info.st_mtim.tv_nsec);
    EACH("utime", TIMES(("f", &seconds)))
    EACH("utimes lutimes", TIMES(("f", micros)))
    EACH("futimes", TIMES((fd, micros)))
    EACH("futimesat", TIMES((AT_FDCWD, "f", micros)))
    EACH("utimensat", TIMES((AT_FDCWD, "f", nanos, 0)))
    EACH("futimens", TIMES((fd, nanos)))
    EACH("truncate truncate64", tell((int)call("f", 4L)); state();)
    EACH("ftruncate ftruncate64", tell((int)call(fd, 4L)); state();)
    EACH("fallocate fallocate64", tell((int)call(fd, 0, 0L, 20L)); state();)
    EACH("posix_fallocate posix_fallocate64", tell((int)call(fd, 0L, 20L)); state();)
    struct rlimit most = {12, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
#define LIMITED tell(pwrite(fd, "0123456789", 10, 8)); setrlimit(RLIMIT_FSIZE, &all); state();
    EACH("setrlimit setrlimit64", tell((int)call(RLIMIT_FSIZE, &most)); LIMITED)
    EACH("prlimit prlimit64", tell((int)call(0, RLIMIT_FSIZE, &most, NULL)); LIMITED)
    char text[64];
#define ATTRIBUTE fsetxattr(fd, "trusted.x", "value", 5, 0); memset(text, 0, sizeof text);
    EACH("setxattr lsetxattr", tell((int)call("f", "trusted.x", "v", 1L, 0));
         tell(fgetxattr(fd, "trusted.x", text, 8));)
    EACH("fsetxattr", tell((int)call(fd, "trusted.x", "v", 1L, 0));
         tell(fgetxattr(fd, "trusted.x", text, 8));)
    EACH("getxattr lgetxattr", ATTRIBUTE tell(call("f", "trusted.x", text, 8L)); tell_text(text);)
    EACH("fgetxattr", ATTRIBUTE tell(call(fd, "trusted.x", text, 8L)); tell_text(text);)
    EACH("listxattr llistxattr", ATTRIBUTE tell(call("f", text, 64L)); tell_text(text);)
    EACH("flistxattr", ATTRIBUTE tell(call(fd, text, 64L)); tell_text(text);)
    EACH("removexattr lremovexattr", ATTRIBUTE tell((int)call("f", "trusted.x"));
         tell(fgetxattr(fd, "trusted.x", text, 8));)
    EACH("fremovexattr", ATTRIBUTE tell((int)call(fd, "trusted.x"));
         tell(fgetxattr(fd, "trusted.x", text, 8));)
}

static void naming(void) {
    int here = AT_FDCWD;
    dev_t none = 0;
    EACH("mkdir", tell((int)call("n", 0700)); state();)
    EACH("mkdirat", tell((int)call(here, "n", 0700)); state();)
    EACH("mkfifo", tell((int)call("n", 0600)); state();)
    EACH("mkfifoat", tell((int)call(here, "n", 0600)); state();)
    EACH("mknod", tell((int)call("n", S_IFIFO | 0600, none)); state();)
    EACH("mknodat", tell((int)call(here, "n", S_IFREG | 0600, none)); state();)
    EACH("__xmknod", tell((int)call(0, "n", S_IFIFO | 0600, &none)); state();)
    EACH("__xmknodat", tell((int)call(0, here, "n", S_IFREG | 0600, &none)); state();)
    EACH("rmdir", mkdir("n", 0700); tell((int)call("n")); tell((int)call("d")); state();)
    EACH("unlink remove", tell((int)call("f")); tell((int)call("none")); state();)
    EACH("unlinkat", tell((int)call(here, "f", 0)); state();)
    EACH("link", tell((int)call("f", "n")); state();)
    EACH("linkat", tell((int)call(here, "f", here, "n", 0)); state();)
    EACH("symlink", tell((int)call("f", "n")); state();)
    EACH("symlinkat", tell((int)call("f", here, "n")); state();)
    EACH("rename", tell((int)call("f", "n")); state();)
    EACH("renameat", tell((int)call(here, "f", here, "n")); state();)
    EACH("renameat2", tell((int)call(here, "f", here, "l", RENAME_EXCHANGE)); state();)
    char text[PATH_MAX];
#define LINKS(...) memset(text, 0, sizeof text); tell(call __VA_ARGS__); tell_text(text);
    EACH("readlink", LINKS(("l", text, 64L)))
    EACH("__readlink_chk", LINKS(("l", text, 64L, 4096L)))
    EACH("readlinkat", LINKS((here, "l", text, 64L)))
    EACH("__readlinkat_chk", LINKS((here, "l", text, 64L, 4096L)))
#define TEXT(...) ((char *(*)())call) __VA_ARGS__
#define LAST(text) tell_text((text) && strrchr((text), '/') ? strrchr((text), '/') : NULL)
    EACH("realpath", LAST(TEXT(("l", text))); LAST(TEXT(("none", text)));)
    EACH("__realpath_chk", LAST(TEXT(("l", text, 4096L)));)
    EACH("canonicalize_file_name", LAST(TEXT(("d/../l")));)
    EACH("mkstemp mkstemp64", char to[] = "tXXXXXX"; tell(write(call(to), "x", 1)); state();)
    EACH("mkostemp mkostemp64", char to[] = "tXXXXXX"; int own = call(to, O_CLOEXEC);
         tell(fcntl(own, F_GETFD)); state();)
    EACH("mkstemps mkstemps64", char to[] = "tXXXXXX.c"; tell(write(call(to, 2), "x", 1));
         tell_text(to + 7); state();)
    EACH("mkostemps mkostemps64", char to[] = "tXXXXXX.c";
         tell(write(call(to, 2, O_APPEND), "x", 1)); state();)
    EACH("mkdtemp", char to[] = "tXXXXXX"; tell(TEXT((to)) == to); state(); rmdir(to);)
    EACH("mktemp __mktemp", char to[] = "tXXXXXX"; TEXT((to)); tell(strlen(to));
         tell(access(to, F_OK));)
    EACH("tempnam", char *to = TEXT(("d", "prefix")); tell(!strncmp(to, "d/prefi", 7));
         tell(strlen(to));)
    EACH("tmpfile tmpfile64", FILE *file = (FILE *)TEXT(()); tell(fputs("x", file) > 0);
         fclose(file);)
    EACH("tmpnam tmpnam_r", tell(TEXT((text)) == text); tell(access(text, F_OK));)
    char before[PATH_MAX];
    getcwd(before, sizeof before);
    EACH("chdir", tell((int)call("d")); tell(access("a", F_OK)); chdir(before);)
    EACH("fchdir", int dir = open("d", O_RDONLY); tell((int)call(dir)); tell(access("a", F_OK));
         chdir(before); close(dir);)
    chdir("d");
#define PLACE(...) chdir("d"); memset(text, 0, sizeof text); LAST(TEXT(__VA_ARGS__)); \
    chdir(before);
    chdir(before);
    EACH("getcwd", PLACE((text, 4096L)))
    EACH("__getcwd_chk", PLACE((text, 4096L, 4096L)))
    EACH("getwd", PLACE((text)))
    EACH("__getwd_chk", PLACE((text, 4096L)))
    EACH("get_current_dir_name", PLACE(()))
    EACH("umask", tell((int)call(027)); close(creat("n", 0666)); state(); umask(022);)
}

static int visits;
static int visit(const char *path, const struct stat *info, int flag) {
    visits += flag == FTW_F ? 10 : 1;
    return 0;
}
static int visit_new(const char *path, const struct stat *info, int flag, struct FTW *depth) {
    return visit(path, info, flag);
}

static void directories(void) {
    char room[4096];
#define ENTRIES(dir) int count = 0; while (readdir(dir)) count++; tell(count);
    EACH("opendir", DIR *dir = (DIR *)TEXT(("d")); ENTRIES(dir) closedir(dir);)
    EACH("fdopendir", DIR *dir = (DIR *)TEXT((open("d", O_RDONLY))); ENTRIES(dir) closedir(dir);)
    EACH("readdir readdir64", DIR *dir = opendir("d"); int count = 0;
         while (TEXT((dir))) count++; tell(count); closedir(dir);)
    EACH("readdir_r readdir64_r", DIR *dir = opendir("d"); int count = 0;
         struct dirent entry, *found; while (!call(dir, &entry, &found) && found) count++;
         tell(count); closedir(dir);)
    EACH("closedir", DIR *dir = opendir("d"); int own = dirfd(dir); tell((int)call(dir));
         tell(fcntl(own, F_GETFD));)
    EACH("rewinddir", DIR *dir = opendir("d"); readdir(dir); call(dir); ENTRIES(dir) closedir(dir);)
    EACH("telldir", DIR *dir = opendir("d"); readdir(dir); long at = call(dir); readdir(dir);
         seekdir(dir, at); ENTRIES(dir) closedir(dir);)
    EACH("seekdir", DIR *dir = opendir("d"); readdir(dir); long at = telldir(dir); readdir(dir);
         call(dir, at); ENTRIES(dir) closedir(dir);)
    EACH("dirfd", DIR *dir = opendir("d"); struct stat info; tell(fstat(call(dir), &info));
         tell(S_ISDIR(info.st_mode)); closedir(dir);)
    EACH("scandir scandir64", struct dirent **list; int count = call("d", &list, NULL, alphasort);
         tell(count); tell_text(list[2]->d_name);)
    EACH("scandirat scandirat64", struct dirent **list;
         int count = call(AT_FDCWD, "d", &list, NULL, alphasort); tell(count);
         tell_text(list[3]->d_name);)
    EACH("getdents64", int dir = open("d", O_RDONLY); tell(call(dir, room, 4096L));
         tell(call(dir, room, 4096L)); close(dir);)
    EACH("getdirentries getdirentries64", int dir = open("d", O_RDONLY); long start = 7;
         tell(call(dir, room, 4096L, &start)); tell(start); close(dir);)
    EACH("glob glob64", glob_t found; tell((int)call("d/*", 0, NULL, &found));
         tell(found.gl_pathc); tell_text(found.gl_pathv[1]); globfree(&found);)
    EACH("ftw ftw64", visits = 0; tell((int)call(".", visit, 8)); tell(visits);)
    EACH("nftw nftw64", visits = 0; tell((int)call(".", visit_new, 8, FTW_PHYS)); tell(visits);)
}

static void streams(void) {
    char line[64];
    EACH("fopen fopen64 _IO_fopen", FILE *file = (FILE *)TEXT(("f", "r+"));
         tell_text(fgets(line, 5, file)); fseek(file, 0, SEEK_END); fputs("end", file);
         fclose(file); state();)
    EACH("fdopen _IO_fdopen", FILE *file = (FILE *)TEXT((dup(fd), "r+"));
         tell_text(fgets(line, 5, file)); fclose(file);)
    EACH("freopen freopen64", FILE *file = fopen("d/a", "r");
         file = (FILE *)TEXT(("f", "r", file)); tell_text(fgets(line, 5, file)); fclose(file);)
}

// In a child whose standard output is the new file n; then what it left.
#define CHILD(...) \
    { \
        pid_t pid = fork(); \
        if (!pid) { \
            int to = creat("n", 0644); \
            dup2(to, 1); \
            __VA_ARGS__; \
            _exit(99); \
        } \
        int status; \
        waitpid(pid, &status, 0); \
        tell(status); \
        state(); \
    }

static long wide_print(Any *function, long first, long flag, const wchar_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    long value = first && flag ? function(first, flag, format, arguments)
                 : first || flag ? function(first | flag, format, arguments)
                                 : function(format, arguments);
    va_end(arguments);
    return (int)value;
}

static void wide(void) {
    static wchar_t line[64];
    char *tongue = setlocale(LC_ALL, "C.UTF-8");
#define STREAM put("f", "\xc3\xa4\xe2\x82\xac" "b\nc"); FILE *file = fopen("f", "r+");
#define WRITTEN fclose(file); state();
    EACH("fgetwc fgetwc_unlocked getwc getwc_unlocked", STREAM
         for (int at = 0; at < 6; at++) tell((int)call(file)); tell(feof(file)); fclose(file);)
    EACH("fgetwc", put("f", "a\xff"); FILE *file = fopen("f", "r"); tell((int)call(file));
         tell((int)call(file)); tell(errno == EILSEQ); fclose(file);)
    EACH("fgetws fgetws_unlocked", STREAM tell(TEXT((line, 64, file)) != NULL); tell(line[1]);
         tell(wcslen(line)); tell(TEXT((line, 2, file)) != NULL); tell(line[0]);
         tell(TEXT((line, 2, file)) != NULL); fclose(file);)
    EACH("__fgetws_chk __fgetws_unlocked_chk", STREAM tell(TEXT((line, 64L, 64, file)) != NULL);
         tell(wcslen(line)); fclose(file);)
    EACH("fputwc fputwc_unlocked putwc putwc_unlocked", FILE *file = fopen("n", "w");
         tell((int)call(L'\u20ac', file)); tell((int)call(L'x', file)); WRITTEN)
    EACH("fputws fputws_unlocked", FILE *file = fopen("n", "w");
         tell((int)call(L"a\u20acb", file) > 0); WRITTEN)
    EACH("ungetwc", STREAM tell(fgetwc(file)); tell((int)call(L'\u20ac', file));
         tell(fgetwc(file)); tell(fgetwc(file)); fclose(file);)
    EACH("fwide", STREAM tell((int)call(file, 1) > 0); fclose(file);)
    EACH("fwprintf", FILE *file = fopen("n", "w"); int (*own)(FILE *, const wchar_t *, ...) =
         (void *)call; tell(own(file, L"%d %.1f %ls %s", 7, 2.5, L"\u20ac", "x")); WRITTEN)
    EACH("__fwprintf_chk", FILE *file = fopen("n", "w");
         int (*own)(FILE *, int, const wchar_t *, ...) = (void *)call;
         tell(own(file, 1, L"%d %.1f %d %300d", 7, 2.5, 8, 9)); WRITTEN)
    EACH("vfwprintf", FILE *file = fopen("n", "w");
         tell(wide_print(call, (long)file, 0, L"%d %ls", 7, L"\u20ac")); WRITTEN)
    EACH("__vfwprintf_chk", FILE *file = fopen("n", "w");
         tell(wide_print(call, (long)file, 1, L"%d %ls", 7, L"\u20ac")); WRITTEN)
    EACH("getwchar getwchar_unlocked", put("f", "\xc3\xa4x");
         CHILD(dup2(fd, 0); int first = call(); tell(first); tell((int)call())))
    EACH("putwchar putwchar_unlocked", CHILD(call(L'\u20ac'); call(L'x'); fflush(stdout)))
    EACH("wprintf", CHILD(int (*own)(const wchar_t *, ...) = (void *)call;
                          tell(own(L"%d %.1f %s", 7, 2.5, "x")); fflush(stdout)))
    EACH("__wprintf_chk", CHILD(int (*own)(int, const wchar_t *, ...) = (void *)call;
                                tell(own(1, L"%d %.1f %s", 7, 2.5, "x")); fflush(stdout)))
    EACH("vwprintf", CHILD(tell(wide_print(call, 0, 0, L"%d %s", 7, "x")); fflush(stdout)))
    EACH("__vwprintf_chk", CHILD(tell(wide_print(call, 0, 1, L"%d %s", 7, "x")); fflush(stdout)))
    setlocale(LC_ALL, "C");
}

static void mappings(void) {
    int both = PROT_READ | PROT_WRITE;
    EACH("mmap mmap64 __mmap", char *map = TEXT((NULL, 4096L, both, MAP_SHARED, fd, 0L));
         map[1] = 'M'; munmap(map, 4096); state();)
#define MAPPED char *map = mmap(NULL, 8192, both, MAP_SHARED, fd, 0); map[0] = 'P';
    EACH("munmap __munmap", MAPPED tell((int)call(map, 8192L)); tell(msync(map, 4096, MS_SYNC));)
    EACH("mprotect __mprotect", MAPPED tell((int)call(map, 4096L, PROT_READ)); munmap(map, 8192);)
    EACH("remap_file_pages", MAPPED tell((int)call(map, 4096L, 0, 1L, 0)); munmap(map, 8192);)
    EACH("mremap", MAPPED char *new = TEXT((map, 4096L, 16384L, MREMAP_MAYMOVE)); tell(new[0]);
         munmap(new, 16384);)
    EACH("msync", MAPPED tell((int)call(map, 4096L, MS_SYNC)); munmap(map, 8192); state();)
    EACH("mlock mlock2 munlock", MAPPED tell((int)call(map, 4096L, 0)); munmap(map, 8192);)
    EACH("mlockall munlockall", tell((int)call(MCL_FUTURE));)
    static sigset_t bus;
    struct iovec one[2] = {{&bus, 1}, {(char *)&bus + 1, 1}};
    EACH("process_vm_readv process_vm_writev", tell(call(getpid(), one, 1L, one + 1, 1L, 0L));)
    sigaddset(&bus, SIGBUS);
    struct timespec at_once = {0};
    struct pollfd asked = {.fd = 0};
    EACH("ppoll", tell((int)call(&asked, 0L, &at_once, &bus));)
    EACH("__ppoll_chk", tell((int)call(&asked, 0L, &at_once, &bus, sizeof asked));)
    EACH("pselect", tell((int)call(0, NULL, NULL, NULL, &at_once, &bus));)
    EACH("epoll_pwait", struct epoll_event event; int poll = epoll_create1(0);
         tell((int)call(poll, &event, 1, 0, &bus)); close(poll);)
    EACH("epoll_pwait2", struct epoll_event event; int poll = epoll_create1(0);
         tell((int)call(poll, &event, 1, &at_once, &bus)); close(poll);)
    EACH("madvise __madvise", MAPPED tell((int)call(map, 4096L, MADV_WILLNEED));
         munmap(map, 8192);)
}

static int in_clone(void *unused) {
    put("n", "cloned");
    return 5;
}

static void programs(void) {
    char *echo[] = {"echo", "said", NULL}, *none[] = {"X=1", NULL};
    int status;
    pid_t pid;
    EACH("execl", CHILD(call("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", "7", NULL)))
    EACH("execlp", CHILD(call("echo", "echo", "1", "2", "3", "4", "5", "6", "7", NULL)))
    EACH("execle", CHILD(call("/usr/bin/printenv", "printenv", "X", NULL, none)))
    EACH("execv", CHILD(call("/bin/echo", echo)))
    EACH("execve", CHILD(call("/bin/echo", echo, none)))
    EACH("execvp", CHILD(call("echo", echo)))
    EACH("execvpe", CHILD(call("echo", echo, none)))
    EACH("fexecve", CHILD(call(open("/bin/echo", O_RDONLY), echo, none)))
    EACH("execveat", CHILD(call(open("/bin", O_RDONLY), "echo", echo, none, 0)))
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "n", O_WRONLY | O_CREAT, 0644);
    EACH("posix_spawn", tell((int)call(&pid, "/bin/echo", &actions, NULL, echo, none));
         waitpid(pid, &status, 0); state();)
    EACH("posix_spawnp", tell((int)call(&pid, "echo", &actions, NULL, echo, none));
         waitpid(pid, &status, 0); state();)
    EACH("pidfd_spawn", int child; siginfo_t info;
         tell((int)call(&child, "/bin/echo", &actions, NULL, echo, none));
         tell(waitid(P_PIDFD, child, &info, WEXITED)); tell(info.si_status); close(child); state();)
    EACH("pidfd_spawnp", int child; siginfo_t info;
         tell((int)call(&child, "echo", &actions, NULL, echo, none));
         tell(waitid(P_PIDFD, child, &info, WEXITED)); close(child); state();)
    char line[64];
    EACH("popen _IO_popen", FILE *file = (FILE *)TEXT(("cat f", "r"));
         tell_text(fgets(line, 64, file)); tell(pclose(file));)
    EACH("pclose", FILE *file = popen("exit 3", "r"); tell((int)call(file));)
    EACH("system __libc_system", tell((int)call("echo said > n")); state();)
    EACH("fork _Fork __fork __libc_fork", pid = call();
         if (!pid) { put("n", "child"); _exit(4); } waitpid(pid, &status, 0); tell(status); state();)
    EACH("clone __clone", static char stack[1 << 16] __attribute__((aligned(64)));
         pid = call(in_clone, stack + sizeof stack, SIGCHLD, NULL); waitpid(pid, &status, 0);
         tell(status); state();)
    EACH("_exit _Exit", pid = fork(); if (!pid) call(7); waitpid(pid, &status, 0); tell(status);)
    EACH("daemon", int pipes[2]; pipe(pipes); pid = fork(); if (!pid) {
        tell((int)call(1, 1)); put("n", "daemon"); write(pipes[1], "x", 1); _exit(0); }
        waitpid(pid, &status, 0); close(pipes[1]); read(pipes[0], line, 1);
        while (read(pipes[0], line, 1)) {} close(pipes[0]); state();)
    EACH("forkpty", int master; pid = call(&master, NULL, NULL, NULL);
         if (!pid) { put("n", isatty(0) ? "terminal" : "none"); _exit(0); }
         waitpid(pid, &status, 0); close(master); tell(status); state();)
    EACH("login_tty", int master; int slave; openpty(&master, &slave, NULL, NULL, NULL);
         pid = fork(); if (!pid) { dup2(fd, 0); int done = call(slave);
         put("n", !done && isatty(0) ? "terminal" : "none"); _exit(0); }
         waitpid(pid, &status, 0); tell(status); state(); close(master); close(slave);)
}

// vfork's caller may do little else.
static void vforks(void) {
    EACH("vfork __vfork", int status; pid_t (*own)(void) = (void *)call; pid_t pid = own();
         if (!pid) _exit(6); waitpid(pid, &status, 0); tell(status);)
}

static void identity(void) {
    gid_t groups[64];
    int count = getgroups(64, groups);
    EACH("setuid seteuid", tell((int)call(getuid()));)
    EACH("setgid setegid", tell((int)call(getgid()));)
    EACH("setreuid", tell((int)call(getuid(), getuid()));)
    EACH("setregid", tell((int)call(getgid(), getgid()));)
    EACH("setresuid", tell((int)call(getuid(), getuid(), getuid()));)
    EACH("setresgid", tell((int)call(getgid(), getgid(), getgid()));)
    EACH("setgroups", tell((int)call((long)count, groups));)
    EACH("initgroups", tell((int)call("root", 0)); setgroups(count, groups);)
    EACH("setfsuid", chmod("f", 0600); tell((int)call(1234)); tell(open("f", O_RDONLY));
         tell((int)call(getuid()));)
    EACH("setfsgid", tell((int)call(1234)); tell((int)call(getgid()));)
}

static void loading(void) {
    glob_t found;
    glob("/lib/*/libBrokenLocale.so.1", 0, NULL, &found);
    char command[512];
    snprintf(command, sizeof command, "cp %s n", found.gl_pathc ? found.gl_pathv[0] : "/none");
#define LOADS(...) system(command); void *own = TEXT(__VA_ARGS__); tell(own != NULL); \
    void *same = TEXT(__VA_ARGS__); tell(same == own); \
    Any *inside = own ? dlsym(own, "__ctype_get_mb_cur_max") : NULL; \
    tell(inside ? (int)inside() : 0);
    EACH("dlopen", LOADS(("./n", RTLD_NOW)) tell(TEXT(("./f", RTLD_NOW)) != NULL);
         tell(TEXT(("./none", RTLD_NOW)) != NULL); tell(TEXT(("libm.so.6", RTLD_NOW)) != NULL);
         tell(TEXT((NULL, RTLD_NOW)) != NULL);)
    EACH("dlmopen", system(command); tell(TEXT((LM_ID_BASE, "./n", RTLD_NOW)) != NULL);)
    EACH("catopen", put("m", "$set 1\n1 message\n"); system("gencat n.cat m");
         long (*open_it)(const char *, int) = (void *)call; nl_catd own = (nl_catd)open_it("./n.cat", 0);
         tell_text(own == (nl_catd)-1 ? "none" : catgets(own, 1, 1, "no message"));
         tell(open_it("./none", 0)); unlink("n.cat");)
}

static struct sockaddr_un address(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, path);
    return to;
}

static void sockets(void) {
    char text[16] = {0};
    struct iovec data = {"data", 4}, room = {text, 16};
    struct sockaddr_un to = address("n"), who;
    socklen_t len = sizeof to;
#define LISTENING int server = socket(AF_UNIX, SOCK_STREAM, 0); \
    bind(server, (void *)&to, sizeof to); listen(server, 4); \
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
#define CONNECTED LISTENING connect(client, (void *)&to, sizeof to);
#define RECEIVER int receiver = socket(AF_UNIX, SOCK_DGRAM, 0); \
    bind(receiver, (void *)&to, sizeof to); int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    EACH("bind", int own = socket(AF_UNIX, SOCK_STREAM, 0); tell((int)call(own, &to, sizeof to));
         tell((int)call(own, &to, sizeof to)); close(own); state();)
    EACH("connect __connect", LISTENING tell((int)call(client, &to, sizeof to)); close(client);
         close(server); tell((int)call(fd, &to, sizeof to));)
    EACH("accept", CONNECTED tell(call(server, NULL, NULL) > 0); close(client); close(server);)
    EACH("accept4", CONNECTED int got = call(server, NULL, NULL, SOCK_CLOEXEC);
         tell(fcntl(got, F_GETFD)); close(got); close(client); close(server);)
    EACH("getsockname", CONNECTED len = sizeof who; tell((int)call(server, &who, &len));
         tell_text(who.sun_path); close(client); close(server);)
    EACH("getpeername", CONNECTED len = sizeof who; tell((int)call(client, &who, &len));
         tell_text(who.sun_path); close(client); close(server);)
    EACH("sendto", RECEIVER tell(call(sender, "data", 4L, 0, &to, sizeof to));
         tell(recv(receiver, text, 16, 0)); close(sender); close(receiver);)
    EACH("recvfrom", RECEIVER sendto(sender, "data", 4, 0, (void *)&to, sizeof to);
         tell(call(receiver, text, 16L, 0, NULL, NULL)); close(sender); close(receiver);)
    EACH("send __send", RECEIVER connect(sender, (void *)&to, sizeof to);
         tell(call(sender, "data", 4L, 0)); tell(read(receiver, text, 16)); tell(call(fd, "data", 4L, 0));
         close(sender); close(receiver);)
    EACH("recv", RECEIVER sendto(sender, "data", 4, 0, (void *)&to, sizeof to);
         tell(call(receiver, text, 16L, 0)); tell(call(fd, text, 16L, 0)); close(sender); close(receiver);)
    EACH("sendmsg", RECEIVER struct msghdr message = {&to, sizeof to, &data, 1};
         tell(call(sender, &message, 0)); tell(recv(receiver, text, 16, 0)); close(sender);
         close(receiver);)
    EACH("recvmsg", RECEIVER sendto(sender, "data", 4, 0, (void *)&to, sizeof to);
         struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
         tell(call(receiver, &message, 0)); close(sender); close(receiver);)
    EACH("sendmmsg", RECEIVER struct mmsghdr list[2] = {{{&to, sizeof to, &data, 1}},
                                                        {{&to, sizeof to, &data, 1}}};
         tell((int)call(sender, list, 2, 0)); tell(list[1].msg_len);
         tell(recv(receiver, text, 16, 0)); close(sender); close(receiver);)
    EACH("recvmmsg", RECEIVER sendto(sender, "data", 4, 0, (void *)&to, sizeof to);
         struct mmsghdr list[1] = {{{.msg_iov = &room, .msg_iovlen = 1}}};
         tell((int)call(receiver, list, 1, 0, NULL)); tell(list[0].msg_len); close(sender);
         close(receiver);)
}

static void records(void) {
    EACH("updwtmp updwtmpx", struct utmpx record = {.ut_type = USER_PROCESS};
         strcpy(record.ut_user, "somebody"); close(creat("m", 0644)); call("m", &record);
         call("m", &record); struct stat info; stat("m", &info); tell(info.st_size);)
}

// System calls by number.
#define NUMBER(number, ...) \
    fresh(); \
    fd = open("f", O_RDWR); \
    fprintf(results, "%s: ", #number); \
    tell(call(number, ##__VA_ARGS__)); \
    close(fd);

static void numbers(void) {
    next("syscall");
    int fd;
    char text[4096] = {0};
    struct iovec out = {"wxyz", 4};
    struct stat info;
    long how[3] = {O_RDWR | O_CREAT, 0640, 0};
    fresh();
    fd = call(SYS_open, "f", O_RDWR);
    tell(call(SYS_write, fd, "ab", 2L));
    tell(call(SYS_lseek, fd, 0L, SEEK_SET));
    tell(call(SYS_read, fd, text, 4L));
    tell_text(text);
    tell(call(SYS_close, fd));
    state();
    fd = call(SYS_openat, AT_FDCWD, "n", O_RDWR | O_CREAT, 0600);
    tell(call(SYS_write, fd, "by number", 9L));
    close(fd);
    state();
    NUMBER(SYS_openat2, AT_FDCWD, "none/n", how, 24L)
    NUMBER(SYS_openat2, AT_FDCWD, "n", how, 8L)
    state();
    NUMBER(SYS_newfstatat, AT_FDCWD, "f", &info, 0)
    tell(info.st_size);
    NUMBER(SYS_fstat, fd, &info)
    NUMBER(SYS_faccessat, AT_FDCWD, "f", R_OK)
    NUMBER(SYS_fchmodat, AT_FDCWD, "f", 0600)
    state();
    NUMBER(SYS_getcwd, text, 2L)
    tell(call(SYS_getcwd, text, sizeof text) == strlen(text) + 1);
    NUMBER(SYS_pwritev2, fd, &out, 1, 3L, 0L, RWF_APPEND)
    state();
    NUMBER(SYS_preadv2, fd, &out, 0, 0L, 0L, 0)
    NUMBER(SYS_fadvise64, fd, 0L, 0L, 77)
    NUMBER(SYS_fadvise64, fd, 0L, 0L, 0)
    NUMBER(SYS_rename, "f", "n")
    state();
    NUMBER(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", RENAME_NOREPLACE)
    NUMBER(SYS_readlinkat, AT_FDCWD, "l", text, 64L)
    NUMBER(SYS_ftruncate, fd, 3L)
    state();
    NUMBER(SYS_sync)
    NUMBER(SYS_futimesat, AT_FDCWD, "none", NULL)
    NUMBER(SYS_fcntl, fd, F_GETFD)
    fresh();
    fd = open("d", O_RDONLY);
    tell(call(SYS_getdents64, fd, text, 4096L));
    close(fd);
    fresh();
    fd = open("f", O_RDWR);
    char *map = ((char *(*)())call)(SYS_mmap, NULL, 4096L, PROT_READ, MAP_SHARED, fd, 0L);
    tell(map[3]);
    tell(call(SYS_munmap, map, 4096L));
    close(fd);
    pid_t pid = fork();
    if (!pid)
        call(SYS_exit_group, 9);
    int status;
    waitpid(pid, &status, 0);
    tell(status);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    unsetenv("TMPDIR");
    opening();
    transfer();
    asynchronous();
    descriptors();
    stats();
    attributes();
    naming();
    directories();
    streams();
    wide();
    mappings();
    identity();
    programs();
    vforks();
    loading();
    sockets();
    records();
    numbers();
    return 0;
}
