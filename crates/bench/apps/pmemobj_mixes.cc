// Mixes on a map of libpmemobj: an array of object identifiers, one a key, and an object a value. A
// put is a transaction that makes the new object, stores to the array and frees the old one. Threads
// have keys of their own. See stores.h.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <libpmemobj.h>
#include <string>
#include <unistd.h>

struct Root {
    PMEMoid slots;
};

struct Store {
    PMEMobjpool* pool;
    PMEMoid* slots;
    size_t value_bytes;
    long count;

    static void failed(const char* what) {
        fprintf(stderr, "%s: %s\n", what, pmemobj_errormsg());
        exit(1);
    }
    Store(const char* path, long count, size_t bytes, std::string) : value_bytes(bytes), count(count) {
        bool made = access(path, F_OK) != 0;
        size_t size = count * (bytes + 512) * 3 / 2 + (64 << 20);
        pool = made ? pmemobj_create(path, "map", size, 0644) : pmemobj_open(path, "map");
        if (!pool) failed("open");
        Root* root = (Root*)pmemobj_direct(pmemobj_root(pool, sizeof(Root)));
        if (made && pmemobj_zalloc(pool, &root->slots, count * sizeof(PMEMoid), 1)) failed("make the array");
        slots = (PMEMoid*)pmemobj_direct(root->slots);
    }
    ~Store() { pmemobj_close(pool); }
    void begin(bool) {}
    void end() {}
    void put(uint64_t key, const std::string& value) {
        TX_BEGIN(pool) {
            PMEMoid made = pmemobj_tx_xalloc(value.size(), 2, POBJ_XALLOC_NO_FLUSH);
            pmemobj_memcpy_persist(pool, pmemobj_direct(made), value.data(), value.size());
            pmemobj_tx_add_range_direct(&slots[key], sizeof slots[key]);
            if (!OID_IS_NULL(slots[key])) pmemobj_tx_free(slots[key]);
            slots[key] = made;
        } TX_ONABORT {
            failed("put");
        } TX_END
    }
    template <class Work> void get(uint64_t key, Work work) { work(pmemobj_direct(slots[key]), value_bytes); }
    template <class Work> void scan(long from, long most, Work work) {
        for (long key = from < 0 ? 0 : from; key < count && most > 0; key++, most--)
            if (!OID_IS_NULL(slots[key])) work(key, pmemobj_direct(slots[key]), value_bytes);
    }
    long bytes() { return count * long(value_bytes + 64 + sizeof(PMEMoid)); }
};

#include "stores.h"
