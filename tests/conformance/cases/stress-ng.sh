# stress-ng's file-system class, each stressor with its verification; a check is a stressor.
command -v stress-ng >/dev/null || skip "there is no stress-ng"
# Those of the class that work on files; the others mount, or ask the kernel's own devices.
stressors="access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup eventfd
    fallocate fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags
    inotify io iomix lease link locka lockf lockofd mknod open procfs rename symlink sync-file touch
    utime verity xattr"
# In the short run half of them, chosen by the commit.
# shellcheck disable=SC2086 # They are words.
stressors=$("$TESTS/../scripts/rotation.py" 2 $stressors)
if [ -n "$LONG" ]; then seconds=10 at_once=2; else seconds=1 at_once=4; fi
cat >stressor <<'SH'
# stressor NAME SECONDS: "NAME OUTCOME"
mkdir "$AT/$1"
if timeout -k 2 "$((60 + $2))" stress-ng --"$1" 2 -t "$2" --verify --temp-path "$AT/$1" >"$1.log" 2>&1; then
    if grep -q 'skipping stressor' "$1.log"; then echo "$1 skipped"; else echo "$1 ok"; fi
else
    echo "$1 failed"
fi
SH
printf '%s\n' $stressors | face xargs -P "$at_once" -n 1 -I '{}' bash stressor '{}' "$seconds" >>"$RESULTS"
cat ./*.log
