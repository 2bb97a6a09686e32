# bash as the program: redirections, appends, pipes, here-documents, subshells, descriptors of its own.
cat >script.sh <<'SCRIPT'
set -eu
cd "$AT"
mkdir work && cd work
[ "$(pwd)" = "$AT/work" ]
echo one >a; echo two >>a; printf '%s\n' three >>a
cat <<TEXT >b
a here-document with $(echo a substitution)
second line
TEXT
cat a b | tr a-z A-Z | sort >sorted
(cd .. && echo "from a subshell in $(pwd)" >work/sub)
exec 7>fd7; echo seven >&7; echo more >&7; exec 7>&-
exec 8<a; read -r first <&8; read -r second <&8; exec 8<&-
[ "$first $second" = "one two" ]
{ echo out; echo err >&2; } >both 2>&1
for i in 1 2 3; do echo "$i"; done | while read -r n; do echo "line $n" >>loop; done
cp a a2; mv a2 a3; rm a3
[ -f a ] && [ ! -e a3 ] && [ -d ../work ] && [ -s b ]
ln -s a link; [ -L link ] && [ "$(cat link)" = "$(cat a)" ]
echo {x,y,z} | xargs -n 1 touch
echo *; : >empty; [ ! -s empty ]
diff <(sort a) <(sort a | cat)
mapfile -t lines <b; [ "${#lines[@]}" = 2 ]
set -C; (echo no >a) 2>/dev/null && exit 9; set +C
wc -c <b >count
head -c 100000 /dev/zero | tee big | md5sum >sum; md5sum <big | cmp - sum
trap 'echo bye >bye' EXIT
SCRIPT
srun bash script.sh >out 2>&1 || { cat out; fail "the script"; }
same "$(srun bash -c "cat $AT/work/a")" "one
two
three" "appends"
same "$(srun bash -c "cat $AT/work/b")" "a here-document with a substitution
second line" "here-document"
same "$(srun bash -c "cat $AT/work/sub")" "from a subshell in $AT" "subshell"
same "$(srun bash -c "cat $AT/work/fd7 $AT/work/both $AT/work/loop $AT/work/bye | tr '\n' ' '")" "seven more out err line 1 line 2 line 3 bye " "descriptors"
same "$(srun bash -c "cd $AT/work; ls | tr '\n' ' '")" "a b big both bye count empty fd7 link loop sorted sub sum x y z " "names"
