# fio runs a job file of ours, WAY.fio: one of the mixes of file servers that papers use.
turn() {
    FILES=$(of 50 500 2000) SECONDS_OF_EACH=$(of 1 3 20) TARGET=$DIR \
        fio --minimal --output="$TMPDIR/fio" "$SRC/$WAY.fio" >&2 || { cat "$TMPDIR/fio" >&2; return 1; }
    # Of each group: field 8 and 49 are reads and writes in a second, 5 is its error.
    awk -F ';' -v row="fio $WAY, a read or write" '
        $1 == "3" { if ($5 != 0) bad = $5; sum += $8 + $49 }
        END {
            if (bad) { print "fio: error " bad > "/dev/stderr"; exit 1 }
            if (!sum) { print "fio tells of no read and no write" > "/dev/stderr"; exit 1 }
            printf "%s\t%.1f\n", row, 1e9 / sum
        }' "$TMPDIR/fio"
}
