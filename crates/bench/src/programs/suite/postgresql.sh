# PostgreSQL: pgbench's TPC-B and selects. The client is outside.
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
as=() sockets=$WORK/tmp/postgresql
if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid=postgres --regid=postgres --clear-groups); fi
own() { if [ "$(id -u)" = 0 ]; then chown postgres: "$@"; fi; }
up() {
    mkdir -p "$sockets"
    own "$sockets"
    begin "${as[@]}" "$bin/postgres" -D "$KEPT/pg" -k "$sockets" -c listen_addresses= \
        -c synchronous_commit=on -c shared_buffers=128MB -c max_wal_size="$(of 64MB 512MB 2GB)" \
        -c min_wal_size=32MB
    answers "$bin/pg_isready" -h "$sockets" -q
}
client() { "$bin/pgbench" -h "$sockets" -U postgres "$@" postgres; }
prepare() {
    own "$KEPT"
    "${as[@]}" "$bin/initdb" -D "$KEPT/pg" -A trust -U postgres --no-locale -E UTF8 --wal-segsize=4 >&2
    up
    client -i -q -s "$(of 1 10 40)" >&2
}
turn() {
    local seconds
    seconds=$(of 1 5 20)
    up
    measure "postgresql TPC-B, clients: 1" -n -T "$seconds" -c 1
    measure "postgresql TPC-B, clients: 4" -n -T "$seconds" -c 4 -j 2
    measure "postgresql select, clients: 1" -n -T "$seconds" -S -c 1
}
measure() {
    local row=$1
    shift
    client "$@" >"$TMPDIR/pgbench" 2>"$TMPDIR/pgbench.err" || { cat "$TMPDIR/pgbench.err" >&2; return 1; }
    each_second "$row" "$(awk '$1 == "tps" { print $3; exit }' "$TMPDIR/pgbench")"
}
