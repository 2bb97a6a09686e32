# New orders and payments, much like TPC-C, on SQLite: WAL, synchronous=FULL.
turn() { "$BIN/tpcc" "$DIR" "$(of 200 4000 20000)"; }
