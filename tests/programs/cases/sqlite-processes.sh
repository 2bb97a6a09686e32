# Four processes insert into one database at once and move amounts between accounts, while a fifth
# reads; in both journal modes. No row may be lost, no reader may see half a transaction.
needs sqlite3
for journal in wal delete; do
    db=$AT/$journal.db
    srun sqlite3 "$db" "pragma journal_mode=$journal; create table t(who text, i integer);
        create table account(id integer primary key, amount integer);
        insert into account values(1, 1000), (2, 1000), (3, 1000), (4, 1000)" >/dev/null
    writer() {
        { echo ".bail on"; echo ".timeout 60000"
          for i in $(seq 200); do
              echo "begin immediate; insert into t values('$1', $i);"
              echo "update account set amount = amount - $i where id = $1;"
              echo "update account set amount = amount + $i where id = 1 + ($1 + $i) % 4; commit;"
          done; } | srun sqlite3 "$db"
    }
    reader() {
        { echo ".bail on"; echo ".timeout 60000"
          for i in $(seq 200); do echo "select sum(amount) from account;"; done; } | srun sqlite3 "$db" >sums
    }
    pids=()
    for who in 1 2 3 4; do writer $who & pids+=($!); done
    reader & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || fail "a process of the five ($journal)"; done
    same "$(srun sqlite3 "$db" 'select who, count(*), sum(i) from t group by who order by who' | tr '\n' ' ')" \
        "1|200|20100 2|200|20100 3|200|20100 4|200|20100 " "rows of all four ($journal)"
    same "$(sort sums | uniq -c | tr -s ' ')" " 200 4000" "what the reader saw ($journal)"
    same "$(srun sqlite3 "$db" 'select sum(amount) from account')" 4000 "the amounts ($journal)"
    same "$(srun sqlite3 "$db" 'pragma integrity_check')" ok "integrity ($journal)"
done
