#!/usr/bin/env bash
# Installs the Debian packages that building and the demo need, where they are missing, and checks for
# Rust; with --tests also the programs that the tests run on a volume, with --vm what `make test-vm`
# needs for its guest, with --bare what `make test-bare` makes its root with, with --packages what
# `make deb` needs. Changes nothing where
# everything is there, removes nothing, and starts no service.
set -euo pipefail
cd "$(dirname "$0")/.."

# command:package
needed=(
    cc:gcc ld:binutils make:make sqlite3:sqlite3 awk:mawk python3:python3 tar:tar gzip:gzip
    git:git findmnt:util-linux fusermount3:fuse3
)

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# Programs and libraries that only tests and `solera bench mount` need: they skip themselves without.
wished=(
    bindfs:bindfs stress-ng:stress-ng rsync:rsync perl:perl redis-cli:redis-tools fio:fio cpio:cpio
    zip:zip unzip:unzip setfattr:attr openssl:openssl g++:g++ javac:default-jdk-headless
    node:nodejs go:golang-go leveldb/db.h:libleveldb-dev rocksdb/db.h:librocksdb-dev lmdb.h:liblmdb-dev
    libpmemobj.h:libpmemobj-dev ps:procps ip:iproute2 mariadbd:mariadb-server-core
    mariadb:mariadb-client-core sysbench:sysbench sqlite3.h:libsqlite3-dev tclsh8.6:tcl8.6 tcl8.6/tcl.h:tcl8.6-dev dpkg-source:dpkg-dev patch:patch
    pkg-config:pkg-config man:man-db mandoc:mandoc zsh:zsh "/usr/lib/*/libjemalloc.so.2:libjemalloc2"
    "/usr/lib/*/libtcmalloc_minimal.so.4:libtcmalloc-minimal4" "/usr/lib/*/libmimalloc.so.2:libmimalloc2.0"
    "/usr/lib/postgresql/*/bin/initdb:postgresql"
    /usr/lib/python3/dist-packages/prometheus_client:python3-prometheus-client
    sshfs:sshfs /usr/lib/openssh/sftp-server:openssh-sftp-server db_bench:rocksdb-tools
    prometheus:prometheus mdb_load:lmdb-utils
    php:php-cli "/usr/lib/php/*/pdo_sqlite.so:php-sqlite3" valgrind:valgrind gdb:gdb strace:strace
    musl-gcc:musl-tools inotifywait:inotify-tools perf:linux-perf eatmydata:eatmydata faketime:faketime fakeroot:fakeroot clang:clang
    "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-x86_64.a:libclang-rt-14-dev"
)

# What `make test-bare` needs: it skips itself without.
bare=(debootstrap:debootstrap)

# What `make deb` needs.
packaging=(dpkg-shlibdeps:dpkg-dev)

# What tests/vm/run needs: it skips itself without.
guest=(
    qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio ndctl:ndctl
    mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs depmod:kmod xz:xz-utils ip:iproute2
    nbd-server:nbd-server nbd-client:nbd-client
)

# missing COMMAND-OR-HEADER:PACKAGE...: the packages of those that are not there.
missing() {
    local pair
    for pair; do
        case ${pair%%:*} in
        *.h) [ -e "/usr/include/${pair%%:*}" ] ;;
        /*) compgen -G "${pair%%:*}" > /dev/null ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" > /dev/null ;;
        esac || printf '%s\n' "${pair##*:}"
    done
}

# as_root COMMAND...
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

updated=
# add PACKAGE...: quietly; says why it cannot.
add() {
    command -v apt-get > /dev/null || { echo "this is not Debian (there is no apt-get)"; return 1; }
    [ "$(id -u)" -eq 0 ] || command -v sudo > /dev/null ||
        { echo "packages are missing, and there is no sudo"; return 1; }
    if [ -z "$updated" ]; then
        as_root apt-get -qq update > /dev/null || { echo "apt-get update failed"; return 1; }
        updated=yes
    fi
    local code=0
    # Debian's way to say that no package may start a service.
    if [ ! -e $policy ]; then
        policy_is_ours=yes
        printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy ||
            { echo "services cannot be kept from starting"; return 1; }
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-remove \
        --no-install-recommends "$@" > /dev/null 2> "$errors" || code=$?
    starts_again
    [ "$code" -eq 0 ] || { echo "apt-get install failed: $(tail -n 1 "$errors")"; return 1; }
    # Nor with the machine: the tests run servers of their own.
    local service
    for service in postgresql nbd-server nbd-client; do
        [[ " $* " != *" $service "* ]] || as_root update-rc.d "$service" disable > /dev/null 2>&1 || true
    done
}

policy=/usr/sbin/policy-rc.d policy_is_ours=
# starts_again: takes away what `add` forbids services with.
starts_again() {
    [ -z "$policy_is_ours" ] || as_root rm -f $policy
    policy_is_ours=
}

# guest_kernel: Linux 6.12, which knows XFS's exchange-range, beside Debian 12's own 6.1: unpacked below
# target/, for tests/vm/run alone. The package's name has the point release in it; another one's does not.
guest_kernel() {
    local to=target/guest-kernel image version package scratch try
    for image in /boot/vmlinuz-*-amd64; do
        version=${image##*/vmlinuz-}
        [ -r "$image" ] && [ -r "/lib/modules/$version/modules.dep" ] || continue
        [ "$(printf '%s\n' 6.10 "$version" | sort -V | head -n 1)" != 6.10 ] || return 0
    done
    [ ! -e "$to/complete" ] || return 0
    command -v apt-get dpkg-deb > /dev/null || { echo "this is not Debian"; return 1; }
    named() { apt-cache depends linux-image-6.12-amd64 2> /dev/null | awk '$1 == "Depends:" { print $2; exit }'; }
    # unpack PACKAGE: downloads it.
    unpack() {
        (cd "$scratch" && timeout 300 apt-get -qq download "$1" 2> "$errors" &&
            dpkg-deb -x ./*.deb . && rm ./*.deb &&
            for modules in lib/modules/*; do PATH=$PATH:/usr/sbin:/sbin depmod -b . "${modules##*/}" || exit 1; done) &&
            touch "$scratch/complete"
    }
    mkdir -p target
    # What is known of packages may be too old: then their files are gone.
    for try in 1 2; do
        package=$(named)
        if [ -n "$package" ]; then
            echo "setup: unpacking $package (some tests need it)"
            scratch=$(mktemp -d target/guest-kernel.XXXXXX) || return 1
            if unpack "$package"; then
                rm -rf "$to"
                mv "$scratch" "$to"
                return
            fi
            rm -rf "$scratch"
        fi
        [ "$try" = 2 ] || [ -n "$updated" ] || ! as_root timeout 120 apt-get -qq update > /dev/null 2>&1 ||
            updated=yes
    done
    if [ -n "$package" ]; then
        echo "$package could not be downloaded or unpacked: $(tail -n 1 "$errors")"
    else
        echo "there is no linux-image-6.12-amd64"
    fi
    return 1
}

errors=$(mktemp)
trap 'rm -f "$errors"; starts_again' EXIT

mapfile -t packages < <(missing "${needed[@]}" stdio.h:libc6-dev)
if [ ${#packages[@]} -gt 0 ]; then
    echo "setup: installing ${packages[*]}"
    add "${packages[@]}" || fail "install by hand: ${packages[*]}"
fi

# Debian's Python has its own tests in a package that is named after its version.
if [ -x /usr/bin/python3 ]; then
    python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    wished+=("/usr/lib/python$python/test/test_os.py:libpython$python-testsuite")
fi

packages=() kernel=
for part; do
    case $part in
    --tests) mapfile -t -O ${#packages[@]} packages < <(missing "${wished[@]}") ;;
    --vm)
        mapfile -t -O ${#packages[@]} packages < <(missing "${guest[@]}")
        compgen -G '/boot/vmlinuz-*-amd64' > /dev/null || packages+=(linux-image-amd64)
        kernel=wanted
        ;;
    --bare) mapfile -t -O ${#packages[@]} packages < <(missing "${bare[@]}") ;;
    --packages) mapfile -t -O ${#packages[@]} packages < <(missing "${packaging[@]}") ;;
    *) fail "$part is none of --tests, --vm, --bare and --packages" ;;
    esac
done
if [ ${#packages[@]} -gt 0 ]; then
    echo "setup: installing ${packages[*]} (some tests need them)"
    # One that is not to be had must not keep the others away.
    add "${packages[@]}" || for package in "${packages[@]}"; do
        add "$package" || echo "setup: without $package, what needs it is skipped"
    done
fi
# Every start of Debian makes this, a root that was never started has none: fusermount3 finds in it what a
# user may unmount.
[ -e /etc/mtab ] || [ -z "$*" ] || as_root ln -sf ../proc/self/mounts /etc/mtab
# Likewise udev lets every user open this; where there is no udev, the tests of users who mount need it.
if [[ " $* " = *" --tests "* ]] && [ -c /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
    as_root chmod 666 /dev/fuse || echo "setup: no user but root can open /dev/fuse"
fi
if [ -n "$kernel" ]; then
    guest_kernel || echo "setup: without Linux 6.12 there is no exchange-range on DAX in the tests"
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
how="install it as https://rustup.rs says, or: rustup update stable"
command -v cargo > /dev/null || fail "Rust $wanted or newer is needed, and there is no cargo" "$how"
found=$(cargo --version | awk '{ print $2 }')
oldest=$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)
[ "$oldest" = "$wanted" ] || fail "Rust $wanted or newer is needed, this is $found" "$how"
for part in fmt clippy; do
    cargo "$part" --version > /dev/null 2>&1 ||
        fail "cargo $part is missing" "rustup component add ${part/fmt/rustfmt}"
done
