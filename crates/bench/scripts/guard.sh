#!/usr/bin/env bash
# Is this build slower than an older one? Both run the same programs in turns (A B A B), each on a volume
# of its own; `make bench-guard BASE=...` before a release. It fails if a row is slower by more than 5 %
# beyond the spread, twice (`solera bench programs --help`, --against).
#
# usage: crates/bench/scripts/guard.sh REVISION|DIRECTORY [OPTION of `solera bench programs`...]
# A revision is built below target/bench-guard, once; "" means the last tag.
set -euo pipefail
cd "$(dirname "$0")/../../.."

fail() {
    printf 'bench-guard: %s\n' "$@" >&2
    exit 2
}

base=${1-}
[ $# -eq 0 ] || shift
if [ -z "$base" ]; then
    base=$(git describe --tags --abbrev=0 2> /dev/null) ||
        fail "there is no tag to compare with" "say BASE=REVISION, or BASE=FOLDER with solera and its library"
fi
if [ -x "$base/solera" ]; then
    older=$base
else
    commit=$(git rev-parse --verify --quiet "$base^{commit}") ||
        fail "$base is no revision, and no folder that has solera in it"
    at=$PWD/target/bench-guard/$commit
    older=$at/target/release
    if [ ! -e "$at/built" ]; then
        rm -rf "$at/source"
        mkdir -p "$at/source"
        git archive "$commit" | tar -x -C "$at/source"
        commands=(-p solera-cli)
        # There was a time when the command measured by itself.
        [ ! -e "$at/source/crates/bench" ] || commands+=(-p solera-bench)
        echo "bench-guard: building $base (${commit:0:12})"
        (cd "$at/source" && CARGO_TARGET_DIR=$at/target cargo build --release -p solera-preload "${commands[@]}")
        rm -rf "$at/source"
        touch "$at/built"
    fi
fi
exec target/release/solera bench programs --against "$older" --modes strict --repeat 7 "$@"
