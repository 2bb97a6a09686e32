# sqlite3 with a rollback journal: create, synced write, unlink of the journal a transaction.
srun sqlite3 "$AT/d.db" 'pragma journal_mode=delete; create table t(x integer, y blob)' >/dev/null
for i in $(seq 200); do echo "insert into t values($i, randomblob(3000));"; done | srun sqlite3 "$AT/d.db"
printf 'begin;\nupdate t set x = x + 1000;\ndelete from t where x < 1100;\nrollback;\n' | srun sqlite3 "$AT/d.db"
same "$(srun sqlite3 "$AT/d.db" 'select count(*), sum(x), sum(length(y)) from t')" "200|20100|600000" "rows"
srun sqlite3 "$AT/d.db" 'delete from t where x % 3 = 0; vacuum'
same "$(srun sqlite3 "$AT/d.db" 'pragma integrity_check')" ok "integrity"
same "$(srun ls "$AT")" d.db "no journal is left"
