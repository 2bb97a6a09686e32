#!/usr/bin/env bash
# Runs the unmodified sqlite3 program of the system on a database of twice the size that its node
# has, on a domain of three nodes on this machine: pages move between them as they are wanted. A
# holder is stopped and continued meanwhile. Checks results and sums against tmpfs. Leaves nothing
# behind.
set -euo pipefail
cd "$(dirname "$0")/.."

CAPACITY_MIB=${DEMO_CAPACITY_MIB:-48}
# Rows of 900 bytes and an index: 96 MiB.
ROWS=${DEMO_ROWS:-100000}
SOLERA=$PWD/target/release/solera

fail() {
    printf 'demo-ddmap: %s\n' "$@" >&2
    exit 1
}

[ -x "$SOLERA" ] || fail "$SOLERA is missing" "build it: make build"
command -v sqlite3 > /dev/null || fail "sqlite3 is missing" "install it: make setup"
room=$(df --output=avail --block-size=1M /dev/shm | tail -n 1)
[ "$room" -ge $((CAPACITY_MIB * 6)) ] || fail "/dev/shm has room for $room MiB only"

memory=$(mktemp -d /dev/shm/solera-demo-ddmap.XXXXXX)
nodes=()
trap 'kill -CONT "${nodes[@]}" 2> /dev/null; kill "${nodes[@]}" 2> /dev/null; wait; rm -rf "$memory"' EXIT
export XDG_RUNTIME_DIR=$memory/run
mkdir "$XDG_RUNTIME_DIR"

# Starts a node; the first line that it prints has its address.
node() {
    local number=$1
    shift
    "$SOLERA" node --domain demo --listen 127.0.0.1:0 --store "$memory/node$number" \
        --capacity "${CAPACITY_MIB}M" "$@" > "$memory/node$number.out" &
    nodes+=($!)
    for _ in $(seq 100); do
        ! grep -q ' at ' "$memory/node$number.out" || return 0
        sleep 0.1
    done
    fail "node $number does not come up"
}

node 1
first=$(grep -o '127\.0\.0\.1:[0-9]*' "$memory/node1.out" | head -n 1)
node 2 --join "$first"
node 3 --join "$first"
"$SOLERA" format --ddmap demo/v --size $((CAPACITY_MIB * 5 / 2))M
echo "three nodes of $CAPACITY_MIB MiB on loopback"

cat > "$memory/fill.sql" << SQL
PRAGMA journal_mode = DELETE;
PRAGMA cache_size = -2000;
CREATE TABLE orders (id INTEGER PRIMARY KEY, client INTEGER, note BLOB);
WITH RECURSIVE row(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM row WHERE id < $ROWS)
    INSERT INTO orders SELECT id, id * 2654435761 % 1000, zeroblob(850) || printf('%050d', id)
    FROM row;
CREATE INDEX by_client ON orders (client);
SQL
cat > "$memory/use.sql" << SQL
PRAGMA cache_size = -2000;
UPDATE orders SET note = note || 'x' WHERE id * 40503 % 65536 < 500;
SELECT client, count(*), sum(length(note)) FROM orders WHERE client % 100 = 7 GROUP BY client;
SELECT sum(id * length(note)), max(note) FROM orders WHERE client < 300;
PRAGMA integrity_check;
SQL

on_domain() { "$SOLERA" run --ddmap demo/v --at /dm -- "$@"; }
# A holder of its pages is stopped for half a second, again and again.
stop_and_go() {
    while sleep 0.5; do
        kill -STOP "${nodes[1]}"
        sleep 0.5
        kill -CONT "${nodes[1]}"
    done
}

for step in fill use; do
    begun=$(date +%s%N)
    sqlite3 "$memory/plain.db" < "$memory/$step.sql" > "$memory/$step.plain"
    middle=$(date +%s%N)
    stop_and_go &
    stopper=$!
    on_domain sqlite3 /dm/my.db < "$memory/$step.sql" > "$memory/$step.domain"
    kill "$stopper"
    wait "$stopper" 2> /dev/null || true
    kill -CONT "${nodes[1]}"
    cmp "$memory/$step.plain" "$memory/$step.domain" || fail "sqlite3 answers otherwise: $step"
    printf '%-5s tmpfs %6d ms, three nodes %6d ms: the same results\n' $step \
        $(((middle - begun) / 1000000)) $((($(date +%s%N) - middle) / 1000000))
done
plain=$(sha256sum < "$memory/plain.db")
domain=$(on_domain sha256sum /dm/my.db | sed 's|/dm/my.db|-|')
[ "$plain" = "$domain" ] || fail "the database is another one: $domain, not $plain"
size=$(stat --format=%s "$memory/plain.db")
[ "$size" -gt $((CAPACITY_MIB * 2 << 20)) ] || fail "the database has only $size bytes"
echo "the database: $((size >> 20)) MiB, the same sum as on tmpfs"
"$SOLERA" domain status demo
"$SOLERA" fsck demo/v
