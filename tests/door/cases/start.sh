# What the dynamic linker is to find on a volume before the program begins, one rule of its search after
# the other; what programs and their children see of it; and that libraries loaded at the start are known
# again by dlopen.
needs cc
cat >name.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int number(void) { return NUMBER; }
void say(void) { Dl_info found; dladdr((void *)say, &found); printf("%d %s\n", NUMBER, found.dli_fname); }
C
cat >middle.c <<'C'
void say(void); void pass(void) { say(); }
C
cat >main.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void CALLED(void);
int main(int c, char **v) {
    CALLED();
    const char *path = getenv("LD_LIBRARY_PATH");
    printf("%s\n", path ? path : "none");
    fflush(stdout);
    if (c > 1 && !strstr(v[1], "script")) execvp(v[1], v + 1);
    return 0;
}
C
cat >loads.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
void say(void);
int main(int c, char **v) {
    say();
    for (int i = 1; i < c; i++) {
        void *library = dlopen(v[i], RTLD_NOW);
        if (!library) { puts(dlerror()); continue; }
        void *found = dlsym(library, "say");
        puts(found == (void *)say ? "the same" : "another");
    }
}
C
# made NUMBER FILE OPTION...: a library.
made() { cc -shared -fPIC -DNUMBER="$1" -o "$2" name.c "${@:3}"; }
mkdir -p a b plain deep/glibc-hwcaps/x86-64-v2 own
made 1 a/libname.so -Wl,-soname,libname.so && made 2 b/libname.so -Wl,-soname,libname.so &&
    made 3 plain/libplain.so && made 4 deep/libname.so -Wl,-soname,libname.so &&
    made 5 deep/glibc-hwcaps/x86-64-v2/libname.so -Wl,-soname,libname.so &&
    cc -shared -fPIC -o own/libmiddle.so middle.c -Lplain -lplain -Wl,-rpath,'$ORIGIN/../plain' &&
    printf 'not a library' >wrong && mkdir w && head -c 64 a/libname.so >w/libname.so &&
    printf '\1' | dd of=w/libname.so bs=1 seek=4 conv=notrunc 2>/dev/null || exit 1
program() { cc -o "$1" main.c -DCALLED="$2" -Wl,-rpath-link,plain "${@:3}"; }
program named say -La -lname && program rpath say -La -lname -Wl,--disable-new-dtags,-rpath,"$AT/b" &&
    program runpath say -La -lname -Wl,--enable-new-dtags,-rpath,"$AT/b" &&
    program origin say -La -lname -Wl,-rpath,'${ORIGIN}/../a' && program unnamed say -Lplain -lplain &&
    program middle pass -Lown -lmiddle -Wl,-rpath,"$AT/own" && cc -o loads loads.c -La -lname &&
    program by-path say plain/libplain.so || exit 1
srun sh -c 'mkdir "$1/bin" && cp -r a b plain deep own w "$1" && cp origin named by-path "$1/bin"' sh "$AT" || exit 1
rm -r a b plain/libplain.so own w
said "RPATH comes before LD_LIBRARY_PATH" srun env LD_LIBRARY_PATH="$AT/a" ./rpath
said "RUNPATH comes behind it" srun env LD_LIBRARY_PATH="$AT/a" ./runpath
said "RUNPATH alone" srun ./runpath
said "the program's place" srun "$AT/bin/origin"
said "the first directory of several" srun env LD_LIBRARY_PATH="/nowhere:$AT/w:$AT/b:$AT/a" ./named
said "a relative directory" srun sh -c 'cd "$1/bin" && LD_LIBRARY_PATH=:../b ./named' sh "$AT"
said "for the processor" srun env LD_LIBRARY_PATH="$AT/deep" ./named
said "without a name of its own" srun env LD_LIBRARY_PATH="$AT/plain" ./unnamed
said "one that needs another" srun ./middle
said "by a path" srun sh -c 'cd "$1" && bin/by-path' sh "$AT"
said "by a path, from outside" srun sh -c 'at=$PWD && cd "$1" && "$at/by-path"' sh "$AT"
said "of all nothing" srun env LD_LIBRARY_PATH="$AT/own" ./named
said "preloaded" srun env LD_PRELOAD="$AT/b/libname.so" LD_LIBRARY_PATH="$AT/a" ./named
said "preloaded by name" srun env LD_PRELOAD="libname.so" LD_LIBRARY_PATH="$AT/a" ./named
said "a child of a child" srun env LD_LIBRARY_PATH="$AT/a" ./named sh -c 'echo "$LD_LIBRARY_PATH"; exec ./named ./named'
said "a child without it" srun env LD_LIBRARY_PATH="$AT/a" ./named env -u LD_LIBRARY_PATH ./named
said "a script" srun sh -c 'printf "#!%s/bin/origin\n" "$1" >"$1/script"; chmod +x "$1/script"; "$1/script"' sh "$AT"
said "known again" srun env LD_LIBRARY_PATH="$AT/a" ./loads "$AT/a/libname.so" libname.so "$AT/bin/../a/libname.so" "$AT/b/libname.so"
said "variables" srun env LD_LIBRARY_PATH="$AT/a" ./named env -u SOLERA_RESUME sh -c 'env | grep -c "start\|START\|/proc/self"'
said "numbers" srun env LD_LIBRARY_PATH="$AT/a" ./named bash -c 'for fd in {3..300}; do [ ! -e "/proc/self/fd/$fd" ] || echo "$fd"; done | grep -vx "10\|25[0-9]"'
