# Runs one step of a program of `solera bench programs`: bash run.sh STEP
#
#   input    once, outside of every place: makes what the program reads, in $INPUT
#   prepare  once in each place: makes what stays there from turn to turn, in $KEPT
#   turn     what is measured, in the new directory $DIR, which goes afterwards
#   clean    removes what `prepare` has made
#
# A turn tells rows on standard output: name, tab, nanoseconds of an operation.
# From outside: SCRIPT and WAY (which program), WORK (a directory that no place has: bin/ with drivers,
# src/ with these files), PLACE (a directory of the place), SCALE (quick, usual, full), TURN (a number).
set -euo pipefail
export LC_ALL=C TMPDIR=$WORK/tmp HOME=$WORK/home
unset BASH_ENV ENV CDPATH
BIN=$WORK/bin SRC=$WORK/src INPUT=$WORK/input/$SCRIPT
KEPT=$PLACE/kept DIR=$PLACE/turn-$TURN

# of QUICK USUAL FULL: the one of the scale.
of() {
    case $SCALE in quick) echo "$1" ;; usual) echo "$2" ;; *) echo "$3" ;; esac
}

# timed ROW OPERATIONS COMMAND...: runs it, and tells the row.
timed() {
    local row=$1 operations=$2 begun ended
    shift 2
    begun=${EPOCHREALTIME/./}
    "$@" >&2
    ended=${EPOCHREALTIME/./}
    printf '%s\t%s\n' "$row" "$(((ended - begun) * 1000 / operations))"
}

# each_second ROW NUMBER: tells a row of which NUMBER are done in a second.
each_second() {
    awk -v row="$1" -v number="$2" 'BEGIN { printf "%s\t%.1f\n", row, 1e9 / number }'
}

# tree DIR FILES: files of 0 to 8 KiB, a hundred in a directory.
tree() {
    awk -v dir="$1" -v files="$2" 'BEGIN {
        for (i = 0; i < 8192; i++) text = text "x"
        for (i = 0; i < files; i++) {
            if (i % 100 == 0) system("mkdir -p " dir "/d" int(i / 100))
            name = dir "/d" int(i / 100) "/f" i
            printf "%s", substr(text, 1, i * 37 % 8192) > name
            close(name)
        }
    }'
}

# begin COMMAND...: starts a server, which ends with this shell at the latest.
server=
begin() {
    "$@" >"$WORK/tmp/server.log" 2>&1 </dev/null &
    server=$!
}

# answers COMMAND...: waits until it succeeds, while the server runs; after four minutes it hangs.
answers() {
    local end=$((SECONDS + 240))
    while kill -0 "$server" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.05
    done
    echo "the server does not answer:" >&2
    tail -n 20 "$WORK/tmp/server.log" >&2
    return 1
}

# end: tells the server to end, and waits for it.
end() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=
}
trap end EXIT
trap 'exit 143' TERM INT HUP

input() { :; }
prepare() { :; }
mkdir -p "$TMPDIR" "$HOME"
# shellcheck source=/dev/null
. "$SRC/$SCRIPT.sh"

case $1 in
input)
    rm -rf "$INPUT"
    mkdir -p "$INPUT"
    input
    ;;
prepare)
    mkdir -p "$KEPT"
    prepare
    ;;
turn)
    mkdir -p "$DIR"
    turn
    end
    rm -rf "$DIR"
    ;;
clean) rm -rf "$PLACE" ;;
esac
