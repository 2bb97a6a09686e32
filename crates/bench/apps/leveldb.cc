// LevelDB as its db_bench does it: 16-byte keys, 100-byte values. leveldb DIRECTORY COUNT
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <leveldb/db.h>
#include <memory>
#include <string>

using Clock = std::chrono::steady_clock;

static void must(const leveldb::Status &status) {
    if (!status.ok()) {
        fprintf(stderr, "%s\n", status.ToString().c_str());
        exit(1);
    }
}

static std::string key_of(long number) {
    char key[17];
    snprintf(key, sizeof key, "%016ld", number);
    return key;
}

static std::unique_ptr<leveldb::DB> open(const std::string &path) {
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::DB *db;
    must(leveldb::DB::Open(options, path, &db));
    return std::unique_ptr<leveldb::DB>(db);
}

template <class Call> static void time(const char *name, long count, Call call) {
    auto begun = Clock::now();
    for (long i = 0; i < count; i++) call(i);
    std::chrono::duration<double, std::nano> took = Clock::now() - begun;
    printf("%s\t%.1f\n", name, took.count() / count);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    std::string dir = argv[1], value(100, 'v');
    long count = atol(argv[2]);
    unsigned long seed = 88172645463325252UL;
    auto random = [&](long bound) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return long(seed % bound);
    };
    leveldb::WriteOptions synced;
    synced.sync = true;
    {
        auto db = open(dir + "/random");
        time("leveldb fillrandom sync", count,
             [&](long) { must(db->Put(synced, key_of(random(count)), value)); });
    }
    auto db = open(dir + "/sequence");
    time("leveldb fillseq", count,
         [&](long i) { must(db->Put(leveldb::WriteOptions(), key_of(i), value)); });
    std::string found;
    time("leveldb readrandom", count,
         [&](long) { must(db->Get(leveldb::ReadOptions(), key_of(random(count)), &found)); });
    return 0;
}
