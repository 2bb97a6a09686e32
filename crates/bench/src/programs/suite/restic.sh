# restic: backs up a tree that lies outside into a repository, once more when nothing has changed, and restores
# it. Of each command some tenths of a second derive a key from a password.
files=$(of 300 4000 20000)
export RESTIC_PASSWORD=bench RESTIC_REPOSITORY=$DIR/repository RESTIC_CACHE_DIR=$DIR/cache
input() { tree "$INPUT/tree" "$files"; }
turn() {
    restic -q init >&2
    timed "restic backup, a file" "$files" restic -q backup "$INPUT/tree"
    timed "restic backup of nothing new, a file" "$files" restic -q backup "$INPUT/tree"
    timed "restic restore, a file" "$files" restic -q restore latest --target "$DIR/restored"
}
