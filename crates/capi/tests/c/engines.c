/* One engine a process: usage engines PLACE LIBRARY... opens a file of the place by each library in turn,
   closes what is there in another order, and looks after each step who has the volume attached
   (SOLERA_TEST_ATTACHED, a command that succeeds if this process has it attached so often).
   With OWN a copy of the library is part of the program as well: it comes first, and the others are refused. */
#include <dlfcn.h>
#include <unistd.h>
#include "check.h"

#define LIBRARIES_MAX 8

struct library {
    void *handle;
    int (*open_place)(const char *, unsigned, solera_place **);
    int (*close_place)(solera_place *);
    int (*open)(solera_place *, const char *, const struct solera_options *, solera_file **);
    ssize_t (*append)(solera_file *, const void *, size_t, solera_ticket *);
    int (*close)(solera_file *);
    const char *(*error)(void);
    solera_place *place;
    solera_file *file;
};

#ifdef OWN
const char *solera_error(void);
#else
const char *solera_error(void) { return dlerror(); }
#endif

static void attached(int times) {
    char line[4096];
    fflush(stdout);
    snprintf(line, sizeof line, "%s %d %d", getenv("SOLERA_TEST_ATTACHED"), getpid(), times);
    CHECK(system(line) == 0);
}

static void load(struct library *library, const char *name) {
    memset(library, 0, sizeof *library);
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CHECK(library->handle);
    *(void **)&library->open_place = dlsym(library->handle, "solera_open_place");
    *(void **)&library->close_place = dlsym(library->handle, "solera_close_place");
    *(void **)&library->open = dlsym(library->handle, "solera_open");
    *(void **)&library->append = dlsym(library->handle, "solera_append");
    *(void **)&library->close = dlsym(library->handle, "solera_close");
    *(void **)&library->error = dlsym(library->handle, "solera_error");
}

static void use(struct library *library, const char *where) {
    struct solera_options options = SOLERA_OPTIONS;
    options.flags = SOLERA_CREATE;
    options.size = 1 << 20;
    CHECK(library->open_place(where, 0, &library->place) == 0);
    CHECK(library->open(library->place, "engines", &options, &library->file) == 0);
    CHECK(library->append(library->file, "engine\n", 7, NULL) == 7);
}

static void leave(struct library *library) {
    CHECK(library->append(library->file, "engine\n", 7, NULL) == 7);
    CHECK(library->close(library->file) == 0 && library->close_place(library->place) == 0);
    CHECK(dlclose(library->handle) == 0);
}

int main(int argc, char **argv) {
    struct library libraries[LIBRARIES_MAX];
    int count = argc - 2 < LIBRARIES_MAX ? argc - 2 : LIBRARIES_MAX;
#ifdef OWN
    solera_place *own;
    CHECK(solera_open_place(argv[1], 0, &own) == 0);
    attached(1);
    for (int at = 0; at < count; at++) {
        load(&libraries[at], argv[at + 2]);
        for (int again = 0; again < 3; again++) {
            solera_place *place;
            errno = 0;
            CHECK(libraries[at].open_place(argv[1], 0, &place) == -1 && errno == EBUSY);
            CHECK(strstr(libraries[at].error(), "another copy"));
            /* Its refusal has not ended the first one's life. */
            attached(1);
        }
    }
    CHECK(solera_close_place(own) == 0);
    attached(0);
    /* Now it is the only one. */
    use(&libraries[0], argv[1]);
    attached(1);
    leave(&libraries[0]);
    return failures != 0;
#else
    for (int at = 0; at < count; at++) {
        load(&libraries[at], argv[at + 2]);
        use(&libraries[at], argv[1]);
        attached(1);
    }
    /* The first goes first, and comes again. */
    for (int at = 0; at + 1 < count; at++) {
        leave(&libraries[at]);
        attached(1);
    }
    load(&libraries[0], argv[2]);
    use(&libraries[0], argv[1]);
    attached(1);
    leave(&libraries[count - 1]);
    attached(1);
    leave(&libraries[0]);
    attached(getenv("SOLERA_TEST_SERVED") != NULL);
    return failures != 0;
#endif
}
