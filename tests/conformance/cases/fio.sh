# fio's verify jobs: what was written, with checksums and headers, must be read back; a check is a job.
command -v fio >/dev/null || skip "there is no fio"
if [ -n "$LONG" ]; then scale=16; else scale=1; fi
common=(--directory="$AT" --group_reporting --minimal --verify_fatal=1 --verify_dump=0 --randrepeat=1)
# job NAME OPTIONS...
job() {
    local name=$1 outcome=failed
    shift
    if face timeout 300 fio --name="$name" "${common[@]}" "$@" >"$name.log" 2>&1 &&
        cut -d';' -f5 "$name.log" | grep -qx 0; then outcome=ok; fi
    [ $outcome = ok ] || tail -n 20 "$name.log"
    result "$name" $outcome
    face find "$AT" -type f -delete
}
for engine in psync sync vsync pvsync pvsync2 mmap posixaio libaio io_uring; do
    job "$engine-random" --ioengine=$engine --rw=randwrite --bs=4k --size=$((4 * scale))m --numjobs=2 \
        --verify=crc32c --iodepth=4
    job "$engine-mixed" --ioengine=$engine --rw=randrw --bsrange=512-64k --blockalign=512 --iodepth=4 \
        --size=$((4 * scale))m --overwrite=1 --verify=sha256 --verify_backlog=64
    job "$engine-threads" --ioengine=$engine --rw=write --bs=64k --size=$((4 * scale))m --numjobs=3 \
        --thread --fsync=16 --verify=md5
    job "$engine-pattern" --ioengine=$engine --rw=randwrite --bs=8k --size=$((4 * scale))m \
        --verify=pattern --verify_pattern=0xdeadbeef --verify_interval=512 --fdatasync=4
done
job direct --ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=4m --overwrite=1 --verify=xxhash
job append --ioengine=psync --file_append=1 --rw=write --bs=1000 --size=3m --verify=crc32c
job fallocate --ioengine=psync --fallocate=native --rw=randwrite --bs=16k --size=16m --verify=crc64
