// What the drivers of key-value stores share: keys, values, and the protocol with the case.
//
// A driver is called as `driver fill|check DIR FROM TO`. `fill` puts the keys FROM..TO with synced
// writes and prints each number once its write was acknowledged; `check` looks for all of 0..TO.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

static std::string key_of(long n) {
    char text[32];
    snprintf(text, sizeof text, "key%010ld", (n * 7919) % 1000003);
    return text;
}

static std::string value_of(long n) {
    std::string value = std::to_string(n) + ":";
    unsigned long x = n * 2654435761UL + 1;
    for (long i = 0; i < 50 + n % 900; i++) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        value.push_back('a' + (x >> 60));
    }
    return value;
}

// Says that `n` is acknowledged. The pipe's reader learns it even if we are killed right after.
static void acknowledge(long n) {
    std::string line = std::to_string(n) + "\n";
    if (write(1, line.data(), line.size()) != (ssize_t)line.size()) _exit(9);
}

template <class Status> static void must(const Status& status, const char* what) {
    if (!status.ok()) {
        fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
        exit(1);
    }
}
