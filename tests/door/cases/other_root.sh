# A program that enters another root, whose C library is of another build, and executes something there:
# by `chroot`, and as a container does (a name space of mounts, `pivot_root`, the old root is gone). ROOT:
# such a root, of a whole release (scripts/door-roots.sh); else a small one is made of this machine's
# programs.
needs gcc ldd
[ "$(id -u)" -eq 0 ] || skip "only root can enter another root"
cat >enter.c <<'C'
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>
// enter HOW ROOT FILE PROGRAM...: with descriptor 7 on the file, unless its name is empty.
int main(int count, char **words) {
    const char *how = words[1], *root = words[2];
    int fd = *words[3] ? open(words[3], O_RDWR | O_CREAT | O_APPEND, 0644) : -1;
    if (fd >= 0 && (write(fd, "before\n", 7) != 7 || dup2(fd, 7) != 7 || (fd != 7 && close(fd))))
        return 3;
    if (strcmp(how, "pivot") == 0 && (chdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH)))
        return printf("pivot_root: %s\n", strerrorname_np(errno)), 4;
    if (strcmp(how, "pivot") && chroot(root))
        return printf("chroot: %s\n", strerrorname_np(errno)), 4;
    if (chdir("/"))
        return 5;
    execv(words[4], words + 4);
    printf("exec: %s\n", strerrorname_np(errno));
    return 6;
}
C
gcc -O1 -w -D_GNU_SOURCE -o enter enter.c
root=${ROOT:-}
if [ -z "$root" ]; then
    root=$PWD/root
    mkdir -p root/bin root/dev root/proc
    for program in /bin/sh /bin/cat; do
        cp "$program" root/bin/
        ldd "$program" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
            mkdir -p "root$(dirname "$library")"
            cp "$library" "root$library"
        done
    done
    library=$(find root -name libc.so.6) loader=$(find root -name 'ld-linux*')
    other=$(find "$HERE/../../target/door-libraries" -maxdepth 1 -name 'libc6_2.4*' 2>/dev/null | sort -V | tail -n 1)
    # Of a newer release, if there is one; else it is another one by its length.
    if [ -n "$other" ]; then
        cp "$other/libc.so.6" "$library"
        cp "$other/ld.so" "$loader"
    else
        echo >>"$library"
    fi
fi

# in_root HOW FILE LINE: the line of a shell in the root, which has the directory, and this machine's
# library and volume; with "bare" nothing of that.
in_root() {
    # shellcheck disable=SC2016 # The inner shell's.
    srun unshare -m sh -c '
        mount --make-rprivate / && mount --bind "$1" "$1" && cd / || exit 1
        if [ "$2" != bare ]; then
            mkdir -p "$1$3" && mount --bind "$3" "$1$3" && mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" || exit 1
        fi
        exec "$4" "$2" "$1" "$5" /bin/sh -c "$6"
    ' sh "$root" "$1" "$(dirname "$SOLERA")" "$PWD/enter" "$2" "$3"
}

srun mkdir -p "$AT/d"
for how in chroot pivot; do
    said "$how" in_root $how "$AT/d/$how" "cd $AT/d && echo first >>new && cat new $how && echo by its number >&7 && cat $how"
    said "$how, from there on" in_root $how "" "cd $AT/d && (cat new; /bin/sh -c 'echo again >>new; exec cat new')"
done
said "what they have written" srun sh -c "cat $AT/d/*"
# A root that has nothing of the project: what needs nothing of the volume runs there.
said "bare" in_root bare "" "echo runs"
# What would inherit a file is refused, in one sentence.
if [ -n "$RUN" ]; then
    in_root bare "$AT/d/kept" "echo runs" >refused 2>errors
    code=$?
    if [ "$code $(cat refused)" = "6 exec: EACCES" ] && [ "$(wc -l <errors)" = 1 ] &&
        grep -q '^solera: /bin/sh: its root does not have the library, so it cannot use the volume, and descriptor 7' errors; then
        echo "refused"
    else
        echo "ended with $code"
        cat refused errors
    fi
else
    echo "refused"
fi
