# The four sanitizers of gcc and clang: what they report is the program's, none of the library's.
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || { echo "skipped: there is no $compiler" >&2; continue; }
    for kind in address thread undefined leak; do
        if ! $compiler -std=c++17 -g -O1 -fsanitize=$kind -pthread "$HERE/cases/checks.cc" -o checks; then
            echo "skipped: $compiler has no -fsanitize=$kind" >&2
            continue
        fi
        said "$compiler -fsanitize=$kind" srun timeout 60 ./checks "$AT"
    done
done
