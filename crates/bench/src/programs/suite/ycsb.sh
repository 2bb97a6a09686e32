# YCSB's core workloads, A to F, with their standard distributions: zipf 0.99; D reads the latest; E
# scans up to 100; 1,000-byte values. WAY: the store. Each mix runs on what the ones before have left,
# in the order that YCSB recommends: E last, since both it and D insert.
turn() {
    local count operations
    count=$(of 500 20000 200000) operations=$(of 200 10000 100000)
    timed "ycsb load, $WAY" "$count" "$BIN/${WAY}_mixes" fill "$DIR/store" "$count" 1000
    for mix in A B C F D E; do
        "$BIN/${WAY}_mixes" run "$DIR/store" "$count" 1000 "$mix" "$operations" 1 1 locks >"$TMPDIR/ycsb"
        awk -F '\t' -v row="ycsb $mix, $WAY" '$1 == "ns" { print row "\t" $2 }' "$TMPDIR/ycsb"
    done
}
