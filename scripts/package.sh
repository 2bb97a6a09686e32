#!/usr/bin/env bash
# Makes the Debian packages `solera` and `libsolera-dev` of what is built: `make install` puts all below
# STAGE, the debug information is taken out there, and cargo-deb packs it, as [package.metadata.deb] of
# crates/cli/Cargo.toml and crates/capi/Cargo.toml say. A file that neither package holds is an error.
#
# usage: scripts/package.sh STAGE DIRECTORY      (both are made afresh)
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$PWD/$1 to=$PWD/$2

scripts/stage.sh "$stage" PREFIX=/usr SBIN=/usr/sbin PYTHON=python3
rm -rf "$to"
mkdir -p "$to"
for package in solera-cli solera-capi; do
    cargo deb --quiet --offline --no-build --no-strip --package $package --output "$to/"
done

packed() { for package in "$to"/*.deb; do dpkg-deb -c "$package"; done | awk '{ print $6 }' |
    sed 's|^\./||; s|\(/man[1-8]/.*\)\.gz$|\1|' | sort; }
missing=$(comm -23 <(cd "$stage" && find . ! -type d | sed 's|^\./||' | sort) <(packed))
if [ -n "$missing" ]; then
    printf 'package: `make install` installs what no package holds:\n%s\n' "$missing" >&2
    exit 1
fi
ls -l "$to"
