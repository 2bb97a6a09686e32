# GNU tar (attributes, sparse files), cpio, zip and unzip: round trips of a tree on the volume.
needs cpio zip unzip setfattr getfattr openssl
mkdir -p tree/d/e
for i in $(seq 400); do random "$i" $((i * 53 % 5000)) >"tree/d/f$i"; done
random big 2000000 >tree/d/e/big
ln tree/d/f1 tree/hard; ln -s d/f2 tree/link; chmod 750 tree/d/e; touch -d '2002-02-02 02:02:02' tree/d/f9
truncate -s 8M tree/sparse; printf end | dd of=tree/sparse bs=1 seek=5000000 conv=notrunc status=none
manifest tree >expected
seconds() { sed -E 's/(@?[0-9]{9,10})\.[0-9]+/\1/'; }
srun cp -a tree "$AT/tree"; srun setfattr -n user.k -v v "$AT/tree/d/f3"
# tar, with a listed-incremental backup.
srun tar --format=posix --xattrs --sparse -C "$AT" -cf "$AT/t.tar" -g "$AT/snapshot" tree
srun bash -c "cd $AT/tree && echo new >d/new && rm d/f8"
srun tar --format=posix -C "$AT" -cf "$AT/t2.tar" -g "$AT/snapshot" tree
srun bash -c "mkdir $AT/x && cd $AT/x && tar --xattrs -xf ../t.tar"
srun bash -c "manifest $AT/x/tree" | diff expected - >difference || { head difference; fail "tar"; }
same "$(srun getfattr --absolute-names --only-values -n user.k "$AT/x/tree/d/f3")" v "tar --xattrs"
[ "$(srun du -k "$AT/x/tree/sparse" | cut -f1)" -lt 100 ] || fail "tar --sparse"
srun bash -c "cd $AT/x && tar --listed-incremental=/dev/null -xf ../t2.tar"
srun diff -r "$AT/tree" "$AT/x/tree" || fail "the incremental backup"
srun tar -C "$AT/x" -df "$AT/t2.tar" || fail "tar --compare"
srun tar -C "$AT" -cf "$AT/t3.tar" tree; srun tar -C "$AT" -rf "$AT/t3.tar" snapshot
srun tar -tf "$AT/t3.tar" | grep -qx snapshot || fail "tar -r"
srun tar --delete -f "$AT/t3.tar" snapshot; srun tar -tf "$AT/t3.tar" >list
grep -qx snapshot list && fail "tar --delete"; same "$(wc -l <list)" 407 "names in the archive"
# cpio in its copy-out, copy-in and pass-through modes. Times are whole seconds.
srun bash -c "cd $AT/x/tree && rm d/new"; srun cp -p tree/d/f8 "$AT/x/tree/d/f8"
srun bash -c "cd $AT/x/tree && find . -depth -print0 | cpio --quiet -0oH newc >$AT/t.cpio"
srun bash -c "mkdir $AT/c && cd $AT/c && cpio --quiet -idm <$AT/t.cpio"
# It sets no times of links, and those of directories before it fills them.
files() { seconds | grep -v ' [dl] [0-7]* '; }
srun bash -c "manifest $AT/c" | files | diff <(files <expected) - >difference || { head difference; fail "cpio"; }
srun bash -c "mkdir $AT/p && cd $AT/c && find . -depth | cpio --quiet -pdml $AT/p"
same "$(srun stat -c %h "$AT/p/d/f3")" 2 "cpio -l"
srun diff -r "$AT/c" "$AT/p" || fail "cpio -p"
# zip and unzip: symbolic links as such, update, deletion, test.
srun bash -c "cd $AT/c && zip -qry $AT/t.zip . && echo later >later && zip -qu $AT/t.zip later && zip -qd $AT/t.zip d/f10 && rm d/f10"
srun unzip -tq "$AT/t.zip" || fail "unzip -t"
srun bash -c "mkdir $AT/z && cd $AT/z && unzip -q $AT/t.zip"
srun diff -r --no-dereference "$AT/c" "$AT/z" || fail "zip"
same "$(srun readlink "$AT/z/link")" d/f2 "the link"
