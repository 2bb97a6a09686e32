#!/usr/bin/env bash
# A tarball of what `make install` installs, as it lies below /usr/local, with the licences; beside it
# its SHA256 and a list of the crates in it in CycloneDX's format (SBOM). The command runs wherever the
# tarball is unpacked. Names in it are sorted, times are the commit's. What comes out is tried:
# tests/tarball/run.
#
# usage: scripts/tarball.sh      (into target/tarball, made afresh)
set -euo pipefail
cd "$(dirname "$0")/.."
to=$PWD/target/tarball
fail() { printf 'tarball: %s\n' "$*" >&2; exit 1; }

command -v cargo-cyclonedx > /dev/null || fail "there is no cargo-cyclonedx (make tarball installs it)"
version=$(target/release/solera --version | awk '{ print $2 }')
name=solera-$version-$(uname -m)-linux-gnu
time=$(git log -1 --format=%ct 2> /dev/null || date +%s)
rm -rf "$to"
scripts/stage.sh "$to/stage" PREFIX=/usr/local SBIN=/usr/local/sbin
mv "$to/stage/usr/local" "$to/$name"
rm -r "$to/stage"
# Wherever it is unpacked.
ln -sf ../bin/solera "$to/$name/sbin/mount.fuse.solera"
sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$to/$name/lib/pkgconfig/solera.pc"
cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$to/$name/"
tar -C "$to" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -cf - "$name" |
    gzip -9n > "$to/$name.tar.gz"

# It writes beside each manifest; what counts is the command's.
cargo cyclonedx --quiet --format json --override-filename sbom --manifest-path crates/cli/Cargo.toml
mv crates/cli/sbom.json "$to/$name.cdx.json"
find . -path ./target -prune -o -name sbom.json -exec rm {} +
(cd "$to" && sha256sum "$name.tar.gz" "$name.cdx.json" > SHA256SUMS)

rm -r "${to:?}/$name"
python3 - "$to/$name.cdx.json" Cargo.lock << 'END' || fail "the list of crates is not that of Cargo.lock"
import json, re, sys
listed = json.load(open(sys.argv[1]))
locked = set(re.findall(r'name = "(.*)"\nversion = "(.*)"', open(sys.argv[2]).read()))
found = {(part["name"], part["version"]) for part in listed["components"]}
assert listed["bomFormat"] == "CycloneDX" and len(found) > 20 and found <= locked, found - locked
END
tests/tarball/run "$to" || [ $? -eq 77 ]
ls -l "$to"
