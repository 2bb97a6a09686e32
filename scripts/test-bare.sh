#!/usr/bin/env bash
# The demo and all tests on a bare Debian 12: a root of debootstrap's smallest kind with make, git and
# this machine's Rust in it, made below target/ and entered by namespaces of its own. What is tested is
# a fresh clone of the last commit, below a home that no other user may enter. Nothing of this machine
# is changed. What a test needs and `scripts/setup.sh` does not install is found here.
#
# Packages and crates come from where this machine gets them: its sources of Debian 12, its apt
# options, its certificates, cargo's configuration and the variables that name proxies are taken over.
#
# usage: scripts/test-bare.sh [COMMAND]      (a line of bash in the clone; default: make demo && make test)
# environment: SOLERA_BARE_KEEP=1 (the root of the last run is used again, with what it has installed)
# Exit code 77: not root, or there is no debootstrap (scripts/setup.sh --bare installs it).
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:-make demo && make test}
release=bookworm
bare=$PWD/target/bare
root=$bare/root

skip() { echo "skipped: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 77; }
[ "$(id -u)" = 0 ] || skip "only root can make a root directory and enter it"
export PATH=$PATH:/usr/sbin:/sbin
for needed in debootstrap unshare pivot_root git rustc; do
    command -v $needed > /dev/null || skip "there is no $needed (scripts/setup.sh --bare)"
done
rust=$(rustc --print sysroot)
[ -x "$rust/bin/cargo" ] && [ "$rust" != /usr ] || skip "Rust is not of rustup's kind: $rust"

# sources: this machine's repositories of Debian 12, as lines of a sources.list.
sources() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 2> /dev/null |
        awk -v release=$release -v keys=$keys '$1 == "Debian" && index($3, release) == 1 {
            print "deb [signed-by=" keys "] " $2, $3, $4 }' | sort -u
}

# make_root: afresh; packages that an earlier one downloaded are kept.
make_root() {
    local first proxy
    rm -rf "$root"
    mkdir -p "$root" "$bare/archives/partial"
    sources > "$bare/sources.list"
    first=$(awk -v release=$release '$4 == release { print $3; exit }' "$bare/sources.list")
    proxy=$(apt-config shell proxy Acquire::http::Proxy 2> /dev/null)
    eval "$proxy"
    echo "making a Debian 12 below target/bare"
    env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase --include=make,git \
        --cache-dir="$bare/archives" $release "$root" ${first:+"$first"} > "$bare/debootstrap.log" 2>&1 ||
        { tail -n 20 "$bare/debootstrap.log"; echo "FAILED: debootstrap"; exit 1; }
    [ ! -s "$bare/sources.list" ] || cp "$bare/sources.list" "$root/etc/apt/sources.list"
    [ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d "$root/etc/apt/"
    # Options that this machine has may empty the directory of downloads, which the next run uses.
    printf '%s\n' '#clear DPkg::Post-Invoke;' '#clear APT::Update::Post-Invoke;' \
        '#clear APT::Update::Post-Invoke-Success;' 'APT::Keep-Downloaded-Packages "true";' \
        > "$root/etc/apt/apt.conf.d/zz-bare"
    chmod 700 "$root/root"
    touch "$bare/complete"
}

# take_over: what this machine knows of the network, and its Rust.
take_over() {
    local file home=${CARGO_HOME:-$HOME/.cargo}
    for file in /etc/resolv.conf /etc/hosts; do cp -L $file "$root$file"; done
    mkdir -p "$root/opt/rust" "$root/root/.cargo" "$root/usr/local/share/ca-certificates"
    certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    [ ! -r "$certificates" ] || cp -L "$certificates" "$root/opt/certificates.crt"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2> /dev/null || true
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
    [ ! -e "$root/opt/certificates.crt" ] || printf '%s\0' SSL_CERT_FILE=/opt/certificates.crt \
        GIT_SSL_CAINFO=/opt/certificates.crt
    env -0 | grep -zEi '^((https?|ftp|all|no)_proxy|CARGO_(NET|HTTP|REGISTR(Y|IES)|SOURCE)_[A-Z_]*|SOLERA_TEST_[A-Z]*)=' |
        grep -zv '^SOLERA_TEST_LONG=' || true
}

[ -e "$bare/complete" ] && [ -n "${SOLERA_BARE_KEEP:-}" ] || { rm -f "$bare/complete"; make_root; }
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
