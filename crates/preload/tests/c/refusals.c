// Every call that the table calls refused, made by its function on the volume: a line each with its
// error. Run on a volume only.
#include "say.h"
#include <dlfcn.h>
#include <linux/loop.h>
#include <sys/fanotify.h>
#include <sys/mount.h>
#include <sys/quota.h>

typedef long Any();

#define REFUSED(name, ...) \
    { \
        Any *call = dlsym(RTLD_DEFAULT, #name); \
        errno = 0; \
        long value = call ? (int)call __VA_ARGS__ : 0; \
        fprintf(results, "%s %ld %s\n", #name, value, strerrorname_np(errno)); \
        fflush(results); \
    }

int main(int argc, char **argv) {
    enter(argc, argv);
    mkdir("d", 0755);
    put("f", "text");
    int fd = open("f", O_RDWR), dir = open("d", O_RDONLY);
    ftruncate(fd, 8192);
    char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    struct { struct file_handle head; char room[128]; } handle = {{128}};
    int id, here = AT_FDCWD;
    REFUSED(name_to_handle_at, (here, "f", &handle, &id, 0));
    REFUSED(name_to_handle_at, (fd, "", &handle, &id, AT_EMPTY_PATH));
    REFUSED(open_by_handle_at, (fd, &handle, O_RDONLY));
    REFUSED(chroot, ("d"));
    REFUSED(fanotify_mark, (0, FAN_MARK_ADD, (long)FAN_OPEN, here, "f"));
    REFUSED(fanotify_mark, (0, FAN_MARK_ADD, (long)FAN_OPEN, dir, NULL));
    // No path: the working directory.
    REFUSED(fanotify_mark, (0, FAN_MARK_ADD, (long)FAN_OPEN, here, NULL));
    REFUSED(fcntl, (dir, F_NOTIFY, DN_CREATE));
    // A loop device would find nothing behind the number.
    int device = open("/dev/null", O_RDWR), configuration[76] = {fd};
    REFUSED(ioctl, (device, LOOP_SET_FD, fd));
    REFUSED(ioctl, (device, LOOP_CONFIGURE, configuration));
    REFUSED(mount, ("none", "d", "tmpfs", 0L, NULL));
    REFUSED(mount, (argv[1], "/no-such-place", "", (long)MS_BIND, NULL));
    REFUSED(open_tree, (here, "d", 0));
    REFUSED(umount, ("d"));
    REFUSED(umount2, (argv[1], 0));
    REFUSED(pivot_root, ("d", "/"));
    REFUSED(pivot_root, ("/no-such-place", "d"));
    REFUSED(fspick, (here, "d", 0));
    REFUSED(fspick, (dir, "", 0));
    REFUSED(move_mount, (dir, "", here, "/no-such-place", 0));
    REFUSED(move_mount, (here, "/no-such-place", here, "d", 0));
    REFUSED(mount_setattr, (here, "d", 0, &handle, 32L));
    REFUSED(swapon, ("f", 0));
    REFUSED(swapoff, ("f"));
    REFUSED(acct, ("f"));
    REFUSED(pkey_mprotect, (map, 4096L, PROT_READ, 1));
    REFUSED(quotactl, (QCMD(Q_SYNC, USRQUOTA), "f", 0, NULL));
    // Nothing of this happened.
    fprintf(results, "mapped %c\n", map[3]);
    return 0;
}
