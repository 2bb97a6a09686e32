# A program that brings its C library and its loader (as AppImages, conda and Nix do), and a C library that
# is exchanged under a running program and before it executes the next one.
needs gcc ldd
cat >seen.c <<'C'
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count < 2 || chdir(words[1])) return 1;
    FILE *file = fopen("seen", "a+");
    fprintf(file, "line\n");
    fseek(file, 0, SEEK_SET);
    char line[32];
    int lines = 0, names = 0;
    while (fgets(line, sizeof line, file)) lines++;
    DIR *directory = opendir(".");
    while (readdir(directory)) names++;
    printf("%d lines, %d names\n", lines, names);
    fflush(stdout);
    // Goes on when it is told to, with what it has mapped; then becomes the next program.
    if (count > 2) {
        read(0, line, 1);
        fprintf(file, "after\n");
        fclose(file);
        execv(words[2], words + 2);
        perror(words[2]);
    }
    return 0;
}
C
gcc -O1 -o seen seen.c
mkdir own
ldd seen | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | xargs -I '{}' cp '{}' own/
loader=$PWD/own/$(basename "$(ldd seen | awk '$1 ~ /^\// { print $1 }')")

mkdir_at() { srun mkdir -p "$AT/$1"; }
mkdir_at loader
said "its own loader" srun "$loader" --library-path "$PWD/own" "$PWD/seen" "$AT/loader"
mkdir_at path
said "its own C library" srun env LD_LIBRARY_PATH="$PWD/own" "$PWD/seen" "$AT/path"
gcc -O1 -o bound seen.c -Wl,-rpath,"$PWD/own" -Wl,--dynamic-linker,"$loader"
mkdir_at bound
said "bound to its own" srun "$PWD/bound" "$AT/bound"
said "a shell and its own" srun sh -c '"$1" "$2"; cat "$2/seen"' sh "$PWD/bound" "$AT/bound"

# An upgrade: the files get other contents under the same names, by renaming.
exchange() {
    local file
    for file in own/*; do
        cp "$file" "$file.new" && mv "$file.new" "$file"
    done
}
mkdir_at upgrade
mkfifo go
srun "$PWD/bound" "$AT/upgrade" "$PWD/bound" "$AT/upgrade" <go >first &
exec 5>go
until grep -q lines first; do sleep 0.05; done
exchange
echo >&5
exec 5>&-
wait $!
said "upgraded under it" cat first
said "what it has written" srun cat "$AT/upgrade/seen"

# One of another build: what is patched for the old one does not fit it.
if [ -w own/libc.so.6 ]; then
    printf '\n' >>own/libc.so.6
    said "longer" srun "$PWD/bound" "$AT/upgrade"
fi
