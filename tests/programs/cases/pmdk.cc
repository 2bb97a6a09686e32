// Fills and checks a persistent radix tree in a pool of libpmemobj: see kv.h. Each value is put by one
// transaction of the library's, which logs and flushes by itself through its mapping of the pool.
#include "kv.h"
#include <libpmemobj.h>

enum { WAYS = 16, LEVELS = 8, POOL = 256 << 20, VALUE = 1024 };

struct Node {
    PMEMoid below[WAYS];
};
struct Leaf {
    uint64_t length;
    char value[VALUE];
};
struct Root {
    PMEMoid top;
    uint64_t entries;
};

static PMEMobjpool* pool;

static Root* root() { return (Root*)pmemobj_direct(pmemobj_root(pool, sizeof(Root))); }

// Where the path of a key turns, from the top on.
static unsigned turn(long key, int level) {
    uint32_t scattered = uint32_t(key) * 2654435761u;
    return scattered >> (28 - 4 * level) & 15;
}

static void put(long key, const std::string& value) {
    TX_BEGIN(pool) {
        Root* start = root();
        PMEMoid* at = &start->top;
        for (int level = 0; level <= LEVELS; level++) {
            if (OID_IS_NULL(*at)) {
                pmemobj_tx_add_range_direct(at, sizeof *at);
                *at = pmemobj_tx_zalloc(level < LEVELS ? sizeof(Node) : sizeof(Leaf), 1);
            }
            if (level < LEVELS) at = &((Node*)pmemobj_direct(*at))->below[turn(key, level)];
        }
        Leaf* leaf = (Leaf*)pmemobj_direct(*at);
        pmemobj_tx_add_range_direct(leaf, sizeof *leaf);
        leaf->length = value.size();
        memcpy(leaf->value, value.data(), value.size());
        pmemobj_tx_add_range_direct(&start->entries, sizeof start->entries);
        start->entries++;
    } TX_ONABORT {
        fprintf(stderr, "a transaction failed: %s\n", pmemobj_errormsg());
        exit(1);
    } TX_END
}

static const Leaf* find(long key) {
    PMEMoid at = root()->top;
    for (int level = 0; level < LEVELS && !OID_IS_NULL(at); level++)
        at = ((Node*)pmemobj_direct(at))->below[turn(key, level)];
    return OID_IS_NULL(at) ? nullptr : (const Leaf*)pmemobj_direct(at);
}

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    std::string verb = argv[1];
    long from = atol(argv[3]), to = atol(argv[4]);
    pool = pmemobj_create(argv[2], "radix", POOL, 0644);
    // One that a kill left half made is no pool.
    if (!pool) pool = pmemobj_open(argv[2], "radix");
    if (!pool && from == 0 && verb == "fill") {
        unlink(argv[2]);
        pool = pmemobj_create(argv[2], "radix", POOL, 0644);
    }
    if (!pool) return fprintf(stderr, "the pool: %s\n", pmemobj_errormsg()), 1;
    if (verb == "fill") {
        for (long n = from; n < to; n++) {
            if (!find(n)) put(n, value_of(n));
            acknowledge(n);
        }
    } else {
        for (long n = 0; n < to; n++) {
            const Leaf* leaf = find(n);
            if (!leaf || std::string(leaf->value, leaf->length) != value_of(n))
                return fprintf(stderr, "%ld has a wrong value\n", n), 1;
        }
        printf("%lu\n", (unsigned long)root()->entries);
    }
    pmemobj_close(pool);
}
