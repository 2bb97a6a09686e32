# make: a small C tree, compiled without optimization, linked, and made again when nothing has changed.
units=$(of 6 60 300)
input() {
    local unit
    for ((unit = 0; unit < units; unit++)); do
        printf '#include "all.h"\nint f%d(int x) { char text[32]; sprintf(text, "%%d", x); return atoi(text) + %d; }\n' \
            "$unit" "$unit" >"$INPUT/u$unit.c"
        echo "int f$unit(int);"
    done >"$INPUT/calls.h"
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "calls.h"\n' >"$INPUT/all.h"
    {
        printf '#include "all.h"\nint main(void) { int x = 0;\n'
        for ((unit = 0; unit < units; unit++)); do echo "x = f$unit(x);"; done
        printf 'printf("%%d\\n", x); return 0; }\n'
    } >"$INPUT/main.c"
    printf 'OBJECTS = $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(OBJECTS)\n\tcc -o all $(OBJECTS)\n' \
        >"$INPUT/Makefile"
    printf '$(OBJECTS): all.h calls.h\n' >>"$INPUT/Makefile"
}
turn() {
    cp -r "$INPUT" "$DIR/tree"
    timed "make, a unit" "$units" make -s -C "$DIR/tree" CC=cc CFLAGS=-O0
    timed "make of nothing new, a unit" "$units" make -s -C "$DIR/tree" CC=cc CFLAGS=-O0
}
