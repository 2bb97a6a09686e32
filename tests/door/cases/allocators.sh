# Allocators that interpose mmap and their like, preloaded in both orders: python3 with threads, a
# database, children and mapped files.
needs python3
for name in libtcmalloc_minimal.so.4 libmimalloc.so.2 libjemalloc.so.2; do
    path=$(library $name) || { echo "skipped: there is no $name" >&2; continue; }
    said "$name, in front" in_front "$path" python3 "$HERE/cases/python_checks.py" "$AT"
    said "$name, behind" behind "$path" python3 "$HERE/cases/python_checks.py" "$AT"
done
