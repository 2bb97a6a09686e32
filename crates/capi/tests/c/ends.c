/* A program that does not close what it has opened: usage ends PLACE exit|killed|child|exec. */
#include <signal.h>
#include <unistd.h>
#include "check.h"

int main(int argc, char **argv) {
    struct solera_options options = SOLERA_OPTIONS;
    solera_place *place;
    solera_file *file;
    const char *how = argv[argc - 1];
    options.flags = SOLERA_CREATE;
    CHECK(solera_open_place(argv[1], 0, &place) == 0);
    CHECK(solera_open(place, how, &options, &file) == 0);
    CHECK(solera_append(file, "appended\n", 9, NULL) == 9 && solera_fence(place) == 0);
    if (strcmp(how, "child") == 0 && fork() == 0) {
        /* It outlives its parent, and has nothing of the volume. */
        close(0), close(1), close(2);
        sleep(20);
        _exit(0);
    }
    if (failures == 0 && (strcmp(how, "killed") == 0 || strcmp(how, "child") == 0))
        raise(SIGKILL);
    if (strcmp(how, "exec") == 0)
        execlp("true", "true", (char *)NULL);
    return failures != 0;
}
