# strace, of the program and its children, around `solera run` and below it.
needs strace g++
g++ -std=c++17 -g -O1 -pthread "$HERE/cases/checks.cc" -o checks || exit 1
said "below" srun strace -f -o trace ./checks "$AT"
grep -c 'exited with 0' trace | sed 's/.*[0-9].*/ends are traced/'
said "around" strace -f -o trace bash -c 'srun ./checks "$AT"'
grep -q 'execve(.*checks' trace && echo "its start is traced"
