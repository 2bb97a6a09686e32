# tar and gzip of a tree of 3,000 files, compared after extraction.
mkdir tree
for d in $(seq 30); do
    mkdir -p tree/d$d/sub
    for f in $(seq 100); do head -c $(((d * 131 + f * 977) % 9000)) /dev/urandom >tree/d$d/$([ $((f % 3)) = 0 ] && echo sub/)f$f; done
done
ln -s d1/f1 tree/link; ln tree/d1/f1 tree/hard; touch -d '1999-12-31 23:59:59' tree/d2/f2; chmod 4755 tree/d3/f4
srun cp -a tree "$AT/tree"
srun tar -C "$AT" -czf "$AT/t.tar.gz" tree
srun gzip -t "$AT/t.tar.gz"
mkdir out; srun tar -C out -xzf "$AT/t.tar.gz"
diff -r tree out/tree || fail "tree out"
tar --format=posix -cf plain.tar tree
srun mkdir "$AT/in"; srun tar -C "$AT/in" -xf plain.tar
srun diff -r tree "$AT/in/tree" || fail "tree in"
same "$(srun bash -c "cd $AT/in/tree && find . -printf '%p %y %m %n %T@\n' | sort | md5sum")" "$(cd tree && find . -printf '%p %y %m %n %T@\n' | sort | md5sum)" "attributes"
srun bash -c "tar -C $AT -cf - in | tar -C $AT/tree -xf -" || fail "pipe"
srun diff -r "$AT/in" "$AT/tree/in" || fail "tar | tar"
same "$(srun find "$AT/in/tree" -type f | wc -l)" 3001 "files"
srun gunzip "$AT/t.tar.gz"; srun gzip -9 "$AT/t.tar"; srun zcat "$AT/t.tar.gz" | tar -tf - | wc -l | grep -qx 3063 || fail "listing"
