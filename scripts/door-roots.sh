#!/usr/bin/env bash
# Programs on a volume with other builds of the C library, running: bare roots of Debian 13 and sid are
# made by debootstrap below a folder, and in each, in a mount name space of its own, `solera door check`
# runs, and C programs of crates/preload/tests/c (streams, names, mappings, processes, signals,
# cancellation, locks ..): on tmpfs and on a volume what they say must be the same. As root, some two
# minutes; skips itself without debootstrap, or without the packages.
#
# usage: scripts/door-roots.sh FOLDER [RELEASE...]     (default: trixie sid)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '8s/^# //p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
folder=$1
shift
[ $# -gt 0 ] || set -- trixie sid
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a root is made as root"
PATH=$PATH:/usr/sbin
command -v debootstrap > /dev/null || scripts/setup.sh --bare > /dev/null 2>&1 || skip "there is no debootstrap"
mkdir -p "$folder"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}/debian
proxy=$(apt-config shell proxy Acquire::http::Proxy 2> /dev/null)
eval "$proxy"

# Those whose whole output is the same on two file systems of one machine, whichever C library runs them.
programs="files names flags slashes answers streams mapping sparse holes mapped_oddly limits processes splice
sockets threads signals moving fifos control links numbers parked messages interrupted waits"

# inside ROOT: what runs there. Prints a line for each program; fails if one differs.
inside() {
    local root=$1
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/dev/shm"
    chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 PROGRAMS="$programs" bash -s << 'SH'
cd /solera || exit 1
failed=0
ldd --version | head -n 1
./solera door prepare > /dev/null && ./solera door check || failed=1
for program in $PROGRAMS; do
    gcc -O1 -w -std=gnu17 -D_GNU_SOURCE -Ic "c/$program.c" -o "/tmp/$program" -lrt -lutil -lpthread -ldl -lm || failed=1
    rm -rf /dev/shm/*
    mkdir /dev/shm/there
    ./solera format --size 256M /dev/shm/v.pm > /dev/null
    timeout -k 5 100 "/tmp/$program" /dev/shm/there > /tmp/expected 2> /tmp/errors
    timeout -k 5 100 ./solera run --volume /dev/shm/v.pm --at /at -- "/tmp/$program" /at > /tmp/found 2> /tmp/errors
    if [ -s /tmp/expected ] && cmp -s /tmp/expected /tmp/found && ./solera fsck /dev/shm/v.pm > /dev/null; then
        echo "ok      $program"
    else
        failed=1
        echo "FAILED  $program"
        { diff /tmp/expected /tmp/found | head -n 10; tail -n 3 /tmp/errors; } | cut -c 1-200 | sed 's/^/    | /'
    fi
done
exit $failed
SH
}
export -f inside
export programs

failed=0
for release; do
    root=$folder/$release
    rm -rf --one-file-system "$root"
    env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase --include=gcc,libc6-dev "$release" "$root" \
        "$mirror" > "$root.log" 2>&1 || { tail -n 3 "$root.log"; skip "no root of $release can be made here"; }
    mkdir "$root/solera"
    cp target/release/solera target/release/libsolera_preload.so "$root/solera/"
    cp -r crates/preload/tests/c "$root/solera/c"
    echo "== $release"
    unshare -m bash -c 'inside "$1"' inside "$root" || failed=1
    rm -rf --one-file-system "$root"
done
exit $failed
