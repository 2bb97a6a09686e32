# rsync: copies a tree that lies outside, and once more when nothing has changed.
files=$(of 300 4000 20000)
input() { tree "$INPUT/tree" "$files"; }
turn() {
    timed "rsync, a file" "$files" rsync -a "$INPUT/tree/" "$DIR/tree/"
    timed "rsync of nothing new, a file" "$files" rsync -a "$INPUT/tree/" "$DIR/tree/"
}
