# killed_fills DIR [WAY]: fills the store in DIR by ./driver, killed after so many acknowledgements
# more each time; at last a fill that ends by itself.
killed_fills() {
    local dir=$1 done=0 most pid line seen count
    shift
    for most in 1 90 500 777 1500 2200; do
        mkfifo acks
        begin ./driver fill "$dir" $done 900000 "$@" >acks 2>errors & pid=$!
        # By the shell, which reads no further than each line: mawk 1.3.4 of 2024 waits for 256 KiB first.
        seen=-1 count=0
        while read -r line; do
            seen=$line count=$((count + 1))
            [ $count -ne $most ] || kill -9 $pid || true
        done <acks
        wait $pid 2>/dev/null && fail "the fill was not killed"
        rm acks
        # What is said at the start of each program under --emulate, and with a cache, is no error.
        ! grep -Ev '^solera: (.* is emulated memory: |the cache lies in )' errors || fail "the fill"
        done=$((seen + 1))
        echo "$dir: killed after $done"
        srun ./driver check "$dir" 0 $done "$@" >count || fail "after a kill at $done"
        # The write in flight may be there, too.
        [ "$(cat count)" = $done ] || same "$(cat count)" $((done + 1)) "keys after a kill"
    done
    srun ./driver fill "$dir" $done $((done + 1000)) "$@" >/dev/null || fail "the last fill"
    same "$(srun ./driver check "$dir" 0 $((done + 1000)) "$@")" $((done + 1000)) "keys ($dir)"
}
