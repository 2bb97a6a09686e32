# Libraries on the volume that a program needs at its start: by $ORIGIN of a program there, by RPATH of
# one elsewhere, by LD_LIBRARY_PATH, by LD_PRELOAD; and by dlopen, with what they need themselves.
needs cc
echo 'int lower(void) { return 6; }' >lower.c
echo 'int lower(void); int upper(void) { return lower() * 7; }' >upper.c
echo '#include <stdio.h>
int upper(void); int main(void) { printf("%d\n", upper()); }' >main.c
echo '#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v) { void *l = dlopen(v[1], RTLD_NOW); if (!l) { puts("not loaded"); return 1; }
printf("%d\n", ((int (*)(void))dlsym(l, "upper"))()); }' >loads.c
mkdir lib
cc -shared -fPIC -o lib/liblower.so lower.c &&
    cc -shared -fPIC -o lib/libupper.so upper.c -Llib -llower -Wl,-rpath,'$ORIGIN' &&
    cc -o plain main.c -Llib -lupper -Wl,-rpath-link,lib &&
    cc -o by-origin main.c -Llib -lupper -Wl,-rpath,'$ORIGIN/../lib' &&
    cc -o by-path main.c -Llib -lupper -Wl,-rpath,"$AT/lib" && cc -o loads loads.c || exit 1
srun mkdir "$AT/bin" && srun cp -r lib "$AT" && srun cp by-origin plain loads "$AT/bin" && rm -r lib
said "by the program's place" srun "$AT/bin/by-origin"
said "by RPATH" srun ./by-path
said "by LD_LIBRARY_PATH" srun env LD_LIBRARY_PATH="$AT/lib" ./plain
said "by LD_LIBRARY_PATH, both there" srun env LD_LIBRARY_PATH="$AT/lib" "$AT/bin/plain"
said "by LD_LIBRARY_PATH around" env LD_LIBRARY_PATH="$AT/lib" bash -c 'srun ./plain'
said "by dlopen" srun ./loads "$AT/lib/libupper.so"
said "by dlopen and LD_LIBRARY_PATH" srun env LD_LIBRARY_PATH="$AT/lib" ./loads libupper.so
said "by dlopen, relative" srun sh -c 'cd "$1" && exec bin/loads ./lib/libupper.so' sh "$AT"
said "by LD_PRELOAD" in_front "$AT/lib/libupper.so" ./loads "$AT/lib/libupper.so"
