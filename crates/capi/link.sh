#!/bin/sh
# Makes libsolera.so.0 of the archive, with the symbol versions of solera.map, and beside it SQLite's
# extension solera_vfs.so: usage link.sh ARCHIVE DIRECTORY
set -eu
map=$(dirname "$0")/solera.map
cc -shared -o "$2/libsolera.so.0" -Wl,-soname,libsolera.so.0 -Wl,--version-script="$map" \
    -Wl,--whole-archive "$1" -Wl,--no-whole-archive -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,-z,nodelete \
    -lgcc_s -lpthread -ldl -lm -lc
ln -sf libsolera.so.0 "$2/libsolera.so"
# It finds the library beside itself, wherever both are.
cc -shared -fPIC -O2 -o "$2/solera_vfs.so" "$(dirname "$0")/vfs.c" -L"$2" -l:libsolera.so.0 \
    -Wl,-rpath,'$ORIGIN' -Wl,-z,defs -Wl,-z,relro,-z,now
