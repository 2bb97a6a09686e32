# Stores of Go without C, from the module proxy, by a host: etcd and VictoriaMetrics. Each is killed in the
# middle of writes and started again: what it had promised is there.
[ -n "${SOLERA_TEST_LONG:-}" ] || skip "only in make test-long: it builds for minutes"
needs go python3
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE=${GOPROGRAMS_CACHE:-$HERE/../../target/door-go}
# built NAME PACKAGE MODULE VERSION: a command of a module that cannot be installed by its name alone, since
# it replaces others.
built() {
    mkdir "$1" && printf 'module programs\n\ngo 1.25\n\nrequire %s %s\n' "$3" "$4" >"$1/go.mod"
    (cd "$1" && go build -o "../$1.bin" "$2") 2>>errors || skip "$1 cannot be had: $(tail -n 1 errors)"
    go version -m "$1.bin" | awk -v module="$3" '$2 == module { print $2, $3 }'
}
built etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3 v3.6.5
metrics=github.com/VictoriaMetrics/VictoriaMetrics
built victoria $metrics/app/victoria-metrics $metrics v1.134.0
# The client is no program of the volume's: it starts the servers.
export SOLERA RUN
for server in etcd victoria; do
    said "$server" timeout -k 5 240 python3 "$HERE/cases/go_servers.py" $server "$SCRATCH/$server.bin" "$AT/$server"
done
