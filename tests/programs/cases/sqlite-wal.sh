# sqlite3 in WAL mode with full durability: inserts, a transaction rolled back, a checkpoint, integrity.
srun sqlite3 "$AT/t.db" >out 2>&1 <<'SQL'
pragma journal_mode=wal;
pragma synchronous=full;
create table t(id integer primary key, a text, b integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, 'row ' || i, (i * 7919) % 10007 from n;
create index tb on t(b);
begin; delete from t where id % 2 = 0; rollback;
update t set a = 'changed' where id = 777;
pragma wal_checkpoint(truncate);
SQL
for i in $(seq 50); do echo "insert into t(a, b) values('single $i', $i);"; done | srun sqlite3 "$AT/t.db"
same "$(srun sqlite3 "$AT/t.db" 'pragma integrity_check')" ok "integrity"
same "$(srun sqlite3 "$AT/t.db" 'select count(*), sum(b) from t')" \
     "$(sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) select 20050, sum((i * 7919) % 10007) + 1275 from n')" "rows"
same "$(srun sqlite3 "$AT/t.db" 'select a from t where id = 777')" changed "update"
same "$(srun sqlite3 "$AT/t.db" 'pragma journal_mode')" wal "journal mode"
# The file itself, copied out by a program, is a database for a sqlite3 that knows nothing of us.
srun cat "$AT/t.db" >plain.db
same "$(sqlite3 plain.db 'pragma integrity_check')" ok "integrity of the copy"
