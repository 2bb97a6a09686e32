# fsx: random operations of all kinds on one file, each read compared with what was written. Long runs
# go without reads through mappings, for fsx never unmaps what it has read through.
# In the short run other seeds in each commit: eight of 4,000, and one of the 20 long ones.
tool fsx 0.3.2
if [ -n "$LONG" ]; then
    first=1 last=4000 first_long=1 last_long=20 steps=100000
else
    first=$((8 * $("$TESTS/../scripts/rotation.py" number fsx 500) + 1)) last=$((first + 7))
    first_long=$(($("$TESTS/../scripts/rotation.py" number "long fsx" 20) + 1)) last_long=$first_long steps=20000
fi
# configure NAME MAPREADS FALLOCATES EXTRA...: all operations, with lines of EXTRA before the weights.
configure() {
    local name=$1 mapread=$2 fallocate=$3
    shift 3
    printf '%s\n' "$@" >"$name.toml"
    cat >>"$name.toml" <<TOML
[weights]
close_open = 1
invalidate = 1
mapread = $mapread
mapwrite = 10
read = 10
write = 10
truncate = 10
fsync = 1
fdatasync = 1
posix_fallocate = $fallocate
punch_hole = 2
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
TOML
}
configure 0 10 2
configure 1 10 2 'nomsyncafterwrite = true' '[opsize]' 'max = 9000'
# fsx itself asks for an allocation of no bytes if all is to be aligned.
configure 2 10 0 '[opsize]' 'align = 4096'
configure 3 10 2 'flen = 5000000' '[opsize]' 'max = 3000000'
configure long 0 2
cat >seeds <<'SEEDS'
# seeds FIRST LAST STEPS CONFIGURATION: one line for each; that of seeds that are short turns.
for seed in $(seq "$1" "$2"); do
    configuration=$4
    [ "$4" != turn ] || configuration=$((seed % 4))
    if "$TOOLS/bin/fsx" -f "$configuration.toml" -N "$3" -S "$seed" -P . "$AT/fsx" >out 2>&1; then
        echo "seed-$seed-$4 ok"
    else
        echo "seed-$seed-$4 failed"
        tail -n 40 out >&2
    fi
    rm -f "$AT/fsx"
done
SEEDS
export TOOLS
face bash seeds "$first" "$last" 2000 turn >>"$RESULTS"
face bash seeds "$first_long" "$last_long" "$steps" long >>"$RESULTS"
