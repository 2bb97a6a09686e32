# PostgreSQL with full durability: a cluster is made and loaded, pgbench runs, the postmaster is killed
# -9 under load, the server recovers, and pg_amcheck finds nothing.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$bin/pg_amcheck" ] || skip "there is no PostgreSQL with pg_amcheck"
if [ -n "$LONG" ]; then scale=10 seconds=30; else scale=10 seconds=5; fi
export USER_NAME=postgres
if [ "$(id -u)" = 0 ]; then
    user test -x "$SOLERA" || skip "the user postgres may not run $SOLERA"
    chown postgres "$WORK"
    if [ "$FACE" = preload ]; then chown postgres: "$VOLUME"; chown -R postgres: "$VOLUME.solera"; fi
fi
# The engine over a directory belongs to whom it serves first.
if [ "$FACE" = split ]; then chmod 1777 "$AT"; face_as_user install -d "$AT/pg"; else face install -d -m 1777 "$AT/pg"; fi
export PGHOST=$AT/pg PGPORT=15998 PGDATABASE=postgres LC_ALL=C
ctl() { face_as_user "$bin/pg_ctl" -w -t 120 -D "$AT/pg/data" "$@" >ctl.out 2>&1 </dev/null || { cat ctl.out; return 1; }; }
sql() { face_as_user "$bin/psql" -At -c "$1"; }
start() { ctl start -l "$AT/pg/log" -o "-k $AT/pg -c listen_addresses= -c shared_buffers=32MB -p $PGPORT"; }
outcome initdb face_as_user "$bin/initdb" -D "$AT/pg/data" -A trust -E UTF8 --no-locale -k
outcome start start
outcome load face_as_user "$bin/pgbench" -q -i -s $scale
outcome transactions face_as_user "$bin/pgbench" -c 4 -j 2 -T $seconds
sql 'create extension amcheck; create table seen(n int)'
face_as_user "$bin/pgbench" -n -c 4 -j 2 -T 120 >bench 2>&1 & bench=$!
for i in $(seq 200); do echo "insert into seen values ($i); select 'committed', $i;"; done |
    face_as_user "$bin/psql" -At -q >seen || true
kill -9 "$(face_as_user head -n 1 "$AT/pg/data/postmaster.pid")"
wait $bench || true
outcome committed test "$(grep -c committed seen)" = 200
for tries in $(seq 100); do start && break || sleep 0.2; done
outcome recovered test "$(sql 'select count(*), sum(n) from seen')" = "200|20100"
outcome balances test "$(sql 'select (select sum(abalance) from pgbench_accounts) =
    (select sum(bbalance) from pgbench_branches) and (select sum(tbalance) from pgbench_tellers) =
    (select sum(delta) from pgbench_history)')" = t
outcome accounts test "$(sql 'select count(*) from pgbench_accounts')" = $((scale * 100000))
outcome amcheck face_as_user "$bin/pg_amcheck" --all --heapallindexed --rootdescend
outcome stop ctl stop -m fast
outcome checksums face_as_user "$bin/pg_checksums" -c -D "$AT/pg/data"
