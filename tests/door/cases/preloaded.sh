# eatmydata, faketime and fakeroot: around `solera run` and below it.
cat >checks.sh <<'SH'
cd "$1" || exit
echo text >file; sync file; cp file copy; chown 1:2 copy; chmod 640 copy
stat -c '%n %s %a %u:%g' file copy
mknod device c 1 3; stat -c '%F' device; rm device
dd if=file of=synced conv=fsync 2>&1 | tail -n 1 | cut -d, -f 1
date +%Y; touch now; [ now -ot file ] && echo "older"
mkdir tree && tar cf - file copy | tar xf - -C tree && ls tree && find . | sort
rm -r file copy synced now tree
SH
if command -v eatmydata >/dev/null; then
    said "eatmydata, below" srun eatmydata sh checks.sh "$AT"
    library=$(library libeatmydata.so)
    said "eatmydata, in front" in_front "$library" sh checks.sh "$AT"
    said "eatmydata, behind" behind "$library" sh checks.sh "$AT"
else
    echo "skipped: there is no eatmydata" >&2
fi
if command -v faketime >/dev/null; then
    said "faketime, below" srun faketime '2020-02-02 02:02:02' sh checks.sh "$AT"
    said "faketime, around" faketime '2020-02-02 02:02:02' bash -c 'srun sh checks.sh "$AT"'
else
    echo "skipped: there is no faketime" >&2
fi
if command -v fakeroot >/dev/null; then
    said "fakeroot, below" srun fakeroot sh checks.sh "$AT"
    said "fakeroot, around" fakeroot bash -c 'srun sh checks.sh "$AT"'
else
    echo "skipped: there is no fakeroot" >&2
fi
