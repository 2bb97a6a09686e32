# redis-server with an append-only file: killed -9 in mid-write and restarted, no acknowledged write
# may be missing; with appendfsync everysec, at most those of the last two seconds, as it promises.
# Then a rewrite of the file, and a snapshot through an orderly end.
needs redis-check-rdb
# The server is the same program under another name: Debian's redis-tools has it, without a service.
mkdir bin; ln -s "$(command -v redis-check-rdb)" bin/redis-server; PATH=$SCRATCH/bin:$PATH
python3 "$HERE/cases/redis_checks.py" "$AT" "$SCRATCH" || fail "the checks"
srun redis-check-aof "$AT/always/appendonlydir/appendonly.aof.manifest" >check 2>&1 || { cat check; fail "redis-check-aof"; }
srun redis-check-rdb "$AT/snapshot/dump.rdb" >check 2>&1 || { cat check; fail "redis-check-rdb"; }
