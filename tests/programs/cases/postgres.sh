# PostgreSQL: a cluster is made, pgbench runs with four clients, the server is killed -9 with all its
# processes, and started again: its own recovery must find every transaction that was acknowledged.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$bin/pgbench" ] || { echo "there is no PostgreSQL with pgbench"; exit 77; }
as=()
if [ "$(id -u)" = 0 ]; then
    [ -z "${DDMAP:-}" ] || { echo "it runs as another user, and a node's volumes are its own user's"; exit 77; }
    # The server does not run as root: as its own user, who needs the volume.
    as=(setpriv --reuid=postgres --regid=postgres --init-groups)
    chmod 755 "$SCRATCH"
    if [ -n "$SPLIT" ]; then
        chown postgres "$AT"
    else
        chmod 666 "$VOLUME"; chmod -R a+rwX "$VOLUME.solera"
    fi
    "${as[@]}" test -x "$SOLERA" || { echo "the user postgres may not run $SOLERA"; exit 77; }
fi
# shellcheck disable=SC2086 # Words.
user() { "${as[@]}" "$SOLERA" run $RUN -- "$@"; }
user true
# Over a kernel file system the engine is one user's.
beside() { if [ -n "$SPLIT" ]; then user "$@"; else srun "$@"; fi; }
beside install -d -m 1777 "$AT/pg"
cd /; export PGHOST=$AT/pg PGPORT=15999 PGDATABASE=postgres LC_ALL=C
ctl() { user "$bin/pg_ctl" -w -D "$AT/pg/data" "$@" >"$SCRATCH/ctl" 2>&1 </dev/null || { cat "$SCRATCH/ctl"; fail "pg_ctl $*"; }; }
sql() { user "$bin/psql" -At -c "$1"; }
options="-k $AT/pg -c listen_addresses= -c shared_buffers=32MB -p $PGPORT"
user "$bin/initdb" -D "$AT/pg/data" -A trust -E UTF8 --no-locale -k >"$SCRATCH/init" 2>&1 || { cat "$SCRATCH/init"; fail "initdb"; }
ctl start -o "$options" -l "$AT/pg/log"
user "$bin/pgbench" -q -i -s 1 >"$SCRATCH/made" 2>&1 || { cat "$SCRATCH/made"; fail "pgbench -i"; }
for round in 1 2; do
    user "$bin/pgbench" -n -c 4 -j 2 -T 60 --progress=1 >"$SCRATCH/bench" 2>&1 & bench=$!
    # A writer whose every commit is noted before the next.
    sql "create table if not exists seen(n int)" >/dev/null
    sql "truncate seen" >/dev/null
    for i in $(seq 100); do echo "insert into seen values ($i); select 'committed', $i;"; done |
        user "$bin/psql" -At -q >"$SCRATCH/seen" 2>&1 || true
    main=$(beside head -n 1 "$AT/pg/data/postmaster.pid")
    # All of the server's processes at once, as a machine's sudden end.
    kill -9 "$main" $(ps -o pid= --ppid "$main") 2>/dev/null || true
    wait $bench || true
    acknowledged=$(grep -c committed "$SCRATCH/seen" || true)
    same "$acknowledged" 100 "commits before the kill"
    beside rm -f "$AT/pg/data/postmaster.pid" "$AT/pg/.s.PGSQL.$PGPORT.lock"
    ctl start -o "$options" -l "$AT/pg/log"
    same "$(sql 'select count(*), sum(n) from seen')" "100|5050" "rows after the kill"
    same "$(sql 'select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)')" t "the balances"
    same "$(sql 'select count(*) from pgbench_accounts')" 100000 "accounts"
done
ctl stop -m fast
user "$bin/pg_checksums" -c -D "$AT/pg/data" >"$SCRATCH/sums" 2>&1 || { cat "$SCRATCH/sums"; fail "pg_checksums"; }
