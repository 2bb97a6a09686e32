# make -j2 and gcc of a generated project of 60 files, with objects, a library, temporary files and
# the program itself on the volume; then nothing is left to do, and one touched header rebuilds.
needs make gcc ar
cat >generate.sh <<'SCRIPT'
set -eu
mkdir "$AT/project" "$AT/tmp"; cd "$AT/project"
mkdir src include
for i in $(seq 60); do
    printf '#pragma once\nint f%d(int x);\n' "$i" >"include/f$i.h"
    printf '#include "f%d.h"\n#include "common.h"\n#include <stdio.h>\n#include <string.h>\nint f%d(int x) { char s[64]; snprintf(s, sizeof s, "%%d", x + %d); return (int)strlen(s) + x * FACTOR; }\n' \
        "$i" "$i" "$i" >"src/f$i.c"
done
printf '#pragma once\n#define FACTOR 3\n' >include/common.h
{
    echo '#include <stdio.h>'
    for i in $(seq 60); do echo "#include \"f$i.h\""; done
    echo 'int main(void) { long sum = 0;'
    for i in $(seq 60); do echo "sum += f$i($i);"; done
    echo 'printf("%ld\n", sum); return 0; }'
} >src/main.c
cat >Makefile <<'MAKE'
objects := $(patsubst src/%.c,build/%.o,$(filter-out src/main.c,$(wildcard src/*.c)))
all: build/program
build/program: build/main.o build/libparts.a
	gcc -o $@ $^
build/libparts.a: $(objects)
	ar rcs $@ $^
build/%.o: src/%.c
	@mkdir -p build
	gcc -O1 -g -Iinclude -MMD -c -o $@ $<
-include $(wildcard build/*.d)
MAKE
SCRIPT
srun bash generate.sh
export TMPDIR=$AT/tmp
compiled() { srun make -C "$AT/project" -j2 2>&1 | tee make.log | grep -c 'gcc -O1' || true; }
same "$(compiled)" 61 "files compiled at first ($(tail -n 3 make.log))"
expected=0
for i in $(seq 60); do text=$((i + i)); expected=$((expected + ${#text} + i * 3)); done
same "$(srun "$AT/project/build/program")" $expected "the program"
same "$(compiled)" 0 "files compiled when nothing changed"
srun make -q -C "$AT/project" || fail "make -q"
srun touch "$AT/project/include/f7.h"
same "$(compiled)" 2 "files compiled after one header was touched"
srun sed -i 's/FACTOR 3/FACTOR 5/' "$AT/project/include/common.h"
same "$(compiled)" 60 "files compiled after the common header changed"
expected=0
for i in $(seq 60); do text=$((i + i)); expected=$((expected + ${#text} + i * 5)); done
same "$(srun bash -c "cd $AT/project && ./build/program")" $expected "the program, changed"
# The program copied out runs without us: it is whole.
srun cp "$AT/project/build/program" program; same "$(./program)" $expected "the program, copied out"
srun gcc -shared -fPIC -o "$AT/lib.so" "$AT/project/src/f1.c" "-I$AT/project/include" -save-temps -dumpdir "$AT/tmp/"
same "$(srun find "$AT/tmp" -name 'cc*' | wc -l)" 0 "temporary files that are left"
