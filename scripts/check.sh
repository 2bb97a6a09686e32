#!/usr/bin/env bash
# What a change needs at once: form, the lints of all crates (what depends on a changed one is compiled,
# too), and the unit tests of the crates that have changed, beside the test programs that have.
#
# usage: scripts/check.sh [BASE]    (a revision; default: where this branch left its upstream, else HEAD)
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:-$(git merge-base HEAD '@{upstream}' 2> /dev/null || echo HEAD)}
mapfile -t changed < <({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)

# manifest FILE: the manifest that it belongs to, if it is of a crate.
manifest() {
    local directory=$1
    while [[ $directory = */* ]]; do
        directory=${directory%/*}
        if [ -e "$directory/Cargo.toml" ]; then echo "$directory/Cargo.toml"; return; fi
    done
}
mapfile -t manifests < <(for file in "${changed[@]}"; do manifest "$file"; done | sort -u)

cargo fmt --all --check
scripts/style.sh
scripts/layers.py
scripts/crates.py --check
scripts/links.py
scripts/words.py
cargo clippy --release --workspace --features solera-explorer/inject,solera-flac/inject --all-targets -- -D warnings
for manifest in "${manifests[@]}"; do
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    directory=${manifest%/Cargo.toml}
    # Workspaces of their own.
    ! grep -q '^\[workspace\]' "$manifest" || continue
    options=()
    # A library may say that it has no tests.
    [ ! -e "$directory/src/lib.rs" ] || grep -q '^test = false' "$manifest" || options+=(--lib)
    [ ! -e "$directory/src/main.rs" ] || options+=(--bins)
    for file in "${changed[@]}"; do
        # tests/NAME.rs, or below tests/NAME, which has a main.rs.
        [[ $file = "$directory"/tests/* && -e $file ]] || continue
        program=${file#"$directory/tests/"}
        case $program in
        */*) program=${program%%/*} ; [ -e "$directory/tests/$program/main.rs" ] || continue ;;
        *.rs) program=${program%.rs} ;;
        *) continue ;;
        esac
        [[ " ${options[*]} " = *" $program "* ]] || options+=(--test "$program")
    done
    [ ${#options[@]} -gt 0 ] || continue
    # Its tests may want the faults that can be put in.
    ! grep -q 'required-features = \["inject"\]' "$manifest" || options+=(--features inject)
    echo "== $name ${options[*]}"
    cargo test --quiet --release -p "$name" "${options[@]}"
done
echo "${#changed[@]} files differ from $(git rev-parse --short "$base"), in ${#manifests[@]} crates: all is well"
