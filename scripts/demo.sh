#!/usr/bin/env bash
# Runs the unmodified sqlite3 program of the system on a volume, on tmpfs and on the disk's file
# system: the same steps, the same input. Checks that all three give the same results, and prints how
# long each took. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

ROWS=${DEMO_ROWS:-250000}
UPDATES=${DEMO_UPDATES:-5000}
VOLUME_MIB=1024
# The volume, the input, and the peer's database together.
ROOM_MIB=$((VOLUME_MIB + 256))
SOLERA=target/release/solera
AT=/solera-demo
steps=(import index query update check)

fail() {
    printf 'demo: %s\n' "$@" >&2
    exit 1
}

[ -x "$SOLERA" ] || fail "$SOLERA is missing" "build it: make build"
command -v sqlite3 > /dev/null || fail "sqlite3 is missing" "install it: make setup"
[ -d /dev/shm ] && [ -w /dev/shm ] || fail "/dev/shm is missing or not writable"
room=$(df --output=avail --block-size=1M /dev/shm | tail -n 1)
[ "$room" -ge $ROOM_MIB ] ||
    fail "/dev/shm has room for $room MiB, $ROOM_MIB MiB are needed" "remove something there"

memory=$(mktemp -d /dev/shm/solera-demo.XXXXXX)
mkdir -p target
disk=$(mktemp -d target/demo.XXXXXX)
trap 'rm -rf "$memory" "$disk"' EXIT
volume=$memory/v.pm
disk_name=$(stat --file-system --format=%T "$disk")
[ "$disk_name" != tmpfs ] || disk_name="tmpfs (the build directory is no disk)"

# ---- the input: the same bytes on every machine ------------------------------------------------

echo "making the input: $ROWS orders, $UPDATES updates"
awk -v rows="$ROWS" 'BEGIN {
    split("Lisbon Oslo Quito Kyoto Accra Turin Perth Lima Riga Cairo", city, " ")
    split("sherry port madeira marsala vermouth mead cider perry", drink, " ")
    seed = 42
    for (i = 1; i <= rows; i++) {
        seed = (seed * 16807) % 2147483647; a = seed
        seed = (seed * 16807) % 2147483647; b = seed
        printf "%d,2026-%02d-%02d,customer%05d,%s,%s,%d,%d.%02d\n", i, a % 12 + 1, b % 28 + 1,
            a % 20011, city[b % 10 + 1], drink[a % 8 + 1], b % 24 + 1, a % 90 + 5, b % 100
    }
}' > "$memory/orders.csv"
awk -v rows="$ROWS" -v updates="$UPDATES" 'BEGIN {
    print "PRAGMA synchronous=FULL;"
    seed = 7
    for (i = 1; i <= updates; i++) {
        seed = (seed * 16807) % 2147483647
        printf "UPDATE orders SET amount = amount + 1 WHERE id = %d;\n", seed % rows + 1
    }
}' > "$memory/update.sql"
cat > "$memory/import.sql" << SQL
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE orders(id INTEGER PRIMARY KEY, day TEXT, customer TEXT, city TEXT, drink TEXT,
                    amount INTEGER, price REAL);
.mode csv
.import $memory/orders.csv orders
SQL
cat > "$memory/index.sql" << SQL
PRAGMA synchronous=FULL;
CREATE INDEX by_customer ON orders(customer, day);
CREATE INDEX by_city ON orders(city, drink);
SQL
cat > "$memory/query.sql" << SQL
SELECT count(*), sum(amount), round(sum(amount * price), 2) FROM orders;
SELECT city, drink, count(*), sum(amount) FROM orders GROUP BY city, drink ORDER BY city, drink;
SELECT customer, count(*) AS n, sum(amount) FROM orders GROUP BY customer ORDER BY n DESC, customer
    LIMIT 20;
SELECT substr(day, 1, 7) AS month, round(avg(price), 4) FROM orders WHERE city = 'Riga'
    GROUP BY month ORDER BY month;
SELECT count(*) FROM orders a JOIN orders b ON a.customer = b.customer AND a.day = b.day
    WHERE a.city = 'Oslo' AND b.drink = 'port';
SQL
{ echo "PRAGMA integrity_check;"; cat "$memory/query.sql"; } > "$memory/check.sql"

# ---- the runs -------------------------------------------------------------------------------------

declare -A took

# run PLACE DIR COMMAND...: all steps on the database DIR/demo.db, with sqlite3 started by COMMAND.
run() {
    local place=$1 dir=$2 step begun
    shift 2
    for step in "${steps[@]}"; do
        printf '%-8s %s ...' "$place" "$step"
        begun=${EPOCHREALTIME/./}
        "$@" sqlite3 -batch "$dir/demo.db" < "$memory/$step.sql" > "$memory/$place.$step" ||
            fail "sqlite3 failed on $place in step $step"
        took[$place.$step]=$(((${EPOCHREALTIME/./} - begun) / 1000))
        printf ' %d ms\n' "${took[$place.$step]}"
    done
    [ "$(head -n 1 "$memory/$place.check")" = ok ] ||
        fail "PRAGMA integrity_check failed on $place:" "$(head -n 5 "$memory/$place.check")"
}

# The volume owns its memory before it is used, as persistent memory does.
fallocate -l ${VOLUME_MIB}M "$volume"
"$SOLERA" format --label demo "$volume" > /dev/null
run volume $AT "$SOLERA" run --volume "$volume" --at $AT --mode strict --
run tmpfs "$memory" env
run disk "$disk" env

for step in query check; do
    for place in tmpfs disk; do
        cmp -s "$memory/volume.$step" "$memory/$place.$step" ||
            fail "the results of $step on the volume and on $place differ"
    done
done
"$SOLERA" fsck "$volume" > /dev/null || fail "the volume has faults: see solera fsck"

# ---- the table ------------------------------------------------------------------------------------

class=$("$SOLERA" info --json "$volume" | sed -n 's/.*"class": "\(.*\)".*/\1/p')
ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { if (a > 0) printf "%.2f", b / a; else print "-" }'
}
echo
echo "The same answers on all three; integrity_check: ok. Milliseconds, and ratios (above 1: the"
echo "volume is faster):"
echo
printf '%-8s %8s %8s %8s   %s\n' step volume tmpfs disk "tmpfs/volume  disk/volume"
sum_volume=0 sum_tmpfs=0 sum_disk=0
for step in "${steps[@]}"; do
    v=${took[volume.$step]} t=${took[tmpfs.$step]} d=${took[disk.$step]}
    printf '%-8s %8d %8d %8d   %12s %12s\n' "$step" "$v" "$t" "$d" \
        "$(ratio "$v" "$t")" "$(ratio "$v" "$d")"
    sum_volume=$((sum_volume + v)) sum_tmpfs=$((sum_tmpfs + t)) sum_disk=$((sum_disk + d))
done
printf '%-8s %8d %8d %8d   %12s %12s\n' all $sum_volume $sum_tmpfs $sum_disk \
    "$(ratio $sum_volume $sum_tmpfs)" "$(ratio $sum_volume $sum_disk)"
cat << EOT

What a committed transaction survives:
  volume   the death of any process; and a power cut, if its memory does (here: class $class)
  tmpfs    the death of any process; nothing else, and it has no way to be made durable
  disk     the death of any process, and a power cut ($disk_name)

Next:
  $SOLERA format --size 4G /dev/shm/v.pm
  $SOLERA run --volume /dev/shm/v.pm --at /pm -- bash      (everything it starts sees /pm)
  $SOLERA info /dev/shm/v.pm
EOT
