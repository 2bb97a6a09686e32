// Says what it was given: for tests of programs that cannot be preloaded.
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1)
        return access(argv[1], F_OK) != 0;
    puts("static");
    return 0;
}
