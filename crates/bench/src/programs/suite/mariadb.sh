# MariaDB: sysbench's oltp_write_only and oltp_read_write. The client is outside.
PATH=$PATH:/usr/sbin:/sbin
socket=$WORK/tmp/mariadb rows=$(of 1000 50000 500000)
up() {
    begin mariadbd --no-defaults --user="$(id -un)" --datadir="$KEPT/my" --socket="$socket" --skip-networking \
        --innodb-buffer-pool-size="$(of 32M 256M 1G)" --pid-file="$socket.pid" \
        --innodb-log-file-size="$(of 16M 96M 512M)" --innodb-flush-log-at-trx-commit=1
    answers mariadb --no-defaults --socket="$socket" -e "select 1"
}
client() {
    local test=$1
    shift
    sysbench "$test" --db-driver=mysql --mysql-socket="$socket" --mysql-user="$(id -un)" --tables=1 \
        --table-size="$rows" "$@"
}
prepare() {
    mariadb-install-db --no-defaults --datadir="$KEPT/my" --user="$(id -un)" --skip-test-db >&2
    up
    mariadb --no-defaults --socket="$socket" -e "create database sbtest"
    client oltp_write_only prepare >&2
}
turn() {
    local test threads
    up
    for test in oltp_write_only oltp_read_write; do
        for threads in 1 4; do
            client "$test" --time="$(of 1 5 20)" --threads="$threads" run >"$TMPDIR/sysbench" ||
                { cat "$TMPDIR/sysbench" >&2; return 1; }
            each_second "mariadb $test, clients: $threads" \
                "$(sed -n 's/.*transactions: .*(\([0-9.]*\) per sec.*/\1/p' "$TMPDIR/sysbench")"
        done
    done
}
