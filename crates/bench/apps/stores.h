// Mixes of operations on a store of keys and values, whose driver defines `Store` ahead of this:
//
//     Store(path, count, value_bytes, way) opens it, or makes it; `way`: how it is used, or ""
//     begin(writes), end()                 around operations that belong together
//     put(key, value), get(key, work)      of one; work(bytes, length) while the bytes are there
//     scan(key, most, work)                from a key on, in the store's order
//     bytes()                              what is in use
//
// store fill PATH COUNT VALUE          puts all keys, says how many bytes that takes
// store run PATH COUNT VALUE MIX OPS THREADS ROUND [WAY]
//                                      as many operations do not count ahead: ns of one
// store sum PATH COUNT VALUE           reads all that there is: its sum
//
// A mix is one of YCSB's, A to F (zipf 0.99), or `read` or `half` (half updates), each key as likely
// as another. Every value that is read is checked whole. Who runs the same rounds on the same store
// gets the same sum: each thread has keys of its own.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

static uint64_t mixed(uint64_t key, uint64_t version) {
    uint64_t x = key * 0x9E3779B97F4A7C15 + version * 0xC2B2AE3D27D4EB4F + 1;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
}

// Key, version, then words that follow from them.
static void fill_value(std::string& value, uint64_t key, uint64_t version) {
    uint64_t words[2] = {key, version};
    memcpy(&value[0], words, 16);
    for (size_t at = 16; at + 8 <= value.size(); at += 8) {
        uint64_t word = mixed(key, version) + at;
        memcpy(&value[at], &word, 8);
    }
}

// Reads all of a value; what it sums up to.
static uint64_t checked(uint64_t key, const void* bytes, size_t length) {
    uint64_t words[2], word, sum = 0;
    memcpy(words, bytes, 16);
    bool good = key == words[0];
    for (size_t at = 16; at + 8 <= length; at += 8) {
        memcpy(&word, (const char*)bytes + at, 8);
        good &= word == mixed(words[0], words[1]) + at;
        sum += word;
    }
    if (!good) {
        fprintf(stderr, "key %lu has a wrong value\n", (unsigned long)key);
        exit(1);
    }
    return sum + mixed(words[0], words[1]);
}

// Chances of keys, the likely ones anywhere among them.
struct Choice {
    std::vector<double> sums;
    uint64_t seed;
    Choice(long keys, bool zipf, uint64_t seed) : seed(seed * 0x9E3779B97F4A7C15 + 88172645463325252) {
        double sum = 0;
        for (long rank = 1; zipf && rank <= keys; rank++) sums.push_back(sum += std::pow(rank, -0.99));
    }
    double unit() {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (seed >> 11) * 0x1p-53;
    }
    long rank(long keys) {
        if (sums.empty()) return std::min(long(unit() * keys), keys - 1);
        return std::lower_bound(sums.begin(), sums.end() - 1, unit() * sums.back()) - sums.begin();
    }
    // 2654435761 is prime: every key once.
    long key(long keys) { return rank(keys) * 2654435761L % keys; }
};

struct Mix {
    double reads, updates, inserts, scans;  // and the rest reads, then updates what it has read
    bool zipf, latest;
};

static Mix mix_of(const std::string& name) {
    if (name == "read") return {1, 0, 0, 0, false, false};
    if (name == "half") return {0.5, 0.5, 0, 0, false, false};
    if (name == "A") return {0.5, 0.5, 0, 0, true, false};
    if (name == "B") return {0.95, 0.05, 0, 0, true, false};
    if (name == "C") return {1, 0, 0, 0, true, false};
    if (name == "D") return {0.95, 0, 0.05, 0, true, true};
    if (name == "E") return {0, 0, 0.05, 0.95, true, false};
    if (name == "F") return {0.5, 0, 0, 0, true, false};
    fprintf(stderr, "%s is no mix\n", name.c_str());
    exit(2);
}

struct Worker {
    Store& store;
    Mix mix;
    long keys, first, step;  // of `keys`, those from `first` on in such steps are this thread's
    long inserted;
    Choice choice;
    std::string value;
    uint64_t version, sum = 0;

    long own(long number) { return first + number * step; }

    void read(long key) {
        store.get(key, [&](const void* bytes, size_t length) { sum += checked(key, bytes, length); });
    }
    void put(long key) {
        fill_value(value, key, ++version);
        store.put(key, value);
    }
    void one() {
        double which = choice.unit();
        long key = own(mix.latest ? std::max(keys + inserted - 1 - choice.rank(keys), 0L) : choice.key(keys));
        bool reads = which < mix.reads, scans = which >= 1 - mix.scans && mix.scans > 0;
        store.begin(!reads && !scans);
        if (reads) {
            read(key);
        } else if (scans) {
            store.scan(key, 1 + long(choice.unit() * 100), [&](uint64_t key, const void* bytes, size_t length) {
                sum += checked(key, bytes, length);
            });
        } else if (which < mix.reads + mix.updates) {
            put(key);
        } else if (which < mix.reads + mix.updates + mix.inserts) {
            put(own(keys + inserted++));
        } else {
            read(key);
            put(key);
        }
        store.end();
    }
};

// Nanoseconds of an operation, of all threads together.
static double run(Store& store, long count, size_t bytes, const std::string& name, long ops, long threads,
                  long round) {
    Mix mix = mix_of(name);
    std::vector<Worker> workers;
    for (long t = 0; t < threads; t++)
        workers.push_back({store, mix, count / threads, t, threads, 0,
                           Choice(count / threads, mix.zipf, (round * 128 + name[0]) * threads + t), std::string(bytes, 'v'),
                           uint64_t(round) << 40});
    auto all = [&] {
        auto begun = std::chrono::steady_clock::now();
        std::vector<std::thread> running;
        for (Worker& worker : workers)
            running.emplace_back([&worker, each = ops / threads] { for (long i = 0; i < each; i++) worker.one(); });
        for (std::thread& one : running) one.join();
        std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
        return took.count() / ops;
    };
    all();
    return all();
}

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    std::string verb = argv[1];
    long count = atol(argv[3]);
    size_t bytes = atol(argv[4]);
    Store store(argv[2], count, bytes, argc == 10 ? argv[9] : "");
    if (verb == "fill") {
        std::string value(bytes, 'v');
        for (long n = 0; n < count; n++) {
            if (n % 1000 == 0) store.begin(true);
            fill_value(value, n, 0);
            store.put(n, value);
            if (n % 1000 == 999 || n + 1 == count) store.end();
        }
        printf("bytes\t%ld\n", store.bytes());
    } else if (verb == "sum") {
        uint64_t sum = 0, entries = 0;
        store.begin(false);
        store.scan(-1, 1L << 40, [&](uint64_t key, const void* bytes, size_t length) {
            sum += checked(key, bytes, length), entries++;
        });
        store.end();
        printf("%016lx of %lu\n", (unsigned long)sum, (unsigned long)entries);
    } else if (verb == "run" && argc >= 9) {
        printf("ns\t%.1f\n", run(store, count, bytes, argv[5], atol(argv[6]), atol(argv[7]), atol(argv[8])));
    } else {
        return 2;
    }
}
