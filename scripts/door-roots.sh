#!/usr/bin/env bash
# Programs on a volume with other builds of the C library, running: roots of Debian 13 and sid are made
# by debootstrap below a folder, with what the cases of tests/programs need (2 GB each). In each, in a
# mount name space of its own, run
#
# - `solera door check`;
# - C programs of crates/preload/tests/c (streams, names, mappings, processes, signals, cancellation,
#   locks ..): on tmpfs and on a volume what they say must be the same;
# - `tests/programs/run`, with each of its cases;
# - the case other_root of tests/door: a program of this machine's enters the root, and goes on there;
# - the stress (crates/preload/tests/c/stress.c): a short time on tmpfs, then on a volume until it is
#   killed; fsck must find nothing, and what was synced must be there.
#
# As root; some ten minutes and the stress for each release. Skips itself without debootstrap, or without
# the packages.
#
# usage: scripts/door-roots.sh FOLDER [RELEASE...]     (default: trixie sid)
# environment: STRESS (seconds of the stress in each root; default 600), KEEP=1 (roots of an earlier run
# are used again, and stay), PARTS (of `check c programs root stress`; default all)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '/^# usage/s/^# //p' "$0" >&2; exit 2; }
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
# What the cases of tests/programs need. One that a release does not have is said, and its case skips itself.
packages="attr binutils bzip2 cpio default-jdk-headless fio g++ git libleveldb-dev liblmdb-dev libpmemobj-dev
librocksdb-dev make mariadb-client-core mariadb-server-core nodejs openssl perl postgresql procps python3
redis-tools rsync sqlite3 unzip util-linux xz-utils zip"

# install: in the root, what is to be had of $packages, and the tests of its Python.
install() {
    export DEBIAN_FRONTEND=noninteractive
    local package found=() log=/var/log/solera-install
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    apt-get -qq update > $log 2>&1 || { tail -n 3 $log; return 1; }
    for package in $packages $(apt-cache depends python3 | awk '/Depends: python3\.[0-9]+$/ { print "lib" $2 "-testsuite" }'); do
        if apt-cache show "$package" > /dev/null 2>&1; then found+=("$package"); else echo "there is no $package"; fi
    done
    add() { apt-get -qq install --yes --no-install-recommends "$@" >> $log 2>&1; }
    add "${found[@]}" || for package in "${found[@]}"; do
        add "$package" || echo "$package cannot be installed"
    done
    apt-get clean
}

# killed WHERE SECONDS COMMAND...: the stress for so long, at least; with the command in front of its lines.
killed() {
    local at=$1 seconds=$2 code=0
    shift 2
    # In a group of its own, which it kills; what takes longer hangs.
    timeout -s KILL $((seconds + 900)) "$@" /tmp/stress run "$at" /tmp/notes /tmp/library.so "$seconds" \
        > /tmp/found 2>&1 || code=$?
    if [ $code -ne 137 ]; then
        echo "it ended by itself, with $code"
        return 1
    fi
    "$@" /tmp/stress check "$at" /tmp/notes
}

# inside: what runs in a root. Prints a line for each program; fails if one differs.
inside() {
    local program failed=0
    wanted() { [[ " $PARTS " = *" $1 "* ]]; }
    export SOLERA=/solera/target/release/solera
    solera() { $SOLERA "$@"; }
    compile() { gcc -O1 -w -std=gnu17 -D_GNU_SOURCE -pthread "$@" -lrt -lutil -ldl -lm; }
    cd /solera || return 1
    ldd --version | head -n 1
    $SOLERA door prepare > /dev/null || failed=1
    if wanted check; then $SOLERA door check || failed=1; fi
    wanted c || programs=
    for program in $programs; do
        compile "crates/preload/tests/c/$program.c" -o "/tmp/$program" || failed=1
        rm -rf /dev/shm/*
        mkdir /dev/shm/there
        $SOLERA format --size 256M /dev/shm/v.pm > /dev/null
        timeout -k 5 100 "/tmp/$program" /dev/shm/there > /tmp/expected 2> /tmp/errors
        timeout -k 5 100 $SOLERA run --volume /dev/shm/v.pm --at /at -- "/tmp/$program" /at > /tmp/found 2> /tmp/errors
        if [ -s /tmp/expected ] && cmp -s /tmp/expected /tmp/found && $SOLERA fsck /dev/shm/v.pm > /dev/null; then
            echo "ok      $program"
        else
            failed=1
            echo "FAILED  $program"
            { diff /tmp/expected /tmp/found | head -n 10; tail -n 3 /tmp/errors; } | cut -c 1-200 | sed 's/^/    | /'
        fi
    done
    if wanted programs; then tests/programs/run || failed=1; fi
    if wanted stress; then
        compile crates/preload/tests/c/stress.c -o /tmp/stress
        compile -DLIBRARY -shared -fPIC crates/preload/tests/c/stress.c -o /tmp/library.so
        rm -rf /dev/shm/*
        mkdir /dev/shm/there
        $SOLERA format --size 1G /dev/shm/v.pm > /dev/null
        if killed /dev/shm/there 10 env > /tmp/said && sed 's/^/    | /' /tmp/said &&
            killed /at "$STRESS" $SOLERA run --volume /dev/shm/v.pm --at /at -- > /tmp/said &&
            cat /tmp/said && $SOLERA fsck /dev/shm/v.pm; then
            echo "ok      stress, $STRESS s"
        else
            failed=1
            echo "FAILED  stress, $STRESS s"
            cat /tmp/said /tmp/found | tail -n 20 | sed 's/^/    | /'
        fi
    fi
    return $failed
}

# entered ROOT FUNCTION: the function in the root, which has what a program expects there.
entered() {
    local root=$1
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 none "$root/dev/shm"
    chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root USER=root LC_ALL=C.UTF-8 \
        PARTS="$PARTS" STRESS="$STRESS" programs="$programs" packages="$packages" \
        bash -c "$(declare -f install killed inside); $2"
}
export -f entered install killed inside
export programs packages PARTS=${PARTS:-check c programs root stress} STRESS=${STRESS:-600}

# make_root RELEASE: where there is none yet.
make_root() {
    local release=$1 root=$folder/$1 file
    [ ! -e "$root.complete" ] || [ -z "${KEEP:-}" ] || return 0
    rm -rf --one-file-system "$root" "$root.complete"
    env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase --include=gcc,libc6-dev "$release" "$root" \
        "$mirror" > "$root.log" 2>&1 || { tail -n 3 "$root.log"; return 1; }
    for file in /etc/resolv.conf /etc/hosts; do cp -L $file "$root$file"; done
    [ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d "$root/etc/apt/"
    unshare -m bash -c 'entered "$1" install' entered "$root" || return 1
    touch "$root.complete"
}

failed=0
for release; do
    root=$folder/$release
    echo "== $release"
    make_root "$release" || skip "no root of $release can be made here"
    rm -rf "$root/solera"
    mkdir -p "$root/solera/target/release" "$root/solera/crates/preload/tests" "$root/solera/tests"
    cp target/release/{solera,solera-host,libsolera_preload.so,libsolera_align.so,libsolera_profile.so} "$root/solera/target/release/"
    cp -r crates/preload/tests/c "$root/solera/crates/preload/tests/"
    cp -r tests/programs tests/for-everyone "$root/solera/tests/"
    unshare -m bash -c 'entered "$1" inside' entered "$root" || failed=1
    if [[ " $PARTS " = *" root "* ]]; then ROOT=$(realpath "$root") tests/door/run other_root || failed=1; fi
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root" "$root.complete"
done
exit $failed
