# GNU coreutils, each result compared with the same command on the disk.
mkdir -p plain/tree/deep/er; cd plain
for i in $(seq 200); do head -c $((i * 97 % 5000)) /dev/urandom >tree/f$i; done
head -c 3000000 /dev/urandom >tree/deep/big
# An overlay loses the other name of a file with the first (docs/mounts.md).
[ -n "$OVERLAY" ] || ln tree/f2 tree/deep/er/hard
ln -s ../f1 tree/deep/link; mkfifo tree/fifo; chmod 640 tree/f3; touch -d '2001-02-03 04:05:06.789' tree/f4
seq 200000 | awk '{ print ($1 * 7919) % 1000003 }' >numbers
srun cp -a tree "$AT/tree"
summary='cd "$1" && find . -printf "%p %y %m %s %l %n %T@\n" | sort; find . -type f | sort | xargs md5sum'
bash -c "${summary//%s/%s}" x tree | awk '{ if ($2 == "d") $4 = "-"; print }' >expected
srun bash -c "$summary" x "$AT/tree" | awk '{ if ($2 == "d") $4 = "-"; print }' >found
diff expected found >difference || { head difference; fail "cp -a"; }
srun cp -a "$AT/tree" back
bash -c "$summary" x back | awk '{ if ($2 == "d") $4 = "-"; print }' | diff expected - >difference || { head difference; fail "cp -a back"; }
srun mv "$AT/tree" "$AT/moved"; srun mv numbers "$AT/numbers"; srun mv "$AT/moved/f9" "$AT/f9"; srun mv "$AT/f9" "$AT/moved/f9"
same "$(srun ls -lR "$AT/moved" | grep -c '^[-dlp]')" "$(ls -lR tree | grep -c '^[-dlp]')" "ls -lR"
same "$(srun du -s --apparent-size -b "$AT/moved/deep/big" | cut -f1)" 3000000 "du"
srun ln "$AT/numbers" "$AT/again"; same "$(srun stat -c %h "$AT/again")" 2 "ln"
srun ln -s numbers "$AT/sym"; same "$(srun readlink "$AT/sym")" numbers "ln -s"; same "$(srun realpath "$AT/sym")" "$AT/numbers" "realpath"
srun sort -n -S 64K -T "$AT" -o "$AT/sorted" "$AT/numbers"
same "$(srun md5sum "$AT/sorted" | cut -d' ' -f1)" "$(srun cat "$AT/numbers" | sort -n | md5sum | cut -d' ' -f1)" "sort with temporary files"
srun dd if="$AT/moved/deep/big" of="$AT/dd" bs=4096 skip=3 seek=5 count=100 conv=notrunc status=none
same "$(srun dd if="$AT/dd" bs=4096 skip=5 status=none | md5sum)" "$(dd if=tree/deep/big bs=4096 skip=3 count=100 status=none | md5sum)" "dd"
srun truncate -s 1G "$AT/sparse"; same "$(srun stat -c '%s %b' "$AT/sparse")" "1073741824 0" "truncate"
srun truncate -s 5 "$AT/dd"; same "$(srun stat -c %s "$AT/dd")" 5 "truncate down"
srun split -n 7 -d "$AT/moved/deep/big" "$AT/part."
same "$(srun bash -c "cat $AT/part.* | md5sum")" "$(md5sum <tree/deep/big)" "split"
srun bash -c "cd $AT && md5sum moved/f[0-9]* >sums && md5sum --quiet -c sums" || fail "md5sum -c"
same "$(srun wc -l "$AT/numbers" | cut -d' ' -f1)" 200000 "wc"
same "$(srun tail -n 1 "$AT/sorted")" "$(srun cat "$AT/numbers" | sort -n | tail -n 1)" "tail"
srun cmp "$AT/again" "$AT/numbers"; srun install -m 600 "$AT/numbers" "$AT/inst"; same "$(srun stat -c %a "$AT/inst")" 600 "install"
srun mkdir -p "$AT/x/y/z"; srun bash -c "cd $AT && rmdir -p x/y/z"; srun touch "$AT/t"; srun test -e "$AT/t"; srun rm -rf "$AT/moved"
srun test -e "$AT/moved" && fail "rm -rf"
same "$(srun df --output=fstype "$AT" | wc -l)" 2 "df"
