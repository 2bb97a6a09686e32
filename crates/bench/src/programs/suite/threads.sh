# Files of their own, appended to and read at random by one thread and by two.
turn() { "$BIN/threads" "$DIR" "$(of 2000 40000 200000)"; }
