#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need, where they are missing, and
# checks for Rust. Changes nothing where everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

# command:package
needed=(
    cc:gcc ld:binutils make:make sqlite3:sqlite3 awk:mawk python3:python3 tar:tar gzip:gzip
    git:git findmnt:util-linux
)

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

missing=()
for pair in "${needed[@]}"; do
    command -v "${pair%%:*}" > /dev/null || missing+=("${pair##*:}")
done
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)

if [ ${#missing[@]} -gt 0 ]; then
    by_hand="install by hand: ${missing[*]}"
    command -v apt-get > /dev/null || fail "this is not Debian (there is no apt-get)" "$by_hand"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo > /dev/null || fail "packages are missing, and there is no sudo" "$by_hand"
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get -qq update || fail "apt-get update failed" "$by_hand"
    "${as_root[@]}" apt-get -qq install --yes --no-install-recommends "${missing[@]}" \
        > /dev/null || fail "apt-get install failed" "$by_hand"
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
