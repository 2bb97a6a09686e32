# Who waits for changes: tail -F, inotifywait, Node's fs.watch (of a tree, too), Python by its C library; with
# SOLERA_TEST_LONG also chokidar, watchdog and watchfiles. Each is told of what another program changes.
needs node python3
# until TEXT FILE: waits until a line of a file says so.
until_said() {
    local tries=0
    until grep -q -e "$1" "$2" 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "nothing says $1"; return 1; }
    done
}
finish() { kill "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
srun mkdir -p "$AT/log" "$AT/tree/deep/er" "$AT/tree/other"

echo "== tail -F"
srun sh -c 'echo first >"$0/log/a"' "$AT"
begin tail -n 1 -F "$AT/log/a" >tail.said 2>tail.errors &
pid=$!
until_said first tail.said
srun sh -c 'echo second >>"$0/log/a"' "$AT"
until_said second tail.said
srun sh -c 'mv "$0/log/a" "$0/log/a.1"; echo third >"$0/log/a"' "$AT"
until_said third tail.said
srun sh -c 'echo fourth >>"$0/log/a"' "$AT"
until_said fourth tail.said
finish $pid
cat tail.said

if command -v inotifywait >/dev/null; then
    echo "== inotifywait -m -r"
    begin inotifywait -m -r --format '%w %e %f' "$AT/tree" >wait.said 2>wait.errors &
    pid=$!
    until_said "Watches established" wait.errors
    # shellcheck disable=SC2016
    srun sh -c 'cd "$0/tree" && echo x >one && mv one deep/two && rm deep/two && touch last' "$AT"
    until_said "CLOSE_WRITE,CLOSE last" wait.said
    finish $pid
    sed "s|$AT||" wait.said
else
    echo "skipped: there is no inotifywait" >&2
fi

echo "== Node's fs.watch"
cat >watch.mjs <<'NODE'
import fs from "node:fs";
const [, , root, said] = process.argv;
const seen = new Set();
const tell = (from) => (event, name) => {
    const line = `${from} ${name}`;
    if (!seen.has(line)) { seen.add(line); fs.appendFileSync(said, line + "\n"); }
};
fs.watch(root + "/other", tell("directory"));
fs.watch(root, { recursive: true }, tell("tree"));
fs.watchFile(root + "/other/polled", { interval: 50 }, () => tell("polled")("", "polled"));
setTimeout(() => fs.appendFileSync(said, "ready\n"), 500);
NODE
begin node watch.mjs "$AT/tree" "$PWD/node.said" >node.errors 2>&1 &
pid=$!
until_said ready node.said
# shellcheck disable=SC2016
srun sh -c 'cd "$0/tree" && echo x >other/made && echo y >deep/er/made && echo z >other/polled' "$AT"
for line in "directory made" "tree other/made" "tree deep/er/made" "polled polled"; do until_said "^$line" node.said; done
finish $pid
cat node.errors

[ -n "${SOLERA_TEST_LONG:-}" ] || return 0
tools=$HERE/../../target/door-tools/watchers
[ -d "$tools/node_modules/chokidar" ] || npm install -s --no-audit --no-fund --no-progress --prefix "$tools" chokidar@4.0.3 >/dev/null 2>&1
[ -x "$tools/venv/bin/python" ] || { python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" -q install watchdog==6.0.0 watchfiles==1.1.0; } >/dev/null 2>&1
if [ -d "$tools/node_modules/chokidar" ]; then
    echo "== chokidar"
    cat >"$tools/chokidar.mjs" <<'NODE'
import { watch } from "chokidar";
import fs from "node:fs";
const [, , root, said] = process.argv;
const tell = (line) => fs.appendFileSync(said, line + "\n");
watch(root, { ignoreInitial: true }).on("all", (event, path) => tell(`${event} ${path.slice(root.length)}`)).on("ready", () => tell("ready"));
NODE
    begin node "$tools/chokidar.mjs" "$AT/tree" "$PWD/chokidar.said" >chokidar.errors 2>&1 &
    pid=$!
    until_said ready chokidar.said
    srun sh -c 'cd "$0/tree" && mkdir -p c/d && sleep 0.3 && echo x >c/d/e' "$AT"
    until_said "add /c/d/e" chokidar.said
    srun sh -c 'cd "$0/tree" && sleep 0.3 && echo xx >>c/d/e && sleep 0.3 && rm c/d/e' "$AT"
    until_said "unlink /c/d/e" chokidar.said
    finish $pid
    cat chokidar.said chokidar.errors
else
    echo "skipped: chokidar cannot be fetched" >&2
fi
if "$tools/venv/bin/python" -c "import watchdog, watchfiles" 2>/dev/null; then
    echo "== watchdog"
    cat >dog.py <<'PY'
import sys, time
from watchdog.observers.inotify import InotifyObserver
from watchdog.events import FileSystemEventHandler
class Handler(FileSystemEventHandler):
    def on_any_event(self, event):
        with open(sys.argv[2], "a") as said:
            said.write(f"{event.event_type} {event.src_path[len(sys.argv[1]):]} {event.dest_path[len(sys.argv[1]):]}\n")
observer = InotifyObserver()
observer.schedule(Handler(), sys.argv[1], recursive=True)
observer.start()
open(sys.argv[2], "a").write("ready\n")
time.sleep(60)
PY
    begin "$tools/venv/bin/python" dog.py "$AT/tree" "$PWD/dog.said" >dog.errors 2>&1 &
    pid=$!
    until_said ready dog.said
    srun sh -c 'cd "$0/tree" && echo x >w && mv w other/w2 && rm other/w2 && echo >end' "$AT"
    until_said "closed /end" dog.said
    finish $pid
    cat dog.said dog.errors
    echo "== watchfiles"
    cat >files.py <<'PY'
import sys
from watchfiles import watch
for number, changes in enumerate(watch(sys.argv[1], debounce=50, step=20, rust_timeout=300, yield_on_timeout=True)):
    with open(sys.argv[2], "a") as said:
        if number == 0:
            said.write("ready\n")
        for change, path in sorted(changes):
            said.write(f"{change.name} {path[len(sys.argv[1]):]}\n")
PY
    begin "$tools/venv/bin/python" files.py "$AT/tree" "$PWD/files.said" >files.errors 2>&1 &
    pid=$!
    until_said ready files.said
    srun sh -c 'cd "$0/tree" && echo x >v && sleep 0.4 && mv v other/v2 && sleep 0.4 && rm other/v2 && echo >end2' "$AT"
    until_said "added /end2" files.said
    finish $pid
    sort files.said
    cat files.errors
else
    echo "skipped: watchdog and watchfiles cannot be fetched" >&2
fi
