// YCSB's mixes on LevelDB: 16-byte keys, 100-byte values, a skewed choice. ycsb DIRECTORY COUNT
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <leveldb/db.h>
#include <memory>
#include <string>

using Clock = std::chrono::steady_clock;

static void must(const leveldb::Status &status) {
    if (status.ok() || status.IsNotFound()) return;
    fprintf(stderr, "%s\n", status.ToString().c_str());
    exit(1);
}

static std::string key_of(long number) {
    char key[17];
    // In no order, as YCSB's hashed keys.
    snprintf(key, sizeof key, "%016lx", (unsigned long)number * 0x9E3779B97F4A7C15UL);
    return key;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long count = atol(argv[2]), keys = 0;
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::DB *opened;
    must(leveldb::DB::Open(options, std::string(argv[1]) + "/db", &opened));
    std::unique_ptr<leveldb::DB> db(opened);
    unsigned long seed = 88172645463325252UL;
    auto unit = [&] {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (seed >> 11) * 0x1p-53;
    };
    // Few are asked for often: the square of the square of an even choice.
    auto choice = [&] { return long(std::pow(unit(), 4) * keys); };
    std::string value(100, 'v'), found;
    auto put = [&](long key) {
        value[0] = char('a' + key % 26);
        must(db->Put(leveldb::WriteOptions(), key_of(key), value));
    };
    auto get = [&](long key) { must(db->Get(leveldb::ReadOptions(), key_of(key), &found)); };
    auto time = [&](const char *name, long count, auto call) {
        auto begun = Clock::now();
        for (long i = 0; i < count; i++) call();
        std::chrono::duration<double, std::nano> took = Clock::now() - begun;
        printf("ycsb %s\t%.1f\n", name, took.count() / count);
    };
    time("load A", count, [&] { put(keys++); });
    time("run A: half updates", count, [&] { unit() < 0.5 ? put(choice()) : get(choice()); });
    time("run B: 5 % updates", count, [&] { unit() < 0.05 ? put(choice()) : get(choice()); });
    time("run C: reads", count, [&] { get(choice()); });
    time("run D: reads of the latest", count,
         [&] { unit() < 0.05 ? put(keys++) : get(keys - 1 - choice() / 4); });
    time("run E: scans", count / 20, [&] {
        if (unit() < 0.05) return put(keys++);
        std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
        at->Seek(key_of(choice()));
        for (long left = 1 + long(unit() * 100); left > 0 && at->Valid(); left--) at->Next();
    });
    time("run F: read and update", count, [&] {
        long key = choice();
        get(key);
        if (unit() < 0.5) put(key);
    });
}
