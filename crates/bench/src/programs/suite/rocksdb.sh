# RocksDB's db_bench: 16-byte keys, 100-byte values, no compression, one thread.
bench() {
    local what=$1
    shift
    db_bench --db="$DIR/db" --compression_type=none --value_size=100 --seed=1 --benchmarks="$what" "$@" \
        >"$TMPDIR/db_bench" 2>&1 || { cat "$TMPDIR/db_bench" >&2; return 1; }
    # "fillsync     :   12.345 micros/op 81004 ops/sec ..."
    awk '$2 == ":" && /micros\/op/ { printf "rocksdb %s\t%.1f\n", $1, $3 * 1000 }' "$TMPDIR/db_bench"
}
turn() {
    local count
    count=$(of 2000 100000 1000000)
    # So many writes, each synced, over a thousandth of as many keys.
    bench fillsync --num="$count"
    bench fillrandom,readrandom,readwhilewriting --num="$count"
}
