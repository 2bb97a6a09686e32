// What a volume does not serve fails loudly, each with its own error.
#include "say.h"

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(fcntl(open(".", O_RDONLY), F_NOTIFY, DN_CREATE));
    return 0;
}
