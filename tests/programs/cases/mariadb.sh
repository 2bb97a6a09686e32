# MariaDB: InnoDB finds no asynchronous calls of the kernel and uses threads; a server is filled,
# killed -9 in mid-work and started again: its own recovery must find every commit.
needs mariadb-install-db mariadbd mariadb
as=()
[ "$(id -u)" != 0 ] || as=(--user=root)
srun mariadb-install-db --no-defaults --datadir="$AT/my" "${as[@]}" >made 2>&1 ||
    { tail -n 20 made; fail "mariadb-install-db"; }
grep -q "falling back to innodb_use_native_aio=OFF" made || fail "InnoDB did not fall back"
sql() { srun mariadb --no-defaults -N --socket="$AT/sock" -u "$(id -un)" "$@"; }
start() {
    begin mariadbd --no-defaults "${as[@]}" --datadir="$AT/my" --socket="$AT/sock" --skip-networking \
        --pid-file="$AT/pid" --innodb-buffer-pool-size=32M >>log 2>&1 &
    server=$!
    for _ in $(seq 300); do
        if sql -e "select 1" >/dev/null 2>&1; then return; fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 log
    fail "the server does not answer"
}
start
sql -e "create database t; create table t.seen(n int primary key, text varchar(200)) engine=innodb"
for i in $(seq 200); do echo "insert into t.seen values ($i, repeat('x', $i % 200)); select $i;"; done |
    sql >seen
same "$(tail -n 1 seen)" 200 "commits before the kill"
(for i in $(seq 201 100000); do echo "insert into t.seen values ($i, 'more'); select $i;"; done |
    sql --unbuffered >more 2>/dev/null) & writer=$!
for _ in $(seq 300); do
    if [ "$(wc -l <more)" -ge 100 ]; then break; fi
    sleep 0.1
done
kill -9 "$server"
wait "$server" 2>/dev/null || true
wait "$writer" || true
last=$(tail -n 1 more)
[ "$last" -gt 300 ] || fail "the writer came to $last"
start
found=$(sql -e "select count(*) from t.seen where n <= $last")
same "$found" "$last" "rows after the kill"
same "$(sql -e 'check table t.seen' | cut -f 4)" OK "the table"
kill "$server"
wait "$server" || fail "the server's end: $?"
