# LevelDB as its db_bench does it: 16-byte keys, 100-byte values.
turn() { "$BIN/leveldb" "$DIR" "$(of 2000 100000 1000000)"; }
