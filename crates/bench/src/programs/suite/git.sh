# git: clones a repository that lies outside (by its protocol, not by links), asks for the status of
# the clone, and packs it anew.
files=$(of 300 4000 20000)
export GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
settings=(-c gc.auto=0 -c gc.autoDetach=false -c maintenance.auto=false -c user.name=b -c user.email=b@b)
input() {
    tree "$INPUT/tree" "$files"
    # Files that differ: each is an object.
    (cd "$INPUT/tree" && for file in d*/f*; do echo "$file" >>"$file"; done &&
        git init -q . && git "${settings[@]}" add -A && git "${settings[@]}" commit -qm b)
}
turn() {
    timed "git clone, a file" "$files" git "${settings[@]}" clone -q "file://$INPUT/tree" "$DIR/clone"
    git -C "$DIR/clone" status --porcelain >&2
    timed "git status, a file" "$files" git -C "$DIR/clone" status --porcelain
    timed "git gc, a file" "$files" git "${settings[@]}" -C "$DIR/clone" gc -q
}
