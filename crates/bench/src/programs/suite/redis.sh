# redis with an append-only file; WAY: when it syncs that. The client is outside.
server_and_client() {
    # The server is this program too, by another name (and comes without a service).
    ln -sf "$(command -v redis-check-rdb)" "$WORK/tmp/redis-server"
    begin "$WORK/tmp/redis-server" --port 0 --unixsocket "$TMPDIR/redis" --save "" --appendonly yes \
        --appendfsync "$WAY" --dir "$DIR"
    answers redis-cli -s "$TMPDIR/redis" --raw -e ping
    local clients
    for clients in 1 16; do
        redis-benchmark -s "$TMPDIR/redis" -t set -n "$(of 1000 20000 200000)" -c "$clients" -d 100 --csv \
            >"$TMPDIR/redis.csv" 2>"$TMPDIR/redis.err" || { cat "$TMPDIR/redis.err" >&2; return 1; }
        each_second "redis set, AOF $WAY, clients: $clients" \
            "$(awk -F '"' 'END { print $4 }' "$TMPDIR/redis.csv")"
    done
}
turn() { server_and_client; }
