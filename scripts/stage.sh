#!/usr/bin/env bash
# Installs what is built below a folder, as a distribution does, without debug information.
#
# usage: scripts/stage.sh STAGE VARIABLE=VALUE...      (the folder is made afresh; variables of make install)
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$1
shift
rm -rf "$stage"
make --no-print-directory -s install DESTDIR="$stage" "$@"
find "$stage" -type f \( -name '*.so' -o -name '*.so.0' -o -name '*.a' -o -path '*/bin/solera*' \) \
    -exec strip --strip-debug {} +
