// Fills and checks an LMDB: see kv.h. The fifth argument is how it writes: by calls, or by stores
// into its mapping of the file.
#include "kv.h"
#include <lmdb.h>

static void must(int code, const char* what) {
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(code));
        exit(1);
    }
}

static MDB_val val_of(std::string& text) { return MDB_val{text.size(), &text[0]}; }

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    std::string verb = argv[1], way = argv[5];
    long from = atol(argv[3]), to = atol(argv[4]);
    MDB_env* env;
    MDB_txn* txn;
    MDB_dbi dbi;
    must(mdb_env_create(&env), "env");
    // Far more than the volume has: pages come when they are touched.
    must(mdb_env_set_mapsize(env, size_t(64) << 30), "mapsize");
    must(mdb_env_open(env, argv[2], MDB_NOSUBDIR | (way == "stores" ? MDB_WRITEMAP : 0), 0644), "open");
    if (verb == "fill") {
        for (long n = from; n < to; n++) {
            std::string key = key_of(n), value = value_of(n);
            MDB_val k = val_of(key), v = val_of(value);
            must(mdb_txn_begin(env, nullptr, 0, &txn), "begin");
            must(mdb_dbi_open(txn, nullptr, 0, &dbi), "dbi");
            must(mdb_put(txn, dbi, &k, &v, 0), "put");
            must(mdb_txn_commit(txn), "commit");
            acknowledge(n);
        }
    } else {
        must(mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn), "begin");
        must(mdb_dbi_open(txn, nullptr, 0, &dbi), "dbi");
        for (long n = 0; n < to; n++) {
            std::string key = key_of(n);
            MDB_val k = val_of(key), v;
            must(mdb_get(txn, dbi, &k, &v), "get");
            if (std::string((char*)v.mv_data, v.mv_size) != value_of(n))
                return fprintf(stderr, "%ld has a wrong value\n", n), 1;
        }
        MDB_stat stat;
        must(mdb_stat(txn, dbi, &stat), "stat");
        printf("%zu\n", stat.ms_entries);
        mdb_txn_abort(txn);
    }
    mdb_env_close(env);
}
