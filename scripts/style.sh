#!/usr/bin/env bash
# The rules of CONTRIBUTING that no lint knows, for every file that is tracked: heads, lengths, and
# words that mean something was left undone. Prints what breaks a rule; fails if anything does.
set -euo pipefail
cd "$(dirname "$0")/.."

LINES_MAX=800
# What rustfmt keeps code within; it leaves comments and long strings alone.
COLUMNS_MAX=100

broken=$(mktemp)
trap 'rm -f "$broken"' EXIT

mapfile -t sources < <(git ls-files '*.rs' | grep -v '/tests/compile_fail/')
for file in "${sources[@]}"; do
    head -n 1 "$file" | grep -q '^//!' || echo "$file: does not open with //!"
    lines=$(wc -l < "$file")
    [ "$lines" -le $LINES_MAX ] || echo "$file: $lines lines, more than $LINES_MAX"
done >> "$broken"
LC_ALL=C.UTF-8 awk -v max=$COLUMNS_MAX 'length($0) > max {
    printf "%s:%d: %d columns\n", FILENAME, FNR, length($0) }' "${sources[@]}" >> "$broken"
mapfile -t pages < <(git ls-files '*.md')
scripts/wrap.py --check "${pages[@]}" >> "$broken" || true
# The pattern is written so that it does not find itself.
git grep -nE '\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b|todo![(]|unimplemented![(]|dbg![(]' >> "$broken" || true

if [ -s "$broken" ]; then
    cat "$broken"
    exit 1
fi
echo "${#sources[@]} source files and ${#pages[@]} pages keep the rules"
