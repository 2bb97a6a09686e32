# tar: unpacks an archive that lies outside into many small files, and packs them there.
files=$(of 300 4000 20000)
input() {
    tree "$INPUT/tree" "$files"
    tar cf "$INPUT/tree.tar" -C "$INPUT/tree" .
}
turn() {
    mkdir "$DIR/tree"
    timed "untar, a file" "$files" tar xf "$INPUT/tree.tar" -C "$DIR/tree"
    timed "tar, a file" "$files" tar cf "$DIR/tree.tar" -C "$DIR/tree" .
}
