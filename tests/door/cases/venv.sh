# A virtual environment of Python on the volume, with an extension module in it; python3 embedded by a
# program there that finds libpython by $ORIGIN.
needs python3 cc
said "made" srun python3 -m venv --without-pip --copies "$AT/venv"
said "used" srun "$AT/venv/bin/python" -c 'import sys, sqlite3, ssl, ctypes; print(sys.prefix, sys.executable)'
site=$(srun "$AT/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
cat >own.c <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int seen(const char *path) { char text[9] = ""; int f = open(path, O_RDONLY); return f < 0 ? -1 : (int)read(f, text, 8); }
C
cc -shared -fPIC -o own.so own.c && srun cp own.so "$site/own.so"
said "module" srun "$AT/venv/bin/python" -c '
import ctypes, os, sys
path = os.path.join(os.path.dirname(os.path.realpath(sys.argv[1])), "own.so")
print(ctypes.CDLL(path).seen(path.encode()))' "$site/x"
said "script" srun sh -c 'printf "#!%s/venv/bin/python\nimport sys; print(sys.argv[0], sys.prefix)\n" "$1" >"$1/script"; chmod +x "$1/script"; "$1/script"' sh "$AT"
python=$(library 'libpython3*.so.1.0') || { echo "skipped: there is no libpython" >&2; exit 0; }
cat >embeds.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int Py_BytesMain(int, char **);
int main(int c, char **v) {
    Dl_info found;
    printf("%s\n", dladdr(Py_BytesMain, &found) ? found.dli_fname : "none");
    fflush(stdout);
    return Py_BytesMain(c, v);
}
C
cc -D_GNU_SOURCE -fPIC -no-pie -fno-plt -o embeds embeds.c "$python" -Wl,-rpath,'$ORIGIN/../lib' || exit 1
srun mkdir -p "$AT/app/bin" "$AT/app/lib"
srun cp embeds "$AT/app/bin" && srun cp -L "$python" "$AT/app/lib/"
said "embedded" srun "$AT/app/bin/embeds" -c 'import sys; print(sys.version_info[0])'
