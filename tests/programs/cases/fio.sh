# fio writes at random and verifies checksums of all it wrote, by calls and by mappings, as processes
# and as threads, with overwrites of the same blocks, and once more in a second process.
needs fio
common=(--directory="$AT" --group_reporting --minimal --verify=crc32c --verify_fatal=1 --verify_dump=0
    --randrepeat=1 --fallocate=none)
work() {
    local name=$1
    shift
    srun fio --name="$name" "${common[@]}" "$@" >out 2>&1 || { tail -n 20 out; fail "$name"; }
    cut -d';' -f5 out | grep -qx 0 || { cat out; fail "$name: fio's error field"; }
}
for engine in psync sync pvsync2 mmap; do
    work "$engine" --ioengine="$engine" --rw=randwrite --bs=4k --size=8m --numjobs=2
    work "$engine-odd" --ioengine="$engine" --rw=randrw --bsrange=512-64k --blockalign=512 \
        --size=6m --overwrite=1 --verify_backlog=64
    work "$engine-threads" --ioengine="$engine" --rw=write --bs=64k --size=8m --numjobs=3 --thread --fsync=16
done
# Blocks that are written again and again, with syncs, and a verification by another process.
work again --ioengine=psync --rw=randwrite --bs=4k --size=4m --io_size=16m --fdatasync=1 --do_verify=0 --randseed=7
work again --ioengine=psync --rw=randread --bs=4k --size=4m --io_size=16m --verify_only --randseed=7
work direct --ioengine=psync --rw=randwrite --bs=4k --size=4m --direct=1 --overwrite=1
work append --ioengine=psync --rw=write --bs=1000 --size=3m
# One shared file, two processes in different halves of it.
srun truncate -s 16m "$AT/shared"
srun fio "${common[@]}" --filename="$AT/shared" --ioengine=psync --rw=randwrite --bs=4k --size=8m \
    --name=low --offset=0 --name=high --offset=8m >out 2>&1 || { cat out; fail "halves of one file"; }
# The kernel's asynchronous calls do not reach the volume: an error at once, and nothing hangs.
for engine in libaio io_uring; do
    code=0
    # shellcheck disable=SC2086 # Words.
    timeout 60 "$SOLERA" run $RUN -- fio --name="$engine" "${common[@]}" \
        --ioengine="$engine" --iodepth=4 --rw=write --bs=4k --size=1m >out 2>&1 || code=$?
    [ "$code" != 0 ] && [ "$code" != 124 ] || { cat out; fail "fio with $engine: exit $code"; }
    grep -qiE "not implemented|not support|engine $engine not loadable|failed to load" out ||
        { cat out; fail "fio with $engine does not say why"; }
done
