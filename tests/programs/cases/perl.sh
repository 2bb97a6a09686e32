# perl: file tests, directories, sort, edits in place, locks, pipes, and what perl's modules do.
needs perl
srun perl "$HERE/cases/perl_checks.pl" "$AT" || fail "the checks"
# In-place edits of many files by perl's own options.
srun bash -c "mkdir $AT/edit && cd $AT/edit && for i in \$(seq 200); do printf 'one %d\ntwo\n' \$i >f\$i; done"
srun bash -c "cd $AT/edit && perl -i.bak -pe 's/two/three/; s/^one (\d+)/\$1 one/' f*"
same "$(srun bash -c "cat $AT/edit/f150 $AT/edit/f150.bak | tr '\n' ' '")" "150 one three one 150 two " "perl -i"
same "$(srun bash -c "ls $AT/edit | wc -l")" 400 "files and their backups"
