// Arrays of C++: new and delete of all kinds. With `aligned` as its first word, those of at least
// 2 MiB lie at multiples of it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

static bool aligned;

static void check(bool right, const char *what) {
    if (!right) {
        std::printf("%s\n", what);
        std::exit(1);
    }
}

static bool lies_right(const void *block) {
    return !aligned || reinterpret_cast<std::uintptr_t>(block) % (2 << 20) == 0;
}

struct alignas(4096) Page {
    unsigned char bytes[4096];
};

int main(int count, char **words) {
    aligned = count > 1 && std::string(words[1]) == "aligned";
    for (std::size_t size = 2 << 20; size <= 64 << 20; size = size * 3 / 2 + 1) {
        std::unique_ptr<unsigned char[]> one(new unsigned char[size]);
        std::unique_ptr<unsigned char[]> zeros(new unsigned char[size]());
        std::unique_ptr<unsigned char[]> other(new (std::nothrow) unsigned char[size]);
        std::unique_ptr<Page[]> pages(new Page[size / 4096 + 1]);
        check(lies_right(one.get()) && lies_right(zeros.get()), "new[]");
        check(lies_right(other.get()), "new (nothrow)");
        check(lies_right(pages.get()), "new of pages");
        std::memset(one.get(), 7, size);
        std::memset(other.get(), 8, size);
        std::memset(pages.get(), 9, size);
        check(zeros[0] == 0 && zeros[size - 1] == 0, "zeros");
        check(one[0] == 7 && one[size - 1] == 7 && other[size - 1] == 8, "contents");
    }
    std::vector<std::uint64_t> grown;
    for (std::uint64_t number = 0; number < 3 << 20; number++) {
        grown.push_back(number);
    }
    check(lies_right(grown.data()), "a vector");
    for (std::uint64_t number = 0; number < grown.size(); number++) {
        check(grown[number] == number, "a vector's contents");
    }
    // mimalloc ends the program instead.
    if (aligned) try {
        volatile std::size_t much = SIZE_MAX / 2 - 100;
        unsigned char *volatile given = new unsigned char[much];
        delete[] given;
        check(false, "so much was given");
    } catch (const std::bad_alloc &) {
    }
    std::puts("done");
}
