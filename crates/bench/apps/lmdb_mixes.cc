// Mixes on LMDB, which reads through its mapping, and writes by calls; in the way `stores`, through
// its mapping, too (MDB_WRITEMAP), in the way `random` it has nothing read ahead (MDB_NORDAHEAD), and in
// the way `locks` it shares its file with other processes, as it comes; in the others it takes no locks.
// Each operation that writes is a transaction, with its sync. See stores.h.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <lmdb.h>
#include <string>

static void must(int code, const char* what) {
    if (code == 0) return;
    fprintf(stderr, "%s: %s\n", what, mdb_strerror(code));
    exit(1);
}

struct Store {
    MDB_env* env;
    MDB_dbi dbi;
    MDB_txn *txn = nullptr, *reader = nullptr;
    char name[17];

    // One thread of one process uses it: without locks, which no network file system takes.
    Store(const char* path, long count, size_t bytes, std::string way) {
        must(mdb_env_create(&env), "env");
        must(mdb_env_set_mapsize(env, count * (bytes + 64) * 3 + (64 << 20)), "mapsize");
        unsigned flags = way == "stores" ? MDB_WRITEMAP : way == "random" ? MDB_NORDAHEAD : 0;
        // What begins here is gone on with by the thread of the mix.
        flags |= way == "locks" ? MDB_NOTLS : MDB_NOLOCK;
        must(mdb_env_open(env, path, MDB_NOSUBDIR | flags, 0644), "open");
        must(mdb_txn_begin(env, nullptr, 0, &txn), "begin");
        must(mdb_dbi_open(txn, nullptr, 0, &dbi), "dbi");
        must(mdb_txn_commit(txn), "commit");
        must(mdb_txn_begin(env, nullptr, MDB_RDONLY, &reader), "begin");
        mdb_txn_reset(reader);
    }
    ~Store() {
        mdb_txn_abort(reader);
        mdb_env_close(env);
    }
    void begin(bool writes) {
        if (writes) must(mdb_txn_begin(env, nullptr, 0, &txn), "begin");
        else must(mdb_txn_renew(txn = reader), "renew");
    }
    void end() {
        if (txn == reader) mdb_txn_reset(reader);
        else must(mdb_txn_commit(txn), "commit");
    }
    // In no order, as YCSB's hashed keys.
    MDB_val key_of(uint64_t key) {
        snprintf(name, sizeof name, "%016lx", (unsigned long)(key * 0x9E3779B97F4A7C15));
        return MDB_val{16, name};
    }
    void put(uint64_t key, const std::string& value) {
        MDB_val k = key_of(key), v{value.size(), (void*)value.data()};
        must(mdb_put(txn, dbi, &k, &v, 0), "put");
    }
    template <class Work> void get(uint64_t key, Work work) {
        MDB_val k = key_of(key), v;
        must(mdb_get(txn, dbi, &k, &v), "get");
        work(v.mv_data, v.mv_size);
    }
    template <class Work> void scan(long from, long most, Work work) {
        MDB_cursor* cursor;
        must(mdb_cursor_open(txn, dbi, &cursor), "cursor");
        MDB_val k = key_of(from), v;
        int code = mdb_cursor_get(cursor, &k, &v, from < 0 ? MDB_FIRST : MDB_SET_RANGE);
        for (; code == 0 && most > 0; most--) {
            work(*(uint64_t*)v.mv_data, v.mv_data, v.mv_size);
            code = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
        }
        if (code != MDB_NOTFOUND) must(code, "next");
        mdb_cursor_close(cursor);
    }
    long bytes() {
        MDB_envinfo info;
        must(mdb_env_info(env, &info), "info");
        return long(info.me_last_pgno + 1) * 4096;
    }
};

#include "stores.h"
