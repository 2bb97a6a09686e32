# LevelDB: fill with synced writes, killed -9 in mid-fill five times; each time it opens, and every
# acknowledged write is there. Then a fill to the end, and the count.
needs g++
echo '#include <leveldb/db.h>' | g++ -x c++ -fsyntax-only - 2>/dev/null || { echo "there is no libleveldb-dev"; exit 77; }
g++ -O1 -std=c++17 -o driver "$HERE/cases/leveldb.cc" -lleveldb -lpthread
. "$HERE/cases/kv.bash"
killed_fills "$AT/db"
