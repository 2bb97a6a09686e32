# Inserts of 100 bytes, each a transaction. WAY: journal mode and `synchronous`.
turn() {
    # shellcheck disable=SC2086 # Two words.
    "$BIN/sqlite" "$DIR" "$(of 500 20000 50000)" $WAY
}
