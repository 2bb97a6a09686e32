# LMDB: fills by transactions of 1,000 puts, then reads, and reads beside single puts; all keys alike.
turn() {
    local count operations
    count=$(of 2000 100000 1000000) operations=$(of 500 20000 100000)
    timed "lmdb fill by 1,000" "$count" "$BIN/lmdb_mixes" fill "$DIR/store" "$count" 100
    for mix in read half; do
        "$BIN/lmdb_mixes" run "$DIR/store" "$count" 100 "$mix" "$operations" 1 1 locks >"$TMPDIR/lmdb"
        awk -F '\t' -v mix="$mix" '$1 == "ns" { print "lmdb " mix "\t" $2 }' "$TMPDIR/lmdb"
    done
}
