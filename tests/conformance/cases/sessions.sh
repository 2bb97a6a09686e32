# Whole sessions of everyday work must leave the same tree as on tmpfs: a shell session of 200 commands,
# make -j4 of a C project, git, tar | tar, find -exec, xargs -P4. A check is a session: rsync, comparing
# all contents and attributes, finds nothing to do.
for program in rsync git make cc tar; do command -v $program >/dev/null || skip "there is no $program"; done
if [ -n "$LONG" ]; then files=10000; else files=2000; fi
export files GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat TZ=UTC LC_ALL=C
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'
face mkdir "$AT/t"

# A session's times are of when it ran; afterwards all are the same, set by find and touch themselves.
cat >settle <<'SH'
find . -depth -exec touch -h -d @1600000000 {} +
SH

cat >shell.session <<'SH'
bash "$2/commands"
SH
# 200 commands, one a line, of fourteen kinds.
for i in $(seq 15); do
    cat <<LINES
mkdir -p d$i/e/f && cd d$i && pwd | sed 's|.*/||' > where && cd ..
for n in 1 2 3; do echo "\$n of $i" >> d$i/list; done
seq $((i * 100)) | tee d$i/numbers | tail -n 5 > d$i/last
cat <<< "here $i" | tr a-z A-Z > d$i/upper; chmod $((400 + i % 8)) d$i/upper
ln -sf ../d$i/numbers d$i/e/link; ln -f d$i/list d$i/e/f/hard
cp -a d$i d$i.copy; rm -r d$i.copy/e/f; mv d$i.copy c$i
sort -rn d$i/numbers | head -n $i > d$i/sorted; split -l 30 d$i/numbers d$i/part-
grep -c 1 d$i/numbers > d$i/count || true; awk '{ s += \$1 } END { print s }' d$i/numbers > d$i/sum
sed -i 's/1/one/' d$i/last; truncate -s $((i * 1000)) d$i/hole; dd if=/dev/zero of=d$i/hole bs=100 seek=$i count=2 conv=notrunc status=none
(cd d$i && for p in part-*; do md5sum < \$p; done > sums) ; umask 077; : > d$i/private; umask 022
exec 7> d$i/seven; echo a >&7; echo b >&7; exec 7>&-; read -r x < d$i/seven; echo "\$x" >> d$i/seven
diff d$i/numbers d$i/sorted > d$i/diff || true; wc -lwc < d$i/numbers > d$i/wc
mkfifo d$i/fifo; (cat d$i/fifo > d$i/through &) ; echo "by fifo $i" > d$i/fifo; sleep 0.02; touch -d '2001-02-03' d$i/old
find d$i -name 'part-*' -newer d$i/old | sort > d$i/found; rm -f c$i/part-a?; rmdir c$i/nothing 2>/dev/null || echo "no: \$?" >> c$i/errors
LINES
done | head -n 200 >commands
[ "$(wc -l <commands)" = 200 ] || fail "not 200 commands"

cat >build.session <<'SH'
mkdir src include
for i in $(seq 120); do
    echo "int f$i(int);" >> include/all.h
    printf '#include "../include/all.h"\nint f%d(int x) { return x <= 0 ? %d : f%d(x - 1) + %d; }\n' \
        $i $i $((i % 120 + 1)) $i > src/f$i.c
done
printf '#include <stdio.h>\n#include "../include/all.h"\nint main(void) { printf("%%d\\n", f1(1000)); return 0; }\n' > src/main.c
cat > Makefile <<'MAKE'
objects = $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))
program: $(sort $(objects)) build/libhalf.a ; cc -o $@ $(sort $(objects))
build/%.o: src/%.c include/all.h | build ; cc -O0 -c -o $@ $<
build/libhalf.a: $(sort $(objects)) ; ar rcsD $@ $(wordlist 1,60,$^)
build: ; mkdir build
MAKE
make -j4 > /dev/null
make -q
./program > said
touch src/f7.c && make -j4 > /dev/null
SH

cat >git.session <<'SH'
git init -q -b main repository && cd repository
git config gc.auto 0; git config index.threads 1; git config pack.threads 1
# git packs in the order in which the directory lists its logs, which is any.
git config core.logAllRefUpdates false
mkdir $(seq 1 50)
for i in $(seq "$files"); do echo "file $i" > $((i % 50 + 1))/$i; done
git add . && git commit -qm all
git checkout -qb side && for d in 1 2 3; do for f in $d/*; do echo more >> "$f"; done; git commit -qam $d; done
git checkout -q main && git mv 50 renamed && git rm -rq 49 && git commit -qm renamed
git merge -q side -m merged
git fsck --full --strict 2> /dev/null
git status --porcelain > ../status && git log --format='%H %s' > ../log
git repack -qad && git clone -q . ../clone && diff -r --exclude=.git . ../clone
# These hold paths, inode numbers and times.
git -C ../clone remote remove origin
rm .git/index ../clone/.git/index
cd .. && find . -path '*/.git/logs' -prune -exec rm -r {} +
SH

cat >tar.session <<'SH'
mkdir a b && for i in $(seq 300); do head -c $((i * 37)) /dev/zero | tr '\0' "$(printf "\\$(printf %o $((65 + i % 26)))")" > a/f$i; done
ln -s f1 a/s; ln a/f2 a/h; mkdir a/empty; chmod 1777 a/empty; truncate -s 1M a/sparse
(cd a && tar cf - --sort=name .) | (cd b && tar xpf -)
(cd a && tar czf - --sort=name --mtime=@1 .) > packed.tgz && mkdir c && tar xzf packed.tgz -C c && rm packed.tgz
SH

cat >find.session <<'SH'
mkdir -p $(seq -f 'x%g/y/z' 20) && for i in $(seq 20); do touch x$i/{1,2,3}.txt x$i/y/{4,5}.log x$i/y/z/6.txt; done
find . -name '*.txt' -exec sh -c 'for f; do echo "$f" > "$f"; done' sh {} +
find . -name '*.log' -exec mv {} {}.old \;
find . -type d -name z -exec chmod 700 {} \; -exec touch {}/seen \;
find . -name '2.txt' -delete; list=$(find . -empty | sort); echo "$list" > empty.list
find . -type f -print0 | sort -z | xargs -0 -n 7 -P 4 sh -c 'for f; do cp "$f" "$f.copy"; done' sh
seq 400 | xargs -P 4 -n 5 sh -c 'for n; do mkdir -p p$((n % 10)); echo "$n" > p$((n % 10))/$n; done' sh
SH

for session in shell build git tar find; do
    face mkdir "$AT/t/$session"
    if face bash -c 'set -euo pipefail; cd "$1/t/$3"; . "$2/$3.session"; cd "$1/t/$3"; . "$2/settle"' \
        session "$AT" "$PWD" $session >log 2>&1; then
        ran=ok
    else
        ran=failed
        tail -n 20 log
    fi
    result "$session-runs" $ran
    if [ "$FACE" = tmpfs ]; then
        cp -a "$AT/t/$session" "$SHARED/"
    fi
    differ=$(face rsync -naciHAX --delete "$AT/t/$session/" "$SHARED/$session/" 2>&1 | grep -v 'is emulated memory' | head -n 20) || true
    [ -z "$differ" ] || printf '%s: %s\n' "$session" "$differ"
    outcome "$session-same-tree" test -z "$differ"
done
