/* What the C programs of the tests share: a check that fails is a line, and an exit code of 1. */
#include <solera.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            failures++; \
            printf("%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, solera_error()); \
        } \
    } while (0)

/* A call fails with this error, and says so in a sentence of its own. */
#define FAILS(call, number) \
    do { \
        errno = 0; \
        CHECK((call) == -1 && errno == (number)); \
        CHECK(strncmp(solera_error(), "solera_", 7) == 0 && strlen(solera_error()) > 20); \
    } while (0)

/* Whether the place is of a volume; its files are then changed by another process, which sees them below
   SOLERA_TEST_AT and is run by SOLERA_TEST_BESIDE. */
static inline int on_volume(void) {
    return getenv("SOLERA_TEST_AT") != NULL;
}

/* Another process does this where the files are. */
static inline void beside(const char *directory, const char *does) {
    const char *by = getenv("SOLERA_TEST_BESIDE"), *at = getenv("SOLERA_TEST_AT");
    char line[8192];
    snprintf(line, sizeof line, "%s sh -c \"cd '%s' && %s\"", by ? by : "", at ? at : directory, does);
    fflush(stdout);
    CHECK(system(line) == 0);
}
