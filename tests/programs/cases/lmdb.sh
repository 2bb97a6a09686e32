# LMDB as leveldb.sh: its file is read through a mapping, and written by calls or by stores into it;
# its lock file is a mapping that processes share.
needs g++
echo '#include <lmdb.h>' | g++ -x c++ -fsyntax-only - 2>/dev/null || { echo "there is no liblmdb-dev"; exit 77; }
g++ -O1 -std=c++17 -o driver "$HERE/cases/lmdb.cc" -llmdb
. "$HERE/cases/kv.bash"
for way in calls stores; do killed_fills "$AT/$way" $way; done
