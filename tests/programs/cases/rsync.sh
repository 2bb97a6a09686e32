# rsync -aHX into a volume, out of it and within it: hard links, extended attributes, sparse files,
# times, deletions. rsync itself must find no difference afterwards, nor may we.
needs rsync getfattr setfattr openssl
mkdir -p tree/a/b/c tree/empty
for i in $(seq 300); do random "$i" $((i * 37 % 6000)) >"tree/a/f$i"; done
random big 3000000 >tree/a/b/big
ln tree/a/f1 tree/a/b/hard; ln tree/a/f1 tree/hard; ln -s ../f2 tree/a/b/link; ln -s nowhere tree/dangling
truncate -s 20M tree/sparse; printf end | dd of=tree/sparse bs=1 seek=10000000 conv=notrunc status=none
# rsync takes times within one second as equal: all are old, so that it has to set them.
find tree -exec touch -h -d '2003-03-03 03:03:03.123456789' {} +
chmod 600 tree/a/f3; chmod 1777 tree/empty; touch -d '2001-02-03 04:05:06.789' tree/a/f4; touch -d 1999-01-01 tree/a/b/c
touch -d 1999-01-02 tree/a tree/a/b tree
srun rsync -aHXS tree/ "$AT/tree/"
# The file system that the scratch lies on may not keep attributes: those are set on the volume.
srun setfattr -n user.note -v 'on the volume' "$AT/tree/a/b/big"
srun setfattr -n user.note -v 'a directory' "$AT/tree/empty"
manifest tree >expected
srun bash -c "manifest $AT/tree" >found
diff expected found >difference || { head difference; fail "in"; }
same "$(srun rsync -nacHi --delete tree/ "$AT/tree/")" "" "rsync -n finds"
same "$(srun stat -c %h "$AT/tree/hard")" 3 "hard links"
[ "$(srun du -k "$AT/tree/sparse" | cut -f1)" -lt 200 ] || fail "the sparse file is not"
# Within the volume: attributes and all.
srun rsync -aHX "$AT/tree/" "$AT/copy/"
same "$(srun rsync -nacHXi --delete "$AT/tree/" "$AT/copy/")" "" "rsync -n of the copy finds"
attributes() { srun bash -c "cd $AT/$1 && find . | LC_ALL=C sort | xargs -d '\n' getfattr -hd"; }
same "$(attributes copy)" "$(attributes tree)" "attributes"
attributes copy | grep -q 'user.note="on the volume"' || fail "no attribute was copied"
# Changes and deletions, with the delta algorithm, and out again.
srun bash -c "cd $AT/tree && rm -r a/b/c a/f5 && echo changed >a/f6 && mv a/f7 a/renamed"
srun touch -d 2004-04-04 "$AT/tree/a/f6"
printf patch | srun dd of="$AT/tree/a/b/big" bs=1 seek=1500000 conv=notrunc status=none
srun touch -d 2004-04-05 "$AT/tree/a/b/big"; srun touch -d 2004-04-06 "$AT/tree/a" "$AT/tree/a/b"
srun rsync -aHX --no-whole-file --inplace --delete "$AT/tree/" "$AT/copy/"
same "$(srun rsync -nacHXi --delete "$AT/tree/" "$AT/copy/")" "" "after the changes rsync -n finds"
srun rsync -aHS --delete --partial --delay-updates "$AT/copy/" out/
srun bash -c "manifest $AT/tree" >expected
manifest out | diff expected - >difference || { head difference; fail "out"; }
