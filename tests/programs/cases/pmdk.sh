# PMDK as leveldb.sh: a pool of libpmemobj with a persistent radix tree, allocated and stored to through
# its mapping alone.
needs g++
echo '#include <libpmemobj.h>' | g++ -x c++ -fsyntax-only - 2>/dev/null || { echo "there is no libpmemobj-dev"; exit 77; }
g++ -O1 -std=c++17 -w -o driver "$HERE/cases/pmdk.cc" -lpmemobj
. "$HERE/cases/kv.bash"
killed_fills "$AT/pool"
