# RocksDB as leveldb.sh, with its files read and written by calls, by mappings and directly.
needs g++
echo '#include <rocksdb/db.h>' | g++ -std=c++17 -x c++ -fsyntax-only - 2>/dev/null || { echo "there is no librocksdb-dev"; exit 77; }
g++ -O1 -std=c++17 -o driver "$HERE/cases/rocksdb.cc" -lrocksdb -lpthread
. "$HERE/cases/kv.bash"
for way in calls mmap direct; do killed_fills "$AT/$way" $way; done
