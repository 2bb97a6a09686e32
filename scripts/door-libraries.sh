#!/usr/bin/env bash
# Several builds of the C library, for the tests of crates/door: downloads packages of Debian 11, 12,
# 13, sid and experimental into a folder, unpacks libc.so.6 and ld.so of each, and removes the rest.
# Nothing is installed, and no package list of the system changes. About 120 MB.
#
# usage: scripts/door-libraries.sh FOLDER [--test]     (--test: runs the tests with them)
set -euo pipefail
case "$#,${2:---test}" in
1,--test | 2,--test) ;;
*) sed -n '6s/^# //p' "$0" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$work"/debs
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}
{
    for suite in bullseye bookworm trixie sid experimental; do
        echo "deb [signed-by=$keys] $mirror/debian $suite main"
    done
    for suite in bullseye bookworm trixie; do
        echo "deb [signed-by=$keys] $mirror/debian-security $suite-security main"
    done
} > "$work/sources.list"
options=(
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Architecture=amd64
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o "Dir::Etc::Trusted=$keys"
)
if ! apt-get "${options[@]}" update > "$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "skipped: packages of Debian cannot be fetched here"
    exit 77
fi
# The packages that programs run with, and those for compiling on other machines: other builds.
for package in libc6 libc6-amd64-cross; do
    apt-cache "${options[@]}" madison "$package" | awk '{ print $1 "=" $3 }'
done | sort -u > "$work/versions"
while read -r version; do
    (cd "$work/debs" && apt-get "${options[@]}" download "$version") >> "$work/log" 2>&1 ||
        echo "$version: not to be had" >&2
done < "$work/versions"
for package in "$work"/debs/*.deb; do
    name=$(basename "$package" .deb)
    rm -rf "$work/x"
    dpkg-deb -x "$package" "$work/x"
    mkdir -p "$folder/$name"
    find "$work/x" -type f \( -name libc.so.6 -o -name 'libc-2*.so' \) \
        -exec cp {} "$folder/$name/libc.so.6" \;
    find "$work/x" -type f \( -name 'ld-2*.so' -o -name 'ld-linux-x86-64.so.2' \) \
        -exec cp {} "$folder/$name/ld.so" \;
    echo "$name"
done
if [ $# = 2 ]; then
    SOLERA_DOOR_LIBRARIES=$folder cargo test --release -p solera-door --test door -- --nocapture
fi
