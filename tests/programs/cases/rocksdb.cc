// Fills and checks a RocksDB: see kv.h. The fifth argument is how it reads and writes its files.
#include "kv.h"
#include <rocksdb/db.h>
#include <rocksdb/options.h>

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    std::string verb = argv[1], way = argv[5];
    long from = atol(argv[3]), to = atol(argv[4]);
    rocksdb::Options options;
    options.create_if_missing = true;
    options.paranoid_checks = true;
    options.write_buffer_size = 256 << 10;
    options.max_background_jobs = 2;
    options.allow_mmap_reads = way == "mmap";
    options.allow_mmap_writes = way == "mmap";
    options.use_direct_reads = way == "direct";
    options.use_direct_io_for_flush_and_compaction = way == "direct";
    rocksdb::DB* db;
    must(rocksdb::DB::Open(options, argv[2], &db), "open");
    if (verb == "fill") {
        rocksdb::WriteOptions synced;
        synced.sync = true;
        for (long n = from; n < to; n++) {
            must(db->Put(synced, key_of(n), value_of(n)), "put");
            acknowledge(n);
        }
        must(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr), "compact");
    } else {
        rocksdb::ReadOptions checked;
        std::string value;
        for (long n = 0; n < to; n++) {
            must(db->Get(checked, key_of(n), &value), "get");
            if (value != value_of(n)) return fprintf(stderr, "%ld has a wrong value\n", n), 1;
        }
        must(db->VerifyChecksum(), "checksums");
        long count = 0;
        rocksdb::Iterator* it = db->NewIterator(checked);
        for (it->SeekToFirst(); it->Valid(); it->Next()) count++;
        must(it->status(), "iterator");
        delete it;
        printf("%ld\n", count);
    }
    must(db->Close(), "close");
    delete db;
}
