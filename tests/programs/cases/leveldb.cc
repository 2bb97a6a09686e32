// Fills and checks a LevelDB: see kv.h.
#include "kv.h"
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    std::string verb = argv[1];
    long from = atol(argv[3]), to = atol(argv[4]);
    leveldb::Options options;
    options.create_if_missing = true;
    options.paranoid_checks = true;
    options.write_buffer_size = 256 << 10;
    leveldb::DB* db;
    must(leveldb::DB::Open(options, argv[2], &db), "open");
    if (verb == "fill") {
        leveldb::WriteOptions synced;
        synced.sync = true;
        for (long n = from; n < to; n++) {
            must(db->Put(synced, key_of(n), value_of(n)), "put");
            acknowledge(n);
        }
        db->CompactRange(nullptr, nullptr);
    } else {
        leveldb::ReadOptions checked;
        checked.verify_checksums = true;
        std::string value;
        for (long n = 0; n < to; n++) {
            must(db->Get(checked, key_of(n), &value), "get");
            if (value != value_of(n)) return fprintf(stderr, "%ld has a wrong value\n", n), 1;
        }
        long count = 0;
        leveldb::Iterator* it = db->NewIterator(checked);
        std::string last;
        for (it->SeekToFirst(); it->Valid(); it->Next(), count++) {
            if (it->key().ToString() <= last) return fprintf(stderr, "the order is wrong\n"), 1;
            last = it->key().ToString();
        }
        must(it->status(), "iterator");
        delete it;
        printf("%ld\n", count);
    }
    delete db;
}
