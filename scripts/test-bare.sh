#!/usr/bin/env bash
# The demo and all tests on a bare Debian 12: a root of debootstrap's smallest kind with make, git and
# this machine's Rust in it, made below target/ and entered by namespaces of its own. What is tested is
# a fresh clone of the last commit, below a home that no other user may enter. Nothing of this machine
# is changed. What a test needs and `scripts/setup.sh` does not install is found here.
#
# Packages and crates come from where this machine gets them: what scripts/bare-root.sh says, and
# cargo's configuration.
#
# usage: scripts/test-bare.sh [COMMAND]      (a line of bash in the clone; default: make demo && make test)
# environment: SOLERA_BARE_KEEP=1 (the root of the last run is used again, with what it has installed)
# Exit code 77: not root, or there is no debootstrap (scripts/setup.sh --bare installs it).
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:-make demo && make test}
bare=$PWD/target/bare
root=$bare/root
# shellcheck source=scripts/bare-root.sh
. scripts/bare-root.sh

skip() { echo "skipped: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 77; }
[ "$(id -u)" = 0 ] || skip "only root can make a root directory and enter it"
export PATH=$PATH:/usr/sbin:/sbin
for needed in debootstrap unshare pivot_root git rustc; do
    command -v $needed > /dev/null || skip "there is no $needed (scripts/setup.sh --bare)"
done
rust=$(rustc --print sysroot)
[ -x "$rust/bin/cargo" ] && [ "$rust" != /usr ] || skip "Rust is not of rustup's kind: $rust"

# take_over: what this machine knows of the network, and its Rust.
take_over() {
    local file home=${CARGO_HOME:-$HOME/.cargo}
    network "$root"
    mkdir -p "$root/opt/rust" "$root/root/.cargo"
    for file in config.toml config; do
        [ ! -r "$home/$file" ] || cp -L "$home/$file" "$root/root/.cargo/$file"
    done
    # The checks of the dependencies need it, and it takes minutes to build.
    mkdir -p "$root/root/.cargo/bin"
    [ ! -x "$home/bin/cargo-deny" ] || cp "$home/bin/cargo-deny" "$root/root/.cargo/bin/"
}

# variables: those of this machine's that programs there are to have, NAME=VALUE each.
variables() {
    printf '%s\0' HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 \
        PATH=/opt/rust/bin:/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    network_variables "$root"
    env -0 | grep -zE '^(CARGO_(NET|HTTP|REGISTR(Y|IES)|SOURCE)_[A-Z_]*|SOLERA_TEST_[A-Z]*)=' |
        grep -zv '^SOLERA_TEST_LONG=' || true
}

[ -e "$bare/complete" ] && [ -n "${SOLERA_BARE_KEEP:-}" ] || {
    rm -f "$bare/complete"
    make_root "$root" make,git
    chmod 700 "$root/root"
    touch "$bare/complete"
}
take_over
clone=$root/root/solera
if [ -d "$clone" ]; then
    git -C "$clone" fetch --quiet "$PWD" HEAD
    git -C "$clone" reset --quiet --hard FETCH_HEAD
else
    git clone --quiet --no-hardlinks . "$clone"
fi
[ -z "$(git status --porcelain)" ] || echo "what is not committed is not tested"
mapfile -d '' -t variables < <(variables)

# In namespaces of its own: what is mounted there goes with its last process.
# shellcheck disable=SC2016 # Variables of the inner shell.
exec unshare --mount --pid --ipc --fork --kill-child --propagation private bash -euc '
    root=$1 rust=$2 archives=$3 command=$4
    shift 4
    mount --bind "$root" "$root"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    # Open to all, as udev makes it on a Debian that was started, whatever this machine has.
    mkdir -p "$root/opt/dev"
    mount -t tmpfs tmpfs "$root/opt/dev"
    mknod -m 666 "$root/opt/dev/fuse" c 10 229
    mount --bind "$root/opt/dev/fuse" "$root/dev/fuse"
    mount -t proc proc "$root/proc"
    mount --bind "$archives" "$root/var/cache/apt/archives"
    mount --bind "$rust" "$root/opt/rust"
    mount -o remount,bind,ro "$root/opt/rust"
    mkdir -p "$root/mnt/before"
    cd "$root"
    pivot_root . mnt/before
    cd /root/solera
    umount -l /mnt/before
    # Not in its place: the first process of a name space collects those whose parents have died.
    code=0
    env -i "$@" bash -c "$command" || code=$?
    exit $code
' bash "$root" "$rust" "$bare/archives" "$command" "${variables[@]}"
