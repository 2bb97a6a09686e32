# redis with its own jemalloc: it is the first to attach a volume that a kill left as it was.
needs redis-check-rdb redis-cli
mkdir bin
ln -s "$(command -v redis-check-rdb)" bin/redis-server
srun mkdir "$AT/r"
for round in 1 2 3; do
    begin "$PWD/bin/redis-server" --dir "$AT/r" --port 0 --unixsocket "$PWD/s" --appendonly yes \
        --appendfsync always --save "" >log 2>&1 & pid=$!
    for ((try = 0; try < 100; try++)); do
        sleep 0.1
        timeout 30 redis-cli -s s ping 2>/dev/null | grep -q PONG && break
    done
    echo "round $round: $(timeout 30 redis-cli -s s incr n 2>&1)"
    echo "$(timeout 30 redis-cli -s s bgsave 2>&1) $(timeout 30 redis-cli -s s set k$round v 2>&1)"
    for ((try = 0; try < 50; try++)); do
        timeout 30 redis-cli -s s info persistence 2>/dev/null | grep -q bgsave_in_progress:0 && break
        sleep 0.1
    done
    timeout 30 redis-cli -s s info persistence 2>&1 | grep last_bgsave_status
    kill -9 $pid
    wait $pid 2>/dev/null
done
srun redis-check-rdb "$AT/r/dump.rdb" | tail -n 1 | cut -d ' ' -f 3-
