# Two processes insert into one database at once, in both journal modes; none of the rows may be lost.
for journal in wal delete; do
    srun sqlite3 "$AT/$journal.db" "pragma journal_mode=$journal; create table t(who text, i integer)" >/dev/null
    writer() {
        { echo ".timeout 20000"; for i in $(seq 300); do echo "insert into t values('$1', $i);"; done; } |
            srun sqlite3 "$AT/$journal.db"
    }
    writer one & first=$!
    writer two & second=$!
    wait $first || fail "the first writer ($journal)"
    wait $second || fail "the second writer ($journal)"
    same "$(srun sqlite3 "$AT/$journal.db" 'select who, count(*), sum(i) from t group by who order by who')" \
        "one|300|45150
two|300|45150" "rows of both ($journal)"
    same "$(srun sqlite3 "$AT/$journal.db" 'pragma integrity_check')" ok "integrity ($journal)"
done
