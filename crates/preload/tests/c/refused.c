// What a volume does not serve fails loudly, each with its own error.
#include "say.h"
#include <sys/inotify.h>

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(inotify_add_watch(inotify_init(), ".", IN_CREATE));
    return 0;
}
