# git: a repository of 1,000 files; commits, branches, a merge, gc, fsck, a clone that is compared.
needs git openssl
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org GIT_PAGER=cat
cat >script.sh <<'SCRIPT'
set -eu
cd "$AT"
git init -q -b main repo; cd repo
for d in $(seq 20); do
    mkdir -p "src/d$d"
    for f in $(seq 50); do printf 'file %d of %d\n%0*d\n' "$f" "$d" $((f * 20)) "$d" >"src/d$d/f$f"; done
done
ln -s src/d1/f1 link; chmod +x src/d2/f2
git add .; git commit -qm 'a thousand files'
[ "$(git ls-files | wc -l)" = 1001 ]
[ -z "$(git status --porcelain)" ]
git checkout -qb side
for d in $(seq 20); do echo more >>"src/d$d/f1"; git commit -qam "change $d"; done
git checkout -q main; git mv src/d20 renamed; git rm -q src/d19/f9; git commit -qm 'renamed'
git merge -q side -m merged
[ "$(git rev-list --count HEAD)" = 23 ] && [ "$(tail -n 1 renamed/f1)" = more ]
git stash list; echo dirty >>src/d3/f3; git stash -q; [ "$(git diff | wc -l)" = 0 ]; git stash pop -q; git checkout -q src
git tag -a v1 -m one; git repack -qad; git gc -q --aggressive --prune=now
git fsck --full --strict
[ "$(git count-objects | cut -d' ' -f1)" = 0 ]
git clone -q . ../clone; git clone -q --bare "file://$AT/repo" ../bare.git
git -C ../clone fsck --full; git -C ../bare.git fsck --full
diff -r --exclude=.git . ../clone
[ "$(git rev-parse HEAD^{tree})" = "$(git -C ../clone rev-parse HEAD^{tree})" ]
echo pushed >pushed; git add pushed; git commit -qm pushed; git push -q "$AT/bare.git" main
[ "$(git -C ../bare.git show main:pushed)" = pushed ]
git archive v1 | tar -tf - | grep -c /f >../archived
git worktree add -q ../tree v1; [ -x ../tree/src/d2/f2 ]; git worktree remove ../tree
SCRIPT
srun bash script.sh || fail "the script"
same "$(srun cat "$AT/archived")" 999 "files in the archive"
# A git that knows nothing of us reads the copy, and a repository from outside is cloned in.
srun cp -a "$AT/repo" plain; git -C plain fsck --full || fail "the copy"
same "$(git -C plain status --porcelain)" "" "status of the copy"
srun git clone -q "$SCRATCH/plain" "$AT/in"; srun git -C "$AT/in" fsck --full || fail "clone from outside"
same "$(srun git -C "$AT/in" rev-parse HEAD)" "$(git -C plain rev-parse HEAD)" "HEAD of the clone"
