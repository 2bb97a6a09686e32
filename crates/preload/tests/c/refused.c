// What a volume does not serve fails loudly, each with its own error.
#include "say.h"
#include <fts.h>
#include <sys/inotify.h>

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(inotify_add_watch(inotify_init(), ".", IN_CREATE));
    char *paths[] = {argv[1], NULL};
    WORKS(fts_open(paths, FTS_PHYSICAL, NULL) ? 0 : -1);
    return 0;
}
