#!/usr/bin/env bash
# Whether the dependencies have licences, names and sources that deny.toml allows. The verdict follows
# from Cargo.lock, deny.toml and the manifests alone (no advisories are asked for, and what a registry
# has published under a version never changes): so it is remembered, by a digest of these, and the tool
# is built and asked only where the digest is another one.
#
# usage: scripts/deny.sh               asks if something has changed
#        scripts/deny.sh --always      asks
#        scripts/deny.sh --remember    asks, and remembers that all is well: scripts/deny-verdict.txt
# Exit code 77: cargo-deny is not installed and cannot be.
set -euo pipefail
cd "$(dirname "$0")/.."

verdict=scripts/deny-verdict.txt
digest() {
    find crates -name target -prune -o -name Cargo.toml -print | LC_ALL=C sort |
        xargs sha256sum Cargo.toml Cargo.lock deny.toml
}
# What verdict and digest differ in is also what a reader of a change sees.
now=$(digest)
if [ -z "${1:-}" ] && [ -e "$verdict" ] && [ "$now" = "$(< "$verdict")" ]; then
    echo "nothing has changed since the dependencies were found in order"
    exit 0
fi
# Built once, and not for speed: that takes twice as long.
command -v cargo-deny > /dev/null || cargo install --quiet --debug --locked cargo-deny ||
    { echo "skipped: cargo-deny is not installed and could not be"; echo "0 passed, 0 failed, 1 skipped"; exit 77; }
cargo deny --offline check licenses bans sources
if [ "${1:-}" = --remember ]; then
    printf '%s\n' "$now" > "$verdict"
elif [ ! -e "$verdict" ] || [ "$now" != "$(< "$verdict")" ]; then
    echo "all is well; make deny remembers it"
fi
