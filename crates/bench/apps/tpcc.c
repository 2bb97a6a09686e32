// Much like TPC-C: new orders and payments on SQLite, WAL, synchronous=FULL. tpcc DIRECTORY COUNT
#include <err.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { DISTRICTS = 10, CUSTOMERS = 300, ITEMS = 5000 };

static sqlite3 *db;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void run(const char *text) {
    char *error = 0;
    if (sqlite3_exec(db, text, 0, 0, &error)) errx(1, "%s: %s", text, error);
}

static sqlite3_stmt *prepare(const char *text) {
    sqlite3_stmt *made;
    if (sqlite3_prepare_v2(db, text, -1, &made, 0)) errx(1, "%s", text);
    return made;
}

static void step(sqlite3_stmt *it, long a, long b, long c) {
    sqlite3_bind_int64(it, 1, a);
    sqlite3_bind_int64(it, 2, b);
    sqlite3_bind_int64(it, 3, c);
    while (sqlite3_step(it) == SQLITE_ROW) sqlite3_column_int64(it, 0);
    if (sqlite3_reset(it)) errx(1, "%s", sqlite3_errmsg(db));
}

static unsigned long seed = 88172645463325252UL;

static long below(long bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (long)(seed % (unsigned long)bound);
}

int main(int argc, char **argv) {
    if (argc != 3 || chdir(argv[1])) return 2;
    if (sqlite3_open("tpcc.db", &db)) return 1;
    run("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE district(id INTEGER PRIMARY KEY, next INT, total INT);"
        "CREATE TABLE customer(id INTEGER PRIMARY KEY, balance INT, data TEXT);"
        "CREATE TABLE stock(id INTEGER PRIMARY KEY, quantity INT, data TEXT);"
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, district INT, customer INT, time INT);"
        "CREATE TABLE line(district INT, item INT, quantity INT, data TEXT);"
        "CREATE TABLE history(district INT, customer INT, amount INT);"
        "CREATE INDEX by_customer ON orders(customer);");
    char text[600];
    snprintf(text, sizeof text,
             "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < %d) "
             "INSERT INTO stock SELECT i, 100, hex(zeroblob(40)) FROM n;"
             "INSERT INTO customer SELECT id, 0, hex(zeroblob(100)) FROM stock WHERE id < %d;"
             "INSERT INTO district SELECT id, 1, 0 FROM stock WHERE id < %d;",
             ITEMS - 1, DISTRICTS * CUSTOMERS, DISTRICTS);
    run(text);
    sqlite3_stmt *next = prepare("UPDATE district SET next = next + 1 WHERE id = ?1");
    sqlite3_stmt *order = prepare("INSERT INTO orders(district, customer, time) VALUES(?1, ?2, ?3)");
    sqlite3_stmt *look = prepare("SELECT quantity FROM stock WHERE id = ?1");
    sqlite3_stmt *take = prepare("UPDATE stock SET quantity = quantity - ?2 WHERE id = ?1");
    sqlite3_stmt *line = prepare("INSERT INTO line VALUES(?1, ?2, ?3, hex(zeroblob(12)))");
    sqlite3_stmt *total = prepare("UPDATE district SET total = total + ?2 WHERE id = ?1");
    sqlite3_stmt *pay = prepare("UPDATE customer SET balance = balance - ?2 WHERE id = ?1");
    sqlite3_stmt *note = prepare("INSERT INTO history VALUES(?1, ?2, ?3)");
    int count = atoi(argv[2]);
    double begun = now();
    for (int i = 0; i < count; i++) {
        long district = below(DISTRICTS), customer = district * CUSTOMERS + below(CUSTOMERS);
        run("BEGIN IMMEDIATE");
        if (below(100) < 51) {
            step(next, district, 0, 0);
            step(order, district, customer, i);
            for (long lines = 5 + below(11); lines > 0; lines--) {
                long item = below(ITEMS), quantity = 1 + below(10);
                step(look, item, 0, 0);
                step(take, item, quantity, 0);
                step(line, district, item, quantity);
            }
        } else {
            long amount = 1 + below(5000);
            step(total, district, amount, 0);
            step(pay, customer, amount, 0);
            step(note, district, customer, amount);
        }
        run("COMMIT");
    }
    printf("sqlite TPC-C-like, a transaction\t%.1f\n", (now() - begun) / count);
    return 0;
}
