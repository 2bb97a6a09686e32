// Mixes on RocksDB, which appends to logs and writes tables behind: each put is one of its own, without
// a sync, as YCSB's binding does it. See stores.h.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <rocksdb/db.h>
#include <string>

static void must(const rocksdb::Status& status, const char* what) {
    if (status.ok()) return;
    fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
    exit(1);
}

struct Store {
    std::unique_ptr<rocksdb::DB> db;

    Store(const char* path, long, size_t, const std::string&) {
        rocksdb::Options options;
        options.create_if_missing = true;
        options.compression = rocksdb::kNoCompression;
        rocksdb::DB* opened;
        must(rocksdb::DB::Open(options, path, &opened), "open");
        db.reset(opened);
    }
    ~Store() { must(db->Close(), "close"); }
    void begin(bool) {}
    void end() {}
    // In no order, as YCSB's hashed keys.
    static std::string key_of(uint64_t key) {
        char name[17];
        snprintf(name, sizeof name, "%016lx", (unsigned long)(key * 0x9E3779B97F4A7C15));
        return name;
    }
    void put(uint64_t key, const std::string& value) {
        must(db->Put(rocksdb::WriteOptions(), key_of(key), value), "put");
    }
    template <class Work> void get(uint64_t key, Work work) {
        rocksdb::PinnableSlice found;
        must(db->Get(rocksdb::ReadOptions(), db->DefaultColumnFamily(), key_of(key), &found), "get");
        work(found.data(), found.size());
    }
    template <class Work> void scan(long from, long most, Work work) {
        std::unique_ptr<rocksdb::Iterator> at(db->NewIterator(rocksdb::ReadOptions()));
        for (from < 0 ? at->SeekToFirst() : at->Seek(key_of(from)); at->Valid() && most > 0; most--) {
            uint64_t key;
            memcpy(&key, at->value().data(), sizeof key);
            work(key, at->value().data(), at->value().size());
            at->Next();
        }
        must(at->status(), "next");
    }
    long bytes() {
        uint64_t bytes = 0;
        db->GetIntProperty("rocksdb.total-sst-files-size", &bytes);
        return long(bytes);
    }
};

#include "stores.h"
