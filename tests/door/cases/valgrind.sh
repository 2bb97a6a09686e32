# valgrind's memcheck and a tool without it: the program runs on the volume, and nothing is reported.
needs valgrind g++
g++ -std=c++17 -g -O1 -pthread "$HERE/cases/checks.cc" -o checks || exit 1
said memcheck srun valgrind -q --error-exitcode=9 --child-silent-after-fork=yes ./checks "$AT"
said none srun valgrind -q --tool=none ./checks "$AT"
