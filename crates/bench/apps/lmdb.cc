// LMDB's own benchmark in short: `lmdb fill|check FILE FROM TO [stores]` fills in key order by batches of 1,000
// puts a transaction, checks by reads in random order. With `stores` it writes through its mapping (MDB_WRITEMAP).
// The mapping is 64 GiB, far larger than the data.
#include "../../tests/programs/cases/kv.h"
#include <lmdb.h>

static void must(int code, const char* what) {
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(code));
        exit(1);
    }
}

static MDB_val val_of(std::string& text) { return MDB_val{text.size(), &text[0]}; }

static std::string key_in_order(long n) {
    char text[32];
    snprintf(text, sizeof text, "%016ld", n);
    return text;
}

static std::string value(long n) { return std::string(100, 'a' + n % 26); }

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    long to = atol(argv[4]);
    MDB_env* env;
    MDB_txn* txn;
    MDB_dbi dbi;
    must(mdb_env_create(&env), "env");
    must(mdb_env_set_mapsize(env, size_t(64) << 30), "mapsize");
    must(mdb_env_open(env, argv[2], MDB_NOSUBDIR | (argc > 5 ? MDB_WRITEMAP : 0), 0644), "open");
    bool fills = std::string(argv[1]) == "fill";
    for (long n = 0; n < to; n++) {
        if (n % 1000 == 0) {
            if (n > 0) fills ? must(mdb_txn_commit(txn), "commit") : mdb_txn_abort(txn);
            must(mdb_txn_begin(env, nullptr, fills ? 0 : MDB_RDONLY, &txn), "begin");
            must(mdb_dbi_open(txn, nullptr, 0, &dbi), "dbi");
        }
        // 2654435761 is prime: every key once.
        long which = fills ? n : n * 2654435761L % to;
        std::string key = key_in_order(which), text = value(which);
        MDB_val k = val_of(key), v = val_of(text);
        if (fills) {
            must(mdb_put(txn, dbi, &k, &v, MDB_APPEND), "put");
        } else {
            must(mdb_get(txn, dbi, &k, &v), "get");
            if (std::string((char*)v.mv_data, v.mv_size) != text)
                return fprintf(stderr, "%ld has a wrong value\n", which), 1;
        }
    }
    fills ? must(mdb_txn_commit(txn), "commit") : mdb_txn_abort(txn);
    mdb_env_close(env);
}
